"""A clock that someone sets makes nothing old, whosever clock it is."""

import time

from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.statistics import RetentionLimits
from tunewright.testing.keys import DECISION, KEY, TIMED

YEAR = 365 * 86_400.0
DAY = RetentionLimits(age=86_400.0, decisions=True)


def test_what_was_put_while_the_clock_was_set_back_is_not_old_afterwards(tmp_path, monkeypatch) -> None:
    store, right = SqliteStore(tmp_path / "store.sqlite"), time.time
    store.stats()
    monkeypatch.setattr(time, "time", lambda: right() - YEAR)
    store.put(DECISION)
    monkeypatch.setattr(time, "time", right)
    assert store.trim(DAY).decisions == 0
    assert store.get(KEY) == DECISION


def test_a_server_whose_clock_is_far_ahead_does_not_drop_everything(postgres_location, monkeypatch) -> None:
    from tunewright.stores.postgres import PostgresStore

    store, right = PostgresStore(postgres_location), time.time
    store.put(DECISION)
    store.record(KEY, [TIMED] * 3)
    # To the server it is now a year later than to us, and what it keeps was dated right before.
    store._server.rows("UPDATE decisions SET since = since - 31536000")
    store._server.rows("UPDATE trials SET at = at - 31536000")
    monkeypatch.setattr(time, "time", lambda: right() - YEAR)
    assert store.trim(DAY).trials == 0
    assert store.get(KEY) == DECISION
    monkeypatch.setattr(time, "time", right)
    assert store.trim(DAY).trials == 3
