"""Whatever bytes come as a record, they are one of ours, or a WireError; one that is read can be written again."""

import json
from contextlib import suppress

import msgspec
import pytest
from damage import effort, spoilt
from hypothesis import given
from hypothesis import strategies as st

from tunewright.errors import WireError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.spaces.config import Config
from tunewright.stores import serialization
from tunewright.stores.records import (
    RecordReader,
    checksum,
    read_decision,
    read_key,
    read_trial,
    split_checksum,
    with_checksum,
)
from tunewright.stores.statistics import MissRecord
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED


class Note(msgspec.Struct):
    """What small files beside a store hold."""

    config: Config
    reason: str
    when: float = 0.0


FORMS = {
    "decision": (serialization.load_decision, serialization.dump_decision, DECISION),
    "key": (serialization.load_key, serialization.dump_key, KEY),
    "trial": (serialization.load_trial, serialization.dump_trial, TIMED),
    "failure": (serialization.load_trial, serialization.dump_trial, FAILED),
    "journal": (serialization.load_journal, serialization.dump_journal, [TIMED, FAILED]),
    "notes": (
        lambda data: serialization.decode(data, dict[str, Note]),
        serialization.encode,
        {KEY.digest: Note(Config(tile=1), "slow", 1.0)},
    ),
    "want": (lambda data: serialization.decode(data, MissRecord), serialization.encode, MissRecord(KEY, 3, 0.5)),
}


@pytest.mark.parametrize("form", FORMS)
def test_sound_records_come_back(form) -> None:
    load, dump, value = FORMS[form]
    assert dump(load(dump(value))) == dump(value)


@pytest.mark.parametrize("form", FORMS)
@effort()
@given(data=st.data())
def test_any_bytes_are_a_record_or_refused(form, data) -> None:
    load, dump, sound = FORMS[form]
    body = data.draw(spoilt(json.loads(dump(sound))))
    try:
        value = load(body)
    except WireError:
        return
    assert dump(load(dump(value))) == dump(value)
    used(value)


def used(value) -> None:
    """What everyone does with a value that was read."""
    match value:
        case Decision():
            used(value.key)
            str(value.config), value.evidence and value.evidence.gain
        case Key():
            assert len(value.digest) == len(value.related_digest) == 64
            assert value.differences(KEY) or value == KEY
            str(value.signature), str(value.device)
        case Trial():
            assert value.seconds == value.seconds
            str(value.config)
        case list() | tuple():
            for one in value:
                used(one)


READERS = {"decision": read_decision, "trial": read_trial, "key": lambda body, _, digest: read_key(body, digest)}


@pytest.mark.parametrize("form", READERS)
@effort()
@given(data=st.data())
def test_any_row_of_a_store_is_believed_or_refused(form, data) -> None:
    body = data.draw(spoilt(json.loads(FORMS[form][1](FORMS[form][2]))))
    row = [body, checksum(body, bytes.fromhex(KEY.digest)), bytes.fromhex(KEY.digest)]
    for place in range(3):
        if data.draw(st.booleans()):
            row[place] = data.draw(st.sampled_from([None, 1, 2**40, -1, "text", b"", 1.5, row[place]]))
    with suppress(WireError):
        READERS[form](*row)


@effort()
@given(spoilt(json.loads(serialization.dump_decision(DECISION))), st.booleans())
def test_what_a_store_keeps_is_a_decision_or_passed_over(body, whole) -> None:
    bodies, digest = RecordReader("a store"), bytes.fromhex(KEY.digest)
    value = with_checksum(body, digest) if whole else body
    kept = [
        *bodies.decisions_from_values([digest], [value], [KEY]).values(),
        *bodies.decisions([(digest, *split_checksum(value))], {digest: KEY}).values(),
    ]
    for decision in kept:
        with suppress(WireError):  # it is read when it is looked at
            serialization.encode(decision.config)
