"""Every test has a cache and a process-wide session of its own."""

import signal
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

import worked_time
from tunewright import session

# The same examples every time, however long one takes. Others are tried at night (`nightly`), or by hand:
# pytest tests/fuzz --hypothesis-profile=long
settings.register_profile(
    "same", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
for name, count in (("nightly", 2_000), ("long", 20_000)):
    settings.register_profile(
        name, max_examples=count, derandomize=False, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("same")

# A job in the background ignores Ctrl-C, and so would every program the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("TUNEWRIGHT_CACHE", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    monkeypatch.setattr(session, "_default", None)
    return folder


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Wait for a condition. The bound only ends a test that would hang: no verdict depends on how long it took."""

    def wait(condition: Callable[[], object], what: str = "the condition", *, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"{what} did not come true within {seconds:g} s")
            time.sleep(0.01)

    return wait


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests about real time say how much they tolerate, and are the only ones that may be run again."""
    for item in items:
        for mark in item.iter_markers("clock"):
            if not (mark.args and isinstance(mark.args[0], str)):
                raise pytest.UsageError(f'{item.nodeid}: state the tolerance, as in @pytest.mark.clock("within 1 s")')
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.fixture
def by_work(monkeypatch):
    """Kernels of this process take as long as the work they say they do: no race depends on the machine."""
    worked_time.install(monkeypatch)
