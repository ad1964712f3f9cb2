import msgspec
import numpy as np
import pytest

from tunewright.errors import SettingsError
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.shapes.table import ShapeTable, cells_of
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import bucket_of
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY, other_key

A, B = Config(x=1), Config(x=2)


def timed(config: Config, seconds: float, *, is_first: bool = False) -> Trial:
    return Trial(config, Timing((seconds,), "cpu", is_first=is_first))


def failed(config: Config) -> Trial:
    return Trial(config, Failure(Stage.VERIFY, Kind.WRONG, "wrong"))


def at(**sizes: int):
    return other_key(signature=Signature(KEY.signature.args, sizes))


def test_what_was_not_tried_is_not_what_failed() -> None:
    table = ShapeTable.of([({"M": 1}, A, 1.0), ({"M": 2}, A, 2.0), ({"M": 2}, B, float("inf"))], {(2,): 5.0})
    assert table.shapes == ((1,), (2,))
    assert np.isnan(table.seconds[0, 1])
    assert np.isinf(table.seconds[1, 1])
    assert table.works.tolist() == [[True, False], [True, False]]
    assert table.weights.tolist() == [1, 5]
    assert table.regret[0].tolist() == [0, np.inf]


def test_a_journal_counts_the_median_unless_the_last_trial_failed() -> None:
    trials = [timed(A, 9.0, is_first=True), timed(A, 1.0), timed(A, 3.0), timed(B, 1.0), failed(B)]
    assert cells_of(trials) == [(A, 2.0), (B, float("inf"))]
    assert cells_of([timed(A, 9.0, is_first=True)]) == []


def test_a_store_gives_the_shapes_of_one_source_and_device() -> None:
    store = MemoryStore()
    store.record(at(M=8, N=4), [timed(A, 1.0), timed(B, 2.0)])
    store.record(at(N=4, M=16), [timed(A, 3.0)])
    store.record(msgspec.structs.replace(at(M=32, N=4), source="older"), [timed(A, 1.0)])
    table = ShapeTable.from_store(store, "gemm")
    assert (table.names, set(table.shapes)) == (("M", "N"), {(8, 4), (16, 4)})
    assert table.named(0) == {"M": table.shapes[0][0], "N": 4}
    with pytest.raises(SettingsError, match="tunewright tune"):
        ShapeTable.from_store(store, "softmax")


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingsError, match="M"):
        ShapeTable.of([({"M": 1}, A, 1.0), ({"N": 1}, A, 1.0)])
    with pytest.raises(SettingsError, match="at least 1"):
        ShapeTable.of([({"M": 0}, A, 1.0)])
    with pytest.raises(SettingsError, match="names no sizes"):
        ShapeTable.of([({}, A, 1.0)])
    with pytest.raises(SettingsError, match="no trials"):
        ShapeTable.of([])


def test_buckets_are_powers_of_two() -> None:
    assert bucket_of((1, 2, 3, 64, 65)) == (1, 2, 4, 64, 128)
