"""Releases of PyTorch: a self-test that touches every private part that is used, remembered for each build of torch."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from tunewright.backends.host import digest
from tunewright.errors import PluginError
from tunewright.lazy_logging import LazyLogger
from tunewright.settings import Settings
from tunewright.torch.inductor import adapter
from tunewright.torch.inductor.adapter import BREAK, EVENT, HOOKS, METRICS, RECOMPILED, TESTED_VERSIONS
from tunewright.version import __version__

log = LazyLogger(__name__)

_METRICS = {"co_name", "co_filename", "co_firstlineno", "compile_id", "duration_us"}


@cache
def require_supported() -> None:
    """Raises if this release of PyTorch fails the self-test; logs once if it is untested and passes.

    A build that passed is not tested again by later processes: the test loads all of Inductor.
    """
    if adapter.VERSION in TESTED_VERSIONS or (passed := _passed_file()).exists():
        return
    results = self_test()
    if problems := [problem for problem in results.values() if problem]:
        working = dict.fromkeys(HOOKS[path] for path, problem in results.items() if not problem)
        raise PluginError(
            f"torch {adapter.VERSION} is not supported: {'; '.join(problems)}. "
            f"What still works: {', '.join(working) or 'nothing'}. Install torch=={TESTED_VERSIONS[-1]}"
        )
    log.warning(
        "torch %s is used since it passes the self-test; tests are run on %s",
        adapter.VERSION,
        ", ".join(TESTED_VERSIONS),
    )
    _remember(passed)


def _passed_file() -> Path:
    """Returns the file that exists if this build passed the self-test of this version."""
    build = digest(adapter.VERSION, str(torch.version.git_version), __version__, *HOOKS)[:16]
    return Settings.read().cache_path / "torch" / f"passed-{adapter.VERSION}-{build}"


def _remember(passed: Path) -> None:
    try:
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
    except OSError as error:
        log.info("the self-test of torch is run again in the next process: %s", error)


def self_test() -> dict[str, str]:
    """Returns what is wrong with each hook, by path; an empty text where it works."""
    problems: dict[str, str] = {}
    for path, purpose in HOOKS.items():
        try:
            adapter.hook(path)
            problems[path] = ""
        except PluginError:
            problems[path] = f"there is no {path}, which is needed for {purpose}"
    trace = next(iter(HOOKS))
    if not problems[trace]:
        problems[trace] = "; ".join(_trace_problems())
    return problems


def _trace_problems() -> list[str]:
    """Compiles a small function with a graph break and two sizes; returns what its trace lacks.

    The function is a new one each time, so that what the process has compiled can stay.
    """
    small = FunctionType(_small.__code__.replace(), globals(), _small.__name__)
    with adapter.capture_records() as records:
        compiled = torch.compile(small, backend="eager", dynamic=False)
        for size in (3, 4):
            compiled(torch.ones(size))
    names = {record.name for record in records}
    problems = [f"the trace has no {name}" for name in (BREAK, RECOMPILED, METRICS, EVENT) if name not in names]
    breaks = [record for record in records if record.name == BREAK]
    if breaks and not breaks[0].text.startswith("Graph break in user code at "):
        problems.append("graph breaks are reported in another format")
    guards = [reason for record in records if record.name == RECOMPILED for reason in adapter.recompile_reasons(record)]
    if guards and "size mismatch at index 0" not in guards[0]:
        problems.append("failed guards are reported in another format")
    fields = {name for record in records if record.name == METRICS for name in record.fields}
    problems += [f"metrics have no {name}" for name in sorted(_METRICS - fields)] if fields else []
    return problems


def _small(x: Any) -> Any:
    x = x + 1
    torch.compiler.disable(torch.sin)(x)
    return x * 2
