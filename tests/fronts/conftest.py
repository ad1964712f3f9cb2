"""What the tests of memoization and of races share."""

import functools

import pytest
import worked_time

from tunewright.fronts.memo import flight, memo, persistent_memo
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
            if isinstance(step, flight.Join):
                seen.append(step)
            return take(step, work)

        return taking

    monkeypatch.setattr(flight, "_took", noted(flight._took))
    monkeypatch.setattr(flight, "_awaited", noted(flight._awaited))
    return seen


@pytest.fixture
def by_work(monkeypatch):
    """Kernels of this process take as long as the work they say they do: no race depends on the machine."""
    worked_time.install(monkeypatch)
