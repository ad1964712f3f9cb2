"""What the tests of memoization share."""

import functools

import pytest

from tunewright.memoization import memo, persistent_memo, singleflight
from tunewright.stores.memory import MemoryStore


@pytest.fixture(params=["memo", "persistent_memo"])
def remember(request):
    """Either decorator, the persistent one on a store of its own."""
    if request.param == "memo":
        return memo
    return functools.partial(persistent_memo, store=MemoryStore())


@pytest.fixture
def joins(monkeypatch):
    """Those who wait for what another thread or task computes, in the order in which they came."""
    seen = []

    def noted(take):
        def taking(step, work):
            if isinstance(step, singleflight.WaitForComputation):
                seen.append(step)
            return take(step, work)

        return taking

    monkeypatch.setattr(singleflight, "_run_step", noted(singleflight._run_step))
    monkeypatch.setattr(singleflight, "_run_step_async", noted(singleflight._run_step_async))
    return seen
