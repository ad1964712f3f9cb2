from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunewright import Config
from tunewright.errors import WireError
from tunewright.model.key import SCHEMA
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.stores import serialization
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED

GOLDEN = Path(__file__).parent.parent / "golden"
PAIRS = [
    ("decision", DECISION, serialization.dump_decision, serialization.load_decision),
    ("trial", TIMED, serialization.dump_trial, serialization.load_trial),
    ("failure", FAILED, serialization.dump_trial, serialization.load_trial),
    ("key", KEY, serialization.dump_key, serialization.load_key),
]

values = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
configs = st.dictionaries(st.text(min_size=1), values, max_size=4).map(Config)
seconds = st.floats(0, 1e6)
outcomes = st.builds(Timing, st.lists(seconds, min_size=1, max_size=4).map(tuple), st.text()) | st.builds(
    Failure, st.sampled_from(Stage), st.sampled_from(Kind), st.text()
)
trials = st.builds(Trial, configs, outcomes, seconds, seconds, st.dictionaries(st.text(), seconds, max_size=2), seconds)


@pytest.mark.parametrize(("name", "value", "dump", "load"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_records_of_this_schema_are_read_and_written_as_ever(name, value, dump, load) -> None:
    golden = (GOLDEN / f"v{SCHEMA}-{name}.json").read_bytes().rstrip(b"\n")
    assert dump(value) == golden
    assert load(golden) == value


@given(trials)
def test_a_trial_survives_travel(trial) -> None:
    assert serialization.load_trial(serialization.dump_trial(trial)) == trial


@given(st.lists(trials, max_size=3))
def test_many_trials_survive_travel_apart_and_together(several) -> None:
    assert [serialization.load_trial(line) for line in serialization.dump_trials(several)] == several
    assert list(serialization.load_journal(serialization.dump_journal(several))) == several


def test_a_journal_that_is_torn_or_of_another_schema_is_refused() -> None:
    whole = serialization.dump_journal([TIMED, FAILED])
    for data in (whole[:-1], whole[1:], b"", b"[]", whole.replace(b'"schema":1', b'"schema":99')):
        with pytest.raises(WireError):
            serialization.load_journal(data)


def test_kept_decisions_are_equal_by_their_records_and_by_what_they_say() -> None:
    record = serialization.dump_decision(DECISION)
    kept, other = (
        serialization.load_decision_lazily(record, KEY),
        serialization.load_decision_lazily(record.replace(b'"tile":64', b'"tile":65'), KEY),
    )
    assert kept == serialization.load_decision_lazily(record, KEY)
    assert kept == DECISION
    assert kept != other
    unread = serialization.load_decision_lazily(b'{"decision":{' + KEY.record_end, KEY)
    assert unread == serialization.load_decision_lazily(b'{"decision":{' + KEY.record_end, KEY), (
        "which takes no reading"
    )


@pytest.mark.parametrize(("name", "value", "dump", "load"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_what_is_torn_or_foreign_is_refused(name, value, dump, load) -> None:
    whole = dump(value)
    for end in range(0, len(whole), 7):
        with pytest.raises(WireError):
            load(whole[:end])
    with pytest.raises(WireError, match="schema 99"):
        load(whole.replace(b'"schema":1', b'"schema":99'))
    for foreign in (b"[]", b"null", b'{"schema":1}', b'{"schema":"1"}', b"\xff\xfe"):
        with pytest.raises(WireError):
            load(foreign)


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(data) -> None:
    for load in (serialization.load_decision, serialization.load_trial, serialization.load_key):
        try:
            load(data)
        except WireError:
            continue
        raise AssertionError("random bytes are no record")


def test_a_time_that_is_no_number_does_not_travel() -> None:
    with pytest.raises(WireError):
        serialization.load_trial(serialization.dump_trial(Trial(Config(a=1), Timing((float("nan"),)))))
