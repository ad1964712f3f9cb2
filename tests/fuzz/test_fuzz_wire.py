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
from tunewright.sharing import wire
from tunewright.sharing.records import Want
from tunewright.spaces.config import Config
from tunewright.stores.bodies import Bodies, opened, read_decision, read_key, read_trial, seal, sealed
from tunewright.testing.keys import DECISION, FAILED, KEY, TIMED


class Note(msgspec.Struct):
    """What small files beside a store hold."""

    config: Config
    reason: str
    when: float = 0.0


FORMS = {
    "decision": (wire.load_decision, wire.dump_decision, DECISION),
    "key": (wire.load_key, wire.dump_key, KEY),
    "trial": (wire.load_trial, wire.dump_trial, TIMED),
    "failure": (wire.load_trial, wire.dump_trial, FAILED),
    "journal": (wire.load_journal, wire.dump_journal, [TIMED, FAILED]),
    "notes": (
        lambda data: wire.decode(data, dict[str, Note]),
        wire.encode,
        {KEY.digest: Note(Config(tile=1), "slow", 1.0)},
    ),
    "want": (lambda data: wire.decode(data, Want), wire.encode, Want(KEY, 3, 0.5)),
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
            assert len(value.digest) == len(value.kin) == 64
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
    row = [body, seal(body, bytes.fromhex(KEY.digest)), bytes.fromhex(KEY.digest)]
    for place in range(3):
        if data.draw(st.booleans()):
            row[place] = data.draw(st.sampled_from([None, 1, 2**40, -1, "text", b"", 1.5, row[place]]))
    with suppress(WireError):
        READERS[form](*row)


@effort()
@given(spoilt(json.loads(wire.dump_decision(DECISION))), st.booleans())
def test_what_a_store_keeps_is_a_decision_or_passed_over(body, whole) -> None:
    bodies, digest = Bodies("a store"), bytes.fromhex(KEY.digest)
    value = sealed(body, digest) if whole else body
    kept = [
        *bodies.opened([digest], [value], [KEY]).values(),
        *bodies.decisions([(digest, *opened(value))], {digest: KEY}).values(),
    ]
    for decision in kept:
        with suppress(WireError):  # it is read when it is looked at
            wire.encode(decision.config)
