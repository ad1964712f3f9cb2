"""A service as a store: the contracts that every store keeps, through a real server."""

import pytest

from tunewright.sharing.offers import Cache, Generations, Leases, Shelves, Upkeep, Wants
from tunewright.stores import places
from tunewright.testing.offer_kit import GenerationContract, LeaseContract, ShelfContract, WantContract
from tunewright.testing.store_kit import StoreContract


def emptied(service):
    """A service whose SQLite file is made empty behind its back: starting one for each test takes seconds."""
    import sqlite3

    with sqlite3.connect(service.place) as file:
        for table in ("decisions", "history", "problems", "trials", "wants", "leases"):
            file.execute(f"DELETE FROM {table}")
        file.execute("DELETE FROM entries WHERE shelf NOT LIKE 'service:%'")
    file.close()


@pytest.fixture(scope="module")
def cold(serve):
    """One that keeps nothing warm, since its file is emptied by us."""
    return serve("--fresh", "0")


class TestHttp(StoreContract, LeaseContract, WantContract, GenerationContract, ShelfContract):
    @pytest.fixture
    def store(self, cold):
        emptied(cold)
        return cold.store()


def test_it_offers_what_it_says(cold) -> None:
    store = cold.store()
    for offer in (Leases, Wants, Generations, Shelves):
        assert isinstance(store, offer)
    for offer in (Cache, Upkeep):
        assert not isinstance(store, offer)


def test_a_location_in_words_opens_it(cold) -> None:
    assert list(places.at(cold.at()).decisions("no such kernel")) == []
