"""Publishing: a decision comes to stand for its key, once, signed if that is asked for, and written down."""

from __future__ import annotations

import secrets
import time
from threading import Lock
from typing import Any

import msgspec
from litestar import get, post
from litestar.exceptions import HTTPException
from litestar.response import Stream
from litestar.types import ASGIApp

from tunewright.errors import BundleError, StoreError
from tunewright.model.decision import Decision, Tier
from tunewright.service.answering import NDJSON, Asking, bare, desk_of, listed, needs, tag
from tunewright.service.archive import Archive, key_of, named
from tunewright.service.asking import MOST_RECORD, Publication, checked
from tunewright.service.auditing import AUDIT, Noted
from tunewright.service.tokens import Scope, Token
from tunewright.sharing import wire
from tunewright.sharing.offers import Leases

MOST_AUDITED = 100_000
EVERY = 1000

_LEASE_SECONDS, _PATIENCE = 10.0, 3.0


class Press:
    """Publishes decisions, one at a time in this process; what replaces another is also alone among processes."""

    def __init__(self, archive: Archive) -> None:
        self._archive, self._lock, self._count = archive, Lock(), 0

    def publish(self, decision: Decision, over: str | None, who: dict[str, str]) -> tuple[Decision, Noted]:
        """The decision that stands afterwards, and what is written down of it."""
        with self._lock:
            before = self._standing(decision.key.digest)
            standing = self._put(decision, over, before)
            noted = Noted(
                at=time.time(),
                digest=decision.key.digest,
                kernel=decision.key.kernel,
                before=None if before is None else before.config.plain(),
                asked=decision.config.plain(),
                after=standing.config.plain(),
                stands=standing == decision,
                **who,
            )
            self._archive.truth.keep(AUDIT, f"{time.time_ns():020d}-{secrets.token_hex(4)}", wire.encode(noted))
            self._count += 1
            if self._count % EVERY == 0:
                self._archive.truth.clear(AUDIT, most=MOST_AUDITED)
        return standing, noted

    def _put(self, decision: Decision, over: str | None, before: Decision | None) -> Decision:
        if over is None:
            return self._archive.put(decision, replace=False)
        if not isinstance(self._archive.truth, Leases):
            return self._replaced(decision, over, before)
        name, owner = f"service:publish:{decision.key.digest}", secrets.token_hex(8)
        until = time.monotonic() + _PATIENCE
        while not self._archive.truth.claim(name, owner, _LEASE_SECONDS):
            if time.monotonic() > until:
                raise StoreError("another publishes for this key; try again in a moment")
            time.sleep(0.02)
        try:
            return self._replaced(decision, over, self._standing(decision.key.digest))
        finally:
            self._archive.truth.release(name, owner)

    def _replaced(self, decision: Decision, over: str, before: Decision | None) -> Decision:
        """What stands after `decision` was to take the place of the record `over`, which may not stand any more."""
        if before is not None and before != decision and tag(wire.dump_decision(before)) != over:
            return before
        return self._archive.put(decision, replace=True)

    def _standing(self, digest: str) -> Decision | None:
        key = key_of(digest)
        found = self._archive.truth.get(key)
        return None if found is None else named({key: found}).get(digest)


@post("/decisions", status_code=200, **needs(Scope.PUBLISH, Publication), summary="Publish a decision")
async def publish(request: Asking, data: Publication) -> ASGIApp:
    """The record that stands afterwards: the one sent if there was none, or if `over` names what stood; else that."""
    desk, state = desk_of(request), request.scope["state"]
    token: Token = state["token"]
    decision = _read(data.decision)
    who = {"token": token.id, "request": state["request"]}
    if desk.signers:
        who["signer"] = _signer(desk.signers, decision, data)
    try:
        standing, noted = await desk.call(request.app.state.press.publish, decision, data.over, who)
    finally:
        desk.warm.change([decision.key.digest])
    stands = noted.stands
    desk.meters.publishes.labels("stands" if stands else "another stands").inc()
    request.app.state.log.audit(msgspec.to_builtins(noted))
    return bare(
        b'{"stands":%s,"standing":%s}' % (b"true" if stands else b"false", wire.dump_decision(standing)),
        200 if stands or data.over is None else 409,
    )


def _read(given: dict[str, Any]) -> Decision:
    """The decision in a publication; an HTTPException if it may not be kept."""
    record = msgspec.json.encode(given)
    if len(record) > MOST_RECORD:
        raise HTTPException(status_code=413, detail=f"a record has at most {MOST_RECORD:,} bytes")
    decision = wire.load_decision(record)
    checked(decision.key)
    if decision.tier is not Tier.EXACT:
        raise HTTPException(status_code=400, detail="only decisions for their own keys are published")
    return decision


def _signer(signers: dict[bytes, str], decision: Decision, data: Publication) -> str:
    """Who vouches for a decision; an HTTPException if nobody does whom we trust."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    try:
        public = signing.voucher(data.signature, wire.dump_decision(decision), data.over or "")
    except BundleError as error:
        raise HTTPException(status_code=403, detail=str(error)) from error
    if public not in signers:
        raise HTTPException(status_code=403, detail="it is signed by somebody who is not on the list of signers")
    return signers[public]


@get("/audit", media_type=NDJSON, **needs(Scope.ADMIN), summary="Who published what, and in the place of what")
async def audit(request: Asking) -> Stream:
    """Publications, oldest first, a line each."""
    truth = desk_of(request).archive.truth
    return await listed(request, lambda: (body for _, body in truth.entries(AUDIT)))
