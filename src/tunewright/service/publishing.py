"""Publication of decisions: atomically, with a signature if required, and recorded in the audit log."""

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
from tunewright.service.audit_log import AUDIT_NAMESPACE, AuditRecord
from tunewright.service.responses import (
    NDJSON,
    ServiceRequest,
    context_of,
    lines_response,
    raw_response,
    record_tag,
    requires,
)
from tunewright.service.schemas import MAX_RECORD_BYTES, PublishRequest, require_valid_key
from tunewright.service.storage import ServiceStorage, by_digest, key_from_digest
from tunewright.service.tokens import Scope, Token
from tunewright.stores import serialization
from tunewright.stores.capabilities import SupportsLeases

MAX_AUDIT_RECORDS = 100_000
TRIM_INTERVAL = 1000
"""Publications between two trims of the audit log."""

_LEASE_SECONDS, _MAX_WAIT_SECONDS = 10.0, 3.0


class Publisher:
    """Publishes decisions one at a time in this process; replacements are exclusive among all processes."""

    def __init__(self, storage: ServiceStorage) -> None:
        self._storage, self._lock, self._count = storage, Lock(), 0

    def publish(self, decision: Decision, over: str | None, origin: dict[str, str]) -> tuple[Decision, AuditRecord]:
        """Publishes a decision; returns the one that is current afterwards, and its audit record."""
        with self._lock:
            before = self._current(decision.key.digest)
            current = self._put(decision, over, before)
            record = AuditRecord(
                at=time.time(),
                digest=decision.key.digest,
                kernel=decision.key.kernel,
                before=None if before is None else before.config.plain(),
                asked=decision.config.plain(),
                after=current.config.plain(),
                stands=current == decision,
                **origin,
            )
            name = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
            self._storage.primary.keep(AUDIT_NAMESPACE, name, serialization.encode(record))
            self._count += 1
            if self._count % TRIM_INTERVAL == 0:
                self._storage.primary.clear(AUDIT_NAMESPACE, keep=MAX_AUDIT_RECORDS)
        return current, record

    def _put(self, decision: Decision, over: str | None, before: Decision | None) -> Decision:
        if over is None:
            return self._storage.put(decision, replace=False)
        store = self._storage.primary
        if not isinstance(store, SupportsLeases):
            return self._replace(decision, over, before)
        name, owner = f"service:publish:{decision.key.digest}", secrets.token_hex(8)
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while not store.claim(name, owner, _LEASE_SECONDS):
            if time.monotonic() > deadline:
                raise StoreError("another process is publishing for this key; try again in a moment")
            time.sleep(0.02)
        try:
            return self._replace(decision, over, self._current(decision.key.digest))
        finally:
            store.release(name, owner)

    def _replace(self, decision: Decision, over: str, before: Decision | None) -> Decision:
        """Replaces the record with the tag `over` if it is still current; returns the decision that is current."""
        if before is not None and before != decision and record_tag(serialization.dump_decision(before)) != over:
            return before
        return self._storage.put(decision, replace=True)

    def _current(self, digest: str) -> Decision | None:
        key = key_from_digest(digest)
        decision = self._storage.primary.get(key)
        return None if decision is None else by_digest({key: decision}).get(digest)


@post("/decisions", status_code=200, **requires(Scope.PUBLISH, PublishRequest), summary="Publish a decision")
async def publish(request: ServiceRequest, data: PublishRequest) -> ASGIApp:
    """Publishes a decision if the key has none, or if `over` is the current one; returns the one that is current."""
    context, state = context_of(request), request.scope["state"]
    token: Token = state["token"]
    decision = _read_decision(data.decision)
    origin = {"token": token.id, "request": state["request"]}
    if context.signers:
        origin["signer"] = _signer(context.signers, decision, data)
    try:
        current, record = await context.run(request.app.state.publisher.publish, decision, data.over, origin)
    finally:
        context.record_cache.invalidate([decision.key.digest])
    context.metrics.publishes.labels("stands" if record.stands else "another stands").inc()
    request.app.state.log.audit(msgspec.to_builtins(record))
    accepted = b"true" if record.stands else b"false"
    return raw_response(
        b'{"stands":%s,"standing":%s}' % (accepted, serialization.dump_decision(current)),
        200 if record.stands or data.over is None else 409,
    )


def _read_decision(plain: dict[str, Any]) -> Decision:
    """Returns the decision in a request; raises HTTPException if it may not be stored."""
    record = msgspec.json.encode(plain)
    if len(record) > MAX_RECORD_BYTES:
        raise HTTPException(status_code=413, detail=f"a record has at most {MAX_RECORD_BYTES:,} bytes")
    decision = serialization.load_decision(record)
    require_valid_key(decision.key)
    if decision.tier is not Tier.EXACT:
        raise HTTPException(status_code=400, detail="only a decision for exactly its key can be published")
    return decision


def _signer(signers: dict[bytes, str], decision: Decision, data: PublishRequest) -> str:
    """Returns the signer of a decision; raises HTTPException if it is not a trusted one."""
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    try:
        public = signing.verify_decision_signer(data.signature, serialization.dump_decision(decision), data.over or "")
    except BundleError as error:
        raise HTTPException(status_code=403, detail=str(error)) from error
    if public not in signers:
        raise HTTPException(status_code=403, detail="the signing key is not in the list of signers")
    return signers[public]


@get("/audit", media_type=NDJSON, **requires(Scope.ADMIN), summary="Who published and replaced which decisions")
async def list_audit(request: ServiceRequest) -> Stream:
    """Returns publications, oldest first, one per line."""
    store = context_of(request).storage.primary
    return await lines_response(request, lambda: (body for _, body in store.entries(AUDIT_NAMESPACE)))
