"""Serialization of all values that are stored or sent, as JSON with a schema number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from tunewright.errors import SpaceError, WireError
from tunewright.model.decision import Decision, Evidence, Tier
from tunewright.model.key import SCHEMA, Key
from tunewright.model.trial import Trial
from tunewright.spaces.config import Config

T = TypeVar("T")


class _Header(msgspec.Struct):
    schema: int


class _DecisionBody(msgspec.Struct, omit_defaults=True):
    key: Key
    config: Config
    evidence: Evidence | None = None
    tier: Tier = Tier.EXACT


class _DecisionRecord(_Header):
    decision: _DecisionBody


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
        return _DecisionBody(value.key, value.config, value.evidence, value.tier)
    raise NotImplementedError(f"{type(value).__name__} cannot be serialized")


def _from_plain(wanted: type, value: Any) -> Any:
    if wanted is Config:
        if not isinstance(value, dict):
            raise ValueError("a config maps names to plain values")
        return Config(value)
    if wanted is Decision:
        body = msgspec.convert(value, _DecisionBody, dec_hook=_from_plain)
        return Decision(body.key, body.config, body.evidence, body.tier)
    raise NotImplementedError(f"{wanted.__name__} cannot be serialized")


_encoder = msgspec.json.Encoder(enc_hook=_to_plain, order="sorted")
_fast_encoder = msgspec.json.Encoder(enc_hook=_to_plain, order="deterministic")


def encode(value: Any) -> bytes:
    """Returns any of our values as canonical JSON; for records use the functions below, which add the schema."""
    return _encoder.encode(value)


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def decode(data: bytes | str, wanted: type[T]) -> T:
    """Returns a value of type `wanted` from JSON; raises WireError if it is anything else."""
    if (decoder := _decoders.get(wanted)) is None:
        decoder = _decoders[wanted] = msgspec.json.Decoder(wanted, dec_hook=_from_plain)
    try:
        value: T = decoder.decode(data)
        return value
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, SpaceError) as error:
        raise WireError(f"not a {wanted.__name__}: {error}") from error


def _record(data: bytes | str, wanted: type[R]) -> R:
    """Returns a record of our schema; the error for an invalid one names its schema if that is another."""
    try:
        record = decode(data, wanted)
    except WireError:
        _check_schema(decode(data, _Header).schema)
        raise
    _check_schema(record.schema)
    return record


def _check_schema(schema: int) -> None:
    if schema != SCHEMA:
        raise WireError(f"written by schema {schema}, this version reads {SCHEMA}")


def dump_decision(decision: Decision) -> bytes:
    """Returns `decision` as one line of canonical JSON: equal decisions, equal bytes."""
    if decision.body is not None:
        return decision.body
    return encode(_DecisionRecord(SCHEMA, _to_plain(decision)))


def load_decision(data: bytes | str) -> Decision:
    """Returns the decision in `data`; a signed record is kept with it, so that copies have the signature."""
    body = _record(data, _DecisionRecord).decision
    if isinstance(data, bytes) and data.startswith(AUTHOR_FIRST) and body.tier is Tier.EXACT:
        return Decision.from_body(body.key, data, load_content, (body.config, body.evidence))
    return Decision(body.key, body.config, body.evidence, body.tier)


AUTHOR_FIRST = b'{"author":"'
"""The beginning of a signed record, before the text of the signature: names are sorted."""


def with_author(record: bytes, author: str) -> bytes:
    """Returns the record of a decision with the text of its signature."""
    return AUTHOR_FIRST + author.encode() + b'",' + without_author(record)[0][1:]


def without_author(record: bytes) -> tuple[bytes, str]:
    """Returns the record as it was signed, and the text of the signature; "" if there is none."""
    if not record.startswith(AUTHOR_FIRST):
        return record, ""
    author, _, rest = record.removeprefix(AUTHOR_FIRST).partition(b'",')
    return b"{" + rest, author.decode(errors="replace")


def load_decision_lazily(data: bytes, key: Key) -> Decision:
    """Returns the decision for `key` in `data`, decoded on first use if it has the usual form.

    Raises WireError if it is of another schema or for another key.
    """
    if data.endswith(key.record_end):
        return Decision.from_body(key, data, load_content)
    decision = load_decision(data)
    if decision.key != key:
        raise WireError(f"it is for another key, {decision.key.digest[:12]}")
    return decision


class _ContentBody(msgspec.Struct):
    config: Config
    evidence: Evidence | None = None


class _ContentRecord(_Header):
    decision: _ContentBody


def load_content(data: bytes) -> tuple[Config, Evidence | None]:
    """Returns the config and the evidence in a record, without its key, which the caller has."""
    body = _record(data, _ContentRecord).decision
    return body.config, body.evidence


def dump_trial(trial: Trial) -> bytes:
    """Returns `trial` as one line of canonical JSON."""
    return encode(_TrialRecord(SCHEMA, trial))


def dump_trials(trials: Iterable[Trial]) -> list[bytes]:
    """Returns trials as lines of JSON; fields are in the order of declaration, which is faster."""
    return _fast_encoder.encode_lines([_TrialRecord(SCHEMA, trial) for trial in trials]).splitlines()


def dump_journal(trials: Sequence[Trial]) -> bytes:
    """Returns trials that are kept together as one record."""
    return _fast_encoder.encode(_JournalRecord(SCHEMA, trials))


def load_journal(data: bytes | str) -> Sequence[Trial]:
    """Returns the trials in `data`."""
    return _record(data, _JournalRecord).trials


def load_trial(data: bytes | str) -> Trial:
    """Returns the trial in `data`."""
    return _record(data, _TrialRecord).trial


def dump_key(key: Key) -> bytes:
    """Returns `key` as one line of canonical JSON."""
    return encode(_KeyRecord(SCHEMA, key))


def load_key(data: bytes | str) -> Key:
    """Returns the key in `data`."""
    return _record(data, _KeyRecord).key
