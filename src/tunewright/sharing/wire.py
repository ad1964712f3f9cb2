"""Wire: how values look outside the process; the only (de)serialiser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from tunewright.errors import WireError
from tunewright.model.decision import Decision, Evidence, Tier
from tunewright.model.key import SCHEMA, Key
from tunewright.model.trial import Trial
from tunewright.spaces.config import Config

T = TypeVar("T")


class _Header(msgspec.Struct):
    schema: int


class _Body(msgspec.Struct, omit_defaults=True):
    key: Key
    config: Config
    evidence: Evidence | None = None
    tier: Tier = Tier.EXACT


class _DecisionRecord(_Header):
    decision: _Body


class _TrialRecord(_Header):
    trial: Trial


class _JournalRecord(_Header):
    trials: Sequence[Trial]


class _KeyRecord(_Header):
    key: Key


R = TypeVar("R", bound=_Header)


def _to_plain(value: Any) -> Any:
    if value.__class__ is Config:
        return value.plain()
    if isinstance(value, Decision):
        return _Body(value.key, value.config, value.evidence, value.tier)
    raise NotImplementedError(f"{type(value).__name__} does not travel")


def _from_plain(wanted: type, value: Any) -> Any:
    if wanted is Config:
        if not isinstance(value, dict):
            raise ValueError("a config maps names to plain values")
        return Config(value)
    if wanted is Decision:
        found = msgspec.convert(value, _Body, dec_hook=_from_plain)
        return Decision(found.key, found.config, found.evidence, found.tier)
    raise NotImplementedError(f"{wanted.__name__} does not travel")


_encoder = msgspec.json.Encoder(enc_hook=_to_plain, order="sorted")
_swift_encoder = msgspec.json.Encoder(enc_hook=_to_plain, order="deterministic")


def encode(value: Any) -> bytes:
    """Any of our values as canonical JSON; for records use the functions below, which add the schema."""
    return _encoder.encode(value)


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decode(data: bytes | str, wanted: type[T]) -> T:
    """A value of type `wanted` from JSON; a WireError if it is anything else."""
    if (decoder := _decoders.get(wanted)) is None:
        decoder = _decoders[wanted] = msgspec.json.Decoder(wanted, dec_hook=_from_plain)
    try:
        value: T = decoder.decode(data)
        return value
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"not a {wanted.__name__}: {error}") from error


def _record(data: bytes | str, wanted: type[R]) -> R:
    """A record of our schema, read once; one that does not fit is said to be of another schema where it says so."""
    try:
        record = decode(data, wanted)
    except WireError:
        _refuse_others(decode(data, _Header).schema)
        raise
    _refuse_others(record.schema)
    return record


def _refuse_others(schema: int) -> None:
    if schema != SCHEMA:
        raise WireError(f"written by schema {schema}, this version reads {SCHEMA}")


def dump_decision(decision: Decision) -> bytes:
    """`decision` as one line of canonical JSON: equal decisions, equal bytes."""
    if decision.body is not None:
        return decision.body
    return encode(_DecisionRecord(SCHEMA, _to_plain(decision)))


def load_decision(data: bytes | str) -> Decision:
    """The decision in `data`."""
    found = _record(data, _DecisionRecord).decision
    return Decision(found.key, found.config, found.evidence, found.tier)


SCHEMA_LAST = f',"schema":{SCHEMA}}}'.encode()
"""How a record of our schema ends: names are sorted."""


def kept_decision(data: bytes, key: Key) -> Decision:
    """The decision for `key` in `data`, to be read when it is looked at; a WireError if it is of another schema."""
    if data.endswith(SCHEMA_LAST):
        return Decision.kept(key, data, content)
    found = load_decision(data)
    return found if found.key == key else found.having(key=key)


class _ContentBody(msgspec.Struct):
    config: Config
    evidence: Evidence | None = None


class _ContentRecord(_Header):
    decision: _ContentBody


def content(data: bytes) -> tuple[Config, Evidence | None]:
    """The config and the evidence in a record, without its key, which whoever asked has."""
    found = _record(data, _ContentRecord).decision
    return found.config, found.evidence


def dump_trial(trial: Trial) -> bytes:
    """`trial` as one line of canonical JSON."""
    return encode(_TrialRecord(SCHEMA, trial))


def dump_trials(trials: Iterable[Trial]) -> list[bytes]:
    """The same for many, at once; in the order of their fields, which readers do not mind and which is faster."""
    return _swift_encoder.encode_lines([_TrialRecord(SCHEMA, trial) for trial in trials]).splitlines()


def dump_journal(trials: Sequence[Trial]) -> bytes:
    """Trials that are kept together, as one record."""
    return _swift_encoder.encode(_JournalRecord(SCHEMA, trials))


def load_journal(data: bytes | str) -> Sequence[Trial]:
    """The trials in `data`."""
    return _record(data, _JournalRecord).trials


def load_trial(data: bytes | str) -> Trial:
    """The trial in `data`."""
    return _record(data, _TrialRecord).trial


def dump_key(key: Key) -> bytes:
    """`key` as one line of canonical JSON."""
    return encode(_KeyRecord(SCHEMA, key))


def load_key(data: bytes | str) -> Key:
    """The key in `data`."""
    return _record(data, _KeyRecord).key
