"""Recording: what hosts bring and share while they tune: trials, wants, leases, shelves."""

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
from tunewright.service.answering import NDJSON, Asking, desk_of, listed, needs, packed, plain
from tunewright.service.asking import (
    NAME,
    Claim,
    Clearing,
    Fetching,
    Keeping,
    Release,
    Wanting,
    checked,
    is_name,
    unwanted,
)
from tunewright.service.describing import TakesLines
from tunewright.service.lookups import Kernel, printed
from tunewright.service.tokens import Scope
from tunewright.sharing import wire
from tunewright.sharing.offers import Leases, Shelves, Wants

Shelf = Annotated[str, Parameter(min_length=1, max_length=1000, pattern=NAME)]

MOST_TRIALS = 100_000
MOST_LINE = 1 << 20


@post(
    "/trials",
    status_code=200,
    operation_class=TakesLines,
    **needs(Scope.RECORD),
    summary="Append trials to the journal of a key",
)
async def record(request: Asking) -> ASGIApp:
    """Lines of JSON: the record of a key, then one of each trial. All of them are kept, or none."""
    key: Key | None = None
    trials: list[Trial] = []
    async for line in _lines(request.stream()):
        if key is None:
            key = checked(wire.load_key(line))
        else:
            trials.append(wire.load_trial(line))
        if len(trials) > MOST_TRIALS:
            raise HTTPException(status_code=413, detail=f"send at most {MOST_TRIALS:,} trials at once")
    if key is None:
        raise HTTPException(status_code=400, detail="the first line is the record of a key")
    desk = desk_of(request)
    await desk.call(desk.archive.truth.record, key, trials)
    desk.meters.trials.inc(len(trials))
    return plain({"recorded": len(trials)})


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a body, as it arrives."""
    rest = b""
    async for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if line:
                yield line
        if len(rest) > MOST_LINE:
            raise HTTPException(status_code=413, detail=f"a line has at most {MOST_LINE:,} bytes")
    if rest:
        yield rest


def _offered(request: Asking, offer: type) -> Any:
    """The record of truth, which makes that offer."""
    if not isinstance(truth := desk_of(request).archive.truth, offer):
        raise HTTPException(status_code=501, detail=f"the store behind this service has no {offer.__name__.lower()}")
    return truth


@get(
    "/untuned", media_type=NDJSON, **needs(Scope.READ), summary="What is called without a decision, most seconds first"
)
async def wanted(request: Asking, kernel: Kernel = None) -> Stream:
    """Wants, a line each."""
    truth = _offered(request, Wants)
    return await listed(request, lambda: map(wire.encode, truth.wanted(printed(kernel))))


@post("/untuned", status_code=200, **needs(Scope.RECORD, Wanting), summary="Add calls and seconds to what is untuned")
async def want(request: Asking, data: Wanting) -> ASGIApp:
    """How many were added."""
    truth = _offered(request, Wants)
    for one in data.wants:
        if wrong := unwanted(one):
            raise HTTPException(status_code=400, detail=wrong)
    await desk_of(request).call(truth.want, data.wants)
    return plain({"added": len(data.wants)})


@post("/leases/claim", status_code=200, **needs(Scope.RECORD, Claim), summary="Take a lease, or renew it")
async def claim(request: Asking, data: Claim) -> ASGIApp:
    """Whether it is held now; not while another owner holds it."""
    truth = _offered(request, Leases)
    held = await desk_of(request).call(truth.claim, _named(data.name), _named(data.owner), data.seconds)
    return plain({"held": held})


@post("/leases/release", status_code=200, **needs(Scope.RECORD, Release), summary="Give a lease back")
async def release(request: Asking, data: Release) -> ASGIApp:
    """Nothing, also if another owner holds it."""
    truth = _offered(request, Leases)
    await desk_of(request).call(truth.release, _named(data.name), _named(data.owner))
    return plain({})


@post("/shelves/fetch", status_code=200, **needs(Scope.READ, Fetching), summary="Entries of a shelf, by name")
async def fetch(request: Asking, data: Fetching) -> ASGIApp:
    """What there is and has not expired, in base64."""
    truth = _offered(request, Shelves)
    found = await desk_of(request).call(truth.fetch, _named(data.shelf), [_named(name) for name in data.names])
    return packed(request, msgspec.json.encode({"found": found}))


@post("/shelves/keep", status_code=200, **needs(Scope.RECORD, Keeping), summary="Keep an entry on a shelf")
async def keep(request: Asking, data: Keeping) -> ASGIApp:
    """What stands there afterwards, in base64."""
    truth, desk = _offered(request, Shelves), desk_of(request)
    shelf, name = _named(data.shelf), _named(data.name)
    standing = await desk.call(lambda: truth.keep(shelf, name, data.body, seconds=data.seconds, replace=data.replace))
    return plain({"standing": standing})


@get("/shelves", media_type=NDJSON, **needs(Scope.READ), summary="Everything on a shelf, oldest first")
async def entries(request: Asking, shelf: Shelf) -> Stream:
    """Entries, a line each, in base64."""
    truth, name = _offered(request, Shelves), _named(shelf)
    return await listed(request, lambda: map(msgspec.json.encode, truth.entries(name)))


@post("/shelves/clear", status_code=200, **needs(Scope.RECORD, Clearing), summary="Drop the oldest entries of a shelf")
async def clear(request: Asking, data: Clearing) -> ASGIApp:
    """How many went."""
    truth, shelf = _offered(request, Shelves), _named(data.shelf)
    return plain({"gone": await desk_of(request).call(lambda: truth.clear(shelf, most=data.most))})


def _named(text: str) -> str:
    if not is_name(text):
        raise HTTPException(
            status_code=400, detail="a name has characters that can be printed, and does not begin with service:"
        )
    return text
