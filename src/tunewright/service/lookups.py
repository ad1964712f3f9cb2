"""Lookups: what is decided: by digest, by many, by key with tiers, by kin, by kernel, and what was before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from litestar import get, post
from litestar.exceptions import HTTPException
from litestar.params import Parameter
from litestar.response import Stream
from litestar.types import ASGIApp

from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.key import Key
from tunewright.service.answering import NDJSON, Asking, bare, desk_of, listed, needs, packed, plain
from tunewright.service.archive import key_of
from tunewright.service.asking import NAMED, Kin, Lookup, Nearest, checked, is_digest, is_printed
from tunewright.service.desk import Desk
from tunewright.service.tokens import Scope
from tunewright.service.warm import NAME
from tunewright.sharing import nearby, wire
from tunewright.sharing.offers import Generations
from tunewright.spaces.config import Config

Kernel = Annotated[str | None, Parameter(min_length=1, max_length=1000, pattern=NAMED)]


class _Anything:
    """A space that every config is in: only whoever asks knows theirs, and looks at the answer again."""

    def __contains__(self, config: object) -> bool:
        return True


_ANYTHING: Any = _Anything()


def sound(digest: str) -> str:
    """A digest; anything else is nowhere to be found."""
    if not is_digest(digest):
        raise HTTPException(status_code=404, detail="a digest has 64 hexadecimal digits")
    return digest


@get("/decisions/{digest:str}", **needs(Scope.READ), summary="The decision with that key")
async def one(request: Asking, digest: str) -> ASGIApp:
    """The record of one decision, as it was published."""
    desk = desk_of(request)
    if (body := desk.warm.get(digest)) is not None:
        desk.meters.warm.inc()
        return bare(body)
    part = (await desk.parts([sound(digest)])).get(digest)
    return bare(part[NAME:]) if part is not None else plain({"error": "nothing is decided for that key"}, 404)


@post("/decisions/lookup", status_code=200, **needs(Scope.READ), summary="The decisions with those keys")
async def many(request: Asking, data: Lookup) -> ASGIApp:
    """The records there are, by digest."""
    desk = desk_of(request)
    found, missing = desk.warm.get_many(data.digests)
    desk.meters.warm.inc(len(found))
    if missing:
        found |= await desk.parts([digest for digest in missing if is_digest(digest)])
    return packed(request, b'{"found":{%s}}' % b",".join(found.values()))


@post(
    "/decisions/nearest",
    status_code=200,
    **needs(Scope.READ, Nearest),
    summary="The nearest answers to keys, with tiers",
)
async def nearest(request: Asking, data: Nearest) -> ASGIApp:
    """For each key the nearest decision and its tier, or null; whether its config fits is for you to see."""
    desk = desk_of(request)
    answers = await desk.call(_answers, desk, data)
    for decision in answers:
        desk.meters.tiers.labels(str(decision.tier) if decision else str(Tier.DEFAULT)).inc()
    return packed(request, b'{"answers":[%s]}' % b",".join(b"null" if one is None else _tiered(one) for one in answers))


def _tiered(decision: Decision) -> bytes:
    record = wire.dump_decision(decision.having(tier=Tier.EXACT))
    return b'{"tier":%s,"decision":%s}' % (wire.encode(str(decision.tier)), record)


def _answers(desk: Desk, asked: Nearest) -> list[Decision | None]:
    store = nearby.Settled(desk.archive.truth)
    asked_for = [(checked(one.key), one.exact and checked(one.exact)) for one in asked.questions]
    problems = [Problem(key, _ANYTHING, Config(), exact=exact) for key, exact in asked_for]
    return [nearby.answered(store, problem, desk.serving.aliases, like=asked.like) for problem in problems]


@post(
    "/decisions/relatives",
    status_code=200,
    media_type=NDJSON,
    **needs(Scope.READ, Kin),
    summary="Decisions of the same kin",
)
async def relatives(request: Asking, data: Kin) -> Stream:
    """Decisions whose keys differ at most in sizes and in which device of one architecture, a line each."""
    archive, key = desk_of(request).archive, checked(data.key)
    return await listed(request, lambda: map(wire.dump_decision, archive.relatives(key, data.most)))


@get("/decisions", media_type=NDJSON, **needs(Scope.READ), summary="All decisions, or those of one kernel")
async def every(request: Asking, kernel: Kernel = None) -> Stream:
    """Records, a line each; the last line says how many there were."""
    truth = desk_of(request).archive.truth
    return await listed(request, lambda: map(wire.dump_decision, truth.decisions(printed(kernel))))


@get("/decisions/{digest:str}/history", **needs(Scope.READ), summary="What stood for that key, oldest first")
async def history(request: Asking, digest: str) -> ASGIApp:
    """Every decision that stood, with its number and since when."""
    desk, key = desk_of(request), key_of(sound(digest))
    truth = desk.archive.truth
    stood = await desk.call(truth.history, key) if isinstance(truth, Generations) else ()
    said = [
        b'{"number":%d,"since":%s,"decision":%s}'
        % (one.number, wire.encode(float(one.since)), wire.dump_decision(one.decision))
        for one in stood
    ]
    return packed(request, b'{"generations":[%s]}' % b",".join(said))


@get("/keys", media_type=NDJSON, **needs(Scope.READ), summary="Keys that have a decision or a trial")
async def keys(request: Asking, kernel: Kernel = None) -> Stream:
    """Keys, a line each."""
    truth = desk_of(request).archive.truth
    return await listed(request, lambda: map(wire.dump_key, truth.keys(printed(kernel))))


@get("/trials/{digest:str}", media_type=NDJSON, **needs(Scope.READ), summary="The journal of that key")
async def trials(request: Asking, digest: str) -> Stream:
    """Trials in the order recorded, a line each."""
    truth, key = desk_of(request).archive.truth, key_of(sound(digest))
    return await listed(request, lambda: map(wire.dump_trial, truth.trials(key)))


@get("/devices", **needs(Scope.READ), summary="Devices that something is decided or tried for")
async def devices(request: Asking) -> ASGIApp:
    """Each device, with how many keys it has."""
    desk = desk_of(request)
    return bare(await desk.call(_devices, desk))


def _devices(desk: Desk) -> bytes:
    counts: dict[bytes, int] = {}
    every_key: Iterator[Key] = desk.archive.truth.keys(None)
    for key in every_key:
        device = wire.encode(key.device)
        counts[device] = counts.get(device, 0) + 1
    return b'{"devices":[%s]}' % b",".join(b'{"device":%s,"keys":%d}' % pair for pair in sorted(counts.items()))


def printed(name: str | None) -> str | None:
    """The name of a kernel as it may be asked for; one that no kernel has is refused."""
    if name is not None and not is_printed(name):
        raise HTTPException(status_code=400, detail="the name of a kernel has characters that can be printed")
    return name
