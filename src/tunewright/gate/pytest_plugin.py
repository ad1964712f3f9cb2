"""The pytest plugin: `pytest --tunewright` races what tests hand to the fixtures `race` and `assert_not_slower`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tunewright.gate.fixtures import RaceRunner
    from tunewright.gate.verdict import GateResult

PROPERTY = "tunewright"
"""The name under which a report has what its test raced."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("tunewright", "races of functions and checkouts")
    group.addoption(
        "--tunewright", action="store_true", help="Race what tests of speed compare; without it they are skipped."
    )
    group.addoption(
        "--tunewright-seconds", type=float, default=60.0, metavar="S", help="Seconds that one race may take (60)."
    )
    group.addoption(
        "--tunewright-strict", action="store_true", help="Fail where it could not be told in the time; else xfail."
    )


def _runner(request: pytest.FixtureRequest) -> RaceRunner:
    """Returns what races for one test; skips the test unless races are asked for."""
    if not request.config.getoption("--tunewright"):
        pytest.skip("speed is compared only with --tunewright")
    from tunewright.gate.fixtures import RaceRunner  # noqa: PLC0415 - not needed where nothing is raced

    module = getattr(request.module, "__file__", None)
    seconds = request.config.getoption("--tunewright-seconds")

    def record(result: GateResult) -> None:
        request.node.user_properties.append((PROPERTY, result.sentence()))

    return RaceRunner(module, seconds, record)


@pytest.fixture
def race(request: pytest.FixtureRequest) -> Callable[..., GateResult]:
    """Races two functions without arguments: `race(old, new)` returns the outcome, with `ratio`, `low` and `high`."""
    return _runner(request).race


@pytest.fixture
def assert_not_slower(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Fails a test if a function is slower than at a revision: `assert_not_slower(f, baseline="main", by=0.03)`.

    `baseline` may also be another function. Where it cannot be told in the time, the test is an expected failure with
    the reason and a remedy; with --tunewright-strict it fails.
    """
    runner, strict = _runner(request), request.config.getoption("--tunewright-strict")

    def check(function: Any, baseline: Any = "main", by: float = 0.03, seconds: float | None = None) -> None:
        from tunewright.gate.function_process import NothingToCompare  # noqa: PLC0415 - as in _runner
        from tunewright.gate.verdict import GateOutcome  # noqa: PLC0415

        try:
            result = runner.race(baseline, function, by=by, seconds=seconds)
        except NothingToCompare as error:
            pytest.skip(f"nothing to compare with: {error}")
        text = result.sentence()
        if result.outcome is GateOutcome.SLOWER:
            pytest.fail(text, pytrace=False)
        if result.outcome is GateOutcome.UNKNOWN:
            end = pytest.fail if strict else pytest.xfail
            end(f"{text}; {result.remedy()}")

    return check


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Lists what was raced."""
    lines = [
        f"{report.nodeid}: {text}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in getattr(report, "user_properties", ())
        if name == PROPERTY
    ]
    if lines:
        terminalreporter.section("tunewright")
        for line in lines:
            terminalreporter.line(line)
