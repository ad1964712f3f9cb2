"""Wire: how values look outside the process; the only (de)serialiser."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from tunewright.errors import WireError
from tunewright.model.decision import Decision
from tunewright.model.key import SCHEMA, Key
from tunewright.model.trial import Trial
from tunewright.spaces.config import Config

T = TypeVar("T")


class _DecisionRecord(msgspec.Struct):
    schema: int
    decision: Decision


class _TrialRecord(msgspec.Struct):
    schema: int
    trial: Trial


class _KeyRecord(msgspec.Struct):
    schema: int
    key: Key


class _Header(msgspec.Struct):
    schema: int


def _to_plain(value: Any) -> Any:
    if isinstance(value, Config):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} does not travel")


def _from_plain(wanted: type, value: Any) -> Any:
    if wanted is Config:
        if not isinstance(value, dict) or not all(isinstance(v, bool | int | float | str) for v in value.values()):
            raise ValueError("a config maps names to plain values")
        return Config(value)
    raise NotImplementedError(f"{wanted.__name__} does not travel")


_encoder = msgspec.json.Encoder(enc_hook=_to_plain, order="sorted")


def encode(value: Any) -> bytes:
    """Any of our values as canonical JSON; for records use the functions below, which add the schema."""
    return _encoder.encode(value)


def decode(data: bytes | str, wanted: type[T]) -> T:
    """A value of type `wanted` from JSON; a WireError if it is anything else."""
    try:
        return msgspec.json.decode(data, type=wanted, dec_hook=_from_plain)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"not a {wanted.__name__}: {error}") from error


def _record(data: bytes | str, wanted: type[T]) -> T:
    """A record of our schema; its number is read before anything else is believed."""
    schema = decode(data, _Header).schema
    if schema != SCHEMA:
        raise WireError(f"written by schema {schema}, this version reads {SCHEMA}")
    return decode(data, wanted)


def dump_decision(decision: Decision) -> bytes:
    """`decision` as one line of canonical JSON: equal decisions, equal bytes."""
    return encode(_DecisionRecord(SCHEMA, decision))


def load_decision(data: bytes | str) -> Decision:
    """The decision in `data`."""
    return _record(data, _DecisionRecord).decision


def dump_trial(trial: Trial) -> bytes:
    """`trial` as one line of canonical JSON."""
    return encode(_TrialRecord(SCHEMA, trial))


def load_trial(data: bytes | str) -> Trial:
    """The trial in `data`."""
    return _record(data, _TrialRecord).trial


def dump_key(key: Key) -> bytes:
    """`key` as one line of canonical JSON."""
    return encode(_KeyRecord(SCHEMA, key))


def load_key(data: bytes | str) -> Key:
    """The key in `data`."""
    return _record(data, _KeyRecord).key
