"""What the tests of memoisation share."""

import functools

import pytest

from tunewright.fronts.memo import memo, persistent_memo
from tunewright.stores.memory import MemoryStore


@pytest.fixture(params=["memo", "persistent_memo"])
def remember(request):
    """Either decorator, the persistent one on a store of its own."""
    if request.param == "memo":
        return memo
    return functools.partial(persistent_memo, store=MemoryStore())
