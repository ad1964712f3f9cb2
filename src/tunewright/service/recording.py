"""Routes that hosts use while they tune: trials, misses, leases, and entries of namespaces ("shelves" in paths)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.exceptions import HTTPException
from litestar.params import Parameter
from litestar.response import Stream
from litestar.types import ASGIApp

from tunewright.model.key import Key
from tunewright.model.trial import Trial
from tunewright.service.lookups import KernelFilter, require_printable
from tunewright.service.openapi import LinesOperation
from tunewright.service.responses import (
    NDJSON,
    ServiceRequest,
    compressed_response,
    context_of,
    json_response,
    lines_response,
    requires,
)
from tunewright.service.schemas import (
    NAME_PATTERN,
    ClaimRequest,
    ClearRequest,
    FetchRequest,
    KeepRequest,
    MissesRequest,
    ReleaseRequest,
    is_name,
    miss_problem,
    require_valid_key,
)
from tunewright.service.tokens import Scope
from tunewright.stores import serialization
from tunewright.stores.capabilities import KeepsNamespaces, RecordsMisses, SupportsLeases

NamespaceName = Annotated[str, Parameter(min_length=1, max_length=1000, pattern=NAME_PATTERN)]

MAX_TRIALS = 100_000
MAX_LINE_BYTES = 1 << 20

_CAPABILITY_NAMES: dict[type, str] = {RecordsMisses: "misses", SupportsLeases: "leases", KeepsNamespaces: "namespaces"}


@post(
    "/trials",
    status_code=200,
    operation_class=LinesOperation,
    **requires(Scope.RECORD),
    summary="Append trials to the journal of a key",
)
async def record_trials(request: ServiceRequest) -> ASGIApp:
    """Records lines of JSON: first a key, then its trials. Either all are stored or none."""
    key: Key | None = None
    trials: list[Trial] = []
    async for line in _lines(request.stream()):
        if key is None:
            key = require_valid_key(serialization.load_key(line))
        else:
            trials.append(serialization.load_trial(line))
        if len(trials) > MAX_TRIALS:
            raise HTTPException(status_code=413, detail=f"more than {MAX_TRIALS:,} trials; send smaller batches")
    if key is None:
        raise HTTPException(status_code=400, detail="the body is empty; its first line must be the record of a key")
    context = context_of(request)
    await context.run(context.storage.primary.record, key, trials)
    context.metrics.trials.inc(len(trials))
    return json_response({"recorded": len(trials)})


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the lines of a body as it arrives."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > MAX_LINE_BYTES:
            raise HTTPException(status_code=413, detail=f"a line has at most {MAX_LINE_BYTES:,} bytes")
    if rest:
        yield rest


def _require_capability(request: ServiceRequest, capability: type) -> Any:
    """Returns the primary store; raises status 501 if it lacks a capability."""
    store = context_of(request).storage.primary
    if not isinstance(store, capability):
        name = _CAPABILITY_NAMES[capability]
        raise HTTPException(status_code=501, detail=f"the store of this service does not support {name}")
    return store


@get("/untuned", media_type=NDJSON, **requires(Scope.READ), summary="Keys without a decision, most seconds first")
async def list_misses(request: ServiceRequest, kernel: KernelFilter = None) -> Stream:
    """Returns misses, one per line."""
    store, name = _require_capability(request, RecordsMisses), require_printable(kernel)
    return await lines_response(request, lambda: map(serialization.encode, store.misses(name)))


@post("/untuned", status_code=200, **requires(Scope.RECORD, MissesRequest), summary="Add calls and seconds of misses")
async def add_misses(request: ServiceRequest, data: MissesRequest) -> ASGIApp:
    """Adds misses, and returns their number."""
    store = _require_capability(request, RecordsMisses)
    for miss in data.wants:
        if problem := miss_problem(miss):
            raise HTTPException(status_code=400, detail=problem)
    await context_of(request).run(store.record_misses, data.wants)
    return json_response({"added": len(data.wants)})


@post("/leases/claim", status_code=200, **requires(Scope.RECORD, ClaimRequest), summary="Take a lease, or renew it")
async def claim_lease(request: ServiceRequest, data: ClaimRequest) -> ASGIApp:
    """Returns whether the owner holds the lease now; false while another owner does."""
    store = _require_capability(request, SupportsLeases)
    name, owner = _require_name(data.name), _require_name(data.owner)
    return json_response({"held": await context_of(request).run(store.claim, name, owner, data.seconds)})


@post("/leases/release", status_code=200, **requires(Scope.RECORD, ReleaseRequest), summary="Give a lease back")
async def release_lease(request: ServiceRequest, data: ReleaseRequest) -> ASGIApp:
    """Releases a lease; does nothing if another owner holds it."""
    store = _require_capability(request, SupportsLeases)
    await context_of(request).run(store.release, _require_name(data.name), _require_name(data.owner))
    return json_response({})


@post("/shelves/fetch", status_code=200, **requires(Scope.READ, FetchRequest), summary="Entries of a shelf, by name")
async def fetch_entries(request: ServiceRequest, data: FetchRequest) -> ASGIApp:
    """Returns the entries that exist and have not expired, in base64."""
    store = _require_capability(request, KeepsNamespaces)
    namespace, names = _require_name(data.shelf), [_require_name(name) for name in data.names]
    entries = await context_of(request).run(store.fetch, namespace, names)
    return compressed_response(request, msgspec.json.encode({"found": entries}))


@post("/shelves/keep", status_code=200, **requires(Scope.RECORD, KeepRequest), summary="Keep an entry on a shelf")
async def keep_entry(request: ServiceRequest, data: KeepRequest) -> ASGIApp:
    """Returns the entry that is stored afterwards, in base64."""
    store = _require_capability(request, KeepsNamespaces)
    namespace, name = _require_name(data.shelf), _require_name(data.name)
    stored = await context_of(request).run(
        lambda: store.keep(namespace, name, data.body, seconds=data.seconds, replace=data.replace)
    )
    return json_response({"standing": stored})


@get("/shelves", media_type=NDJSON, **requires(Scope.READ), summary="All entries of a shelf, oldest first")
async def list_entries(request: ServiceRequest, shelf: NamespaceName) -> Stream:
    """Returns entries, one per line, in base64."""
    store, namespace = _require_capability(request, KeepsNamespaces), _require_name(shelf)
    return await lines_response(request, lambda: map(msgspec.json.encode, store.entries(namespace)))


@post("/shelves/clear", status_code=200, **requires(Scope.RECORD, ClearRequest), summary="Drop old entries of a shelf")
async def clear_entries(request: ServiceRequest, data: ClearRequest) -> ASGIApp:
    """Returns how many entries were dropped."""
    store, namespace = _require_capability(request, KeepsNamespaces), _require_name(data.shelf)
    return json_response({"gone": await context_of(request).run(lambda: store.clear(namespace, keep=data.most))})


def _require_name(text: str) -> str:
    if not is_name(text):
        raise HTTPException(
            status_code=400, detail="a name must consist of printable characters and not begin with service:"
        )
    return text
