"""Routes that read: decisions by digest, in batches, by key with fallback, related ones, histories, keys and trials."""

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
from tunewright.service.cache import RECORD_OFFSET
from tunewright.service.context import RequestContext
from tunewright.service.responses import (
    NDJSON,
    ServiceRequest,
    compressed_response,
    context_of,
    json_response,
    lines_response,
    raw_response,
    requires,
)
from tunewright.service.schemas import (
    PRINTABLE_PATTERN,
    LookupRequest,
    NearestRequest,
    RelatedRequest,
    is_digest,
    is_printable,
    require_valid_key,
)
from tunewright.service.storage import key_from_digest
from tunewright.service.tokens import Scope
from tunewright.spaces.config import Config
from tunewright.stores import fallback, serialization
from tunewright.stores.capabilities import KeepsRevisions

KernelFilter = Annotated[str | None, Parameter(min_length=1, max_length=1000, pattern=PRINTABLE_PATTERN)]


class _AnySpace:
    """A space that contains every config: only the client knows its space, and checks the answer."""

    def __contains__(self, config: object) -> bool:
        return True


_ANY_SPACE: Any = _AnySpace()


def require_digest(digest: str) -> str:
    """Returns `digest`; raises status 404 if it is not a digest."""
    if not is_digest(digest):
        raise HTTPException(status_code=404, detail="a digest has 64 hexadecimal digits")
    return digest


@get("/decisions/{digest:str}", **requires(Scope.READ), summary="The decision with that key")
async def get_decision(request: ServiceRequest, digest: str) -> ASGIApp:
    """Returns the record of a decision, as it was published."""
    context = context_of(request)
    if (body := context.record_cache.get(digest)) is not None:
        context.metrics.warm.inc()
        return raw_response(body)
    fragment = (await context.fetch_records([require_digest(digest)])).get(digest)
    if fragment is None:
        return json_response({"error": "no decision is published for this key"}, 404)
    return raw_response(fragment[RECORD_OFFSET:])


@post("/decisions/lookup", status_code=200, **requires(Scope.READ), summary="The decisions with those keys")
async def lookup_decisions(request: ServiceRequest, data: LookupRequest) -> ASGIApp:
    """Returns the records that exist, by digest."""
    context = context_of(request)
    fragments, missing = context.record_cache.get_many(data.digests)
    context.metrics.warm.inc(len(fragments))
    if missing:
        fragments |= await context.fetch_records([digest for digest in missing if is_digest(digest)])
    return compressed_response(request, b'{"found":{%s}}' % b",".join(fragments.values()))


@post(
    "/decisions/nearest",
    status_code=200,
    **requires(Scope.READ, NearestRequest),
    summary="The nearest answers to keys, with tiers",
)
async def nearest_decisions(request: ServiceRequest, data: NearestRequest) -> ASGIApp:
    """Returns for each key the nearest decision and its tier, or null. The client checks whether the config fits."""
    context = context_of(request)
    decisions = await context.run(_find_nearest, context, data)
    for decision in decisions:
        context.metrics.tiers.labels(str(decision.tier) if decision else str(Tier.DEFAULT)).inc()
    answers = (b"null" if decision is None else _with_tier(decision) for decision in decisions)
    return compressed_response(request, b'{"answers":[%s]}' % b",".join(answers))


def _with_tier(decision: Decision) -> bytes:
    record = serialization.dump_decision(decision.replace(tier=Tier.EXACT))
    return b'{"tier":%s,"decision":%s}' % (serialization.encode(str(decision.tier)), record)


def _find_nearest(context: RequestContext, data: NearestRequest) -> list[Decision | None]:
    store = fallback.CachedLookups(context.storage.primary)
    keys = [(require_valid_key(query.key), query.exact and require_valid_key(query.exact)) for query in data.questions]
    problems = [Problem(key, _ANY_SPACE, Config(), exact=exact) for key, exact in keys]
    return [
        fallback.find_decision(store, problem, context.config.aliases, allow_similar=data.like) for problem in problems
    ]


@post(
    "/decisions/relatives",
    status_code=200,
    media_type=NDJSON,
    **requires(Scope.READ, RelatedRequest),
    summary="Decisions of related keys",
)
async def related_decisions(request: ServiceRequest, data: RelatedRequest) -> Stream:
    """Returns decisions whose keys differ only in sizes and in the device within one architecture, one per line."""
    storage, key = context_of(request).storage, require_valid_key(data.key)
    return await lines_response(request, lambda: map(serialization.dump_decision, storage.relatives(key, data.most)))


@get("/decisions", media_type=NDJSON, **requires(Scope.READ), summary="All decisions, or those of one kernel")
async def list_decisions(request: ServiceRequest, kernel: KernelFilter = None) -> Stream:
    """Returns decisions, one per line; the last line has their count."""
    store, name = context_of(request).storage.primary, require_printable(kernel)
    return await lines_response(request, lambda: map(serialization.dump_decision, store.decisions(name)))


@get("/decisions/{digest:str}/history", **requires(Scope.READ), summary="The revisions of that key, oldest first")
async def decision_history(request: ServiceRequest, digest: str) -> ASGIApp:
    """Returns every decision that was current for a key, with its number and since when."""
    context, key = context_of(request), key_from_digest(require_digest(digest))
    store = context.storage.primary
    revisions = await context.run(store.history, key) if isinstance(store, KeepsRevisions) else ()
    records = [
        b'{"number":%d,"since":%s,"decision":%s}'
        % (
            revision.number,
            serialization.encode(float(revision.since)),
            serialization.dump_decision(revision.decision),
        )
        for revision in revisions
    ]
    return compressed_response(request, b'{"generations":[%s]}' % b",".join(records))


@get("/keys", media_type=NDJSON, **requires(Scope.READ), summary="Keys that have a decision or a trial")
async def list_keys(request: ServiceRequest, kernel: KernelFilter = None) -> Stream:
    """Returns keys, one per line."""
    store, name = context_of(request).storage.primary, require_printable(kernel)
    return await lines_response(request, lambda: map(serialization.dump_key, store.keys(name)))


@get("/trials/{digest:str}", media_type=NDJSON, **requires(Scope.READ), summary="The journal of that key")
async def list_trials(request: ServiceRequest, digest: str) -> Stream:
    """Returns the trials of a key in the order recorded, one per line."""
    store, key = context_of(request).storage.primary, key_from_digest(require_digest(digest))
    return await lines_response(request, lambda: map(serialization.dump_trial, store.trials(key)))


@get("/devices", **requires(Scope.READ), summary="Devices that have a decision or a trial")
async def list_devices(request: ServiceRequest) -> ASGIApp:
    """Returns each device with the number of its keys."""
    context = context_of(request)
    return raw_response(await context.run(_count_keys, context))


def _count_keys(context: RequestContext) -> bytes:
    counts: dict[bytes, int] = {}
    keys: Iterator[Key] = context.storage.primary.keys(None)
    for key in keys:
        device = serialization.encode(key.device)
        counts[device] = counts.get(device, 0) + 1
    return b'{"devices":[%s]}' % b",".join(b'{"device":%s,"keys":%d}' % pair for pair in sorted(counts.items()))


def require_printable(name: str | None) -> str | None:
    """Returns the name of a kernel; raises status 400 if no kernel can have it."""
    if name is not None and not is_printable(name):
        raise HTTPException(status_code=400, detail="the name of a kernel must consist of printable characters")
    return name
