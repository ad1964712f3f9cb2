"""Publication of decisions: with a signature if required, and in one transaction with its entry in the audit log."""

from __future__ import annotations

import time
from hashlib import sha256
from threading import Lock
from typing import Any

import msgspec
from litestar import get, post
from litestar.exceptions import HTTPException
from litestar.response import Stream
from litestar.types import ASGIApp

from tunewright.errors import BundleError, StoreError
from tunewright.model.decision import Decision, Tier
from tunewright.service.audit_log import AUDIT_LOG, AuditRecord, ChainEnd, all_bodies, append, find_end
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
from tunewright.stores import namespaces, serialization

MAX_ATTEMPTS = 100
"""How often a publication is tried anew because another process published in between."""

USED_SIGNATURES = namespaces.USED_SIGNATURES.name
"""The namespace of the store that holds the signatures of decisions that were published."""


class Publisher:
    """Publishes decisions one at a time in this process; replacements are exclusive among all processes."""

    def __init__(self, storage: ServiceStorage) -> None:
        self._storage, self._lock = storage, Lock()
        self._end: ChainEnd | None = None  # of the audit log, as this process knows it

    def publish(
        self, decision: Decision, over: str | None, origin: dict[str, str], signature: str = ""
    ) -> tuple[Decision, AuditRecord | None]:
        """Publishes a decision; returns the one that is current afterwards, and its audit record.

        The record is written with the decision or not at all. There is none if nothing changed. A signature is good for
        one publication: after a rollback it must not bring back what was withdrawn.
        """
        with self._lock:
            for _ in range(MAX_ATTEMPTS):
                before = self._current(decision.key.digest)
                if signature and before != decision:
                    self._require_unused(signature)
                if before is not None and not _replaces(decision, over, before):
                    self._storage.update_caches(before)
                    return before, None
                record, entry = append(_audit_record(decision, before, origin), self._find_end())
                if self._storage.put_logged(decision, before, entry):
                    self._end = ChainEnd(record.number, record.entry)
                    if signature:
                        self._storage.primary.keep(USED_SIGNATURES, _signature_name(signature), b"1")
                    return decision, record
                self._end = None
        raise StoreError("other processes keep publishing; try again in a moment")

    def _require_unused(self, signature: str) -> None:
        name = _signature_name(signature)
        if name in self._storage.primary.fetch(USED_SIGNATURES, [name]):
            raise HTTPException(
                status_code=403,
                detail="this signed decision was published before and has been replaced since; to bring it back, "
                "use `tunewright store rollback` on the store of the service",
            )

    def _find_end(self) -> ChainEnd:
        return find_end(self._storage.primary.last_entry(AUDIT_LOG)) if self._end is None else self._end

    def _current(self, digest: str) -> Decision | None:
        key = key_from_digest(digest)
        decision = self._storage.primary.get(key)
        return None if decision is None else by_digest({key: decision}).get(digest)


def _replaces(decision: Decision, over: str | None, before: Decision) -> bool:
    """Returns whether a decision replaces the one before: they differ, and `over` is the tag of that one."""
    return over is not None and before != decision and record_tag(serialization.dump_decision(before)) == over


def _audit_record(decision: Decision, before: Decision | None, origin: dict[str, str]) -> AuditRecord:
    return AuditRecord(
        at=time.time(),
        digest=decision.key.digest,
        kernel=decision.key.kernel,
        before=None if before is None else before.config.plain(),
        asked=decision.config.plain(),
        after=decision.config.plain(),
        stands=True,
        token=origin["token"],
        request=origin["request"],
        signer=origin.get("signer", ""),
    )


def _signature_name(signature: str) -> str:
    return sha256(signature.encode()).hexdigest()


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
        signature = data.signature if context.signers else ""
        publisher = request.app.state.publisher
        current, record = await context.run(publisher.publish, decision, data.over, origin, signature)
    finally:
        context.record_cache.invalidate([decision.key.digest])
    stands = current == decision
    context.metrics.publishes.labels("stands" if stands else "another stands").inc()
    if record is not None:
        request.app.state.log.audit(msgspec.to_builtins(record))
    accepted = b"true" if stands else b"false"
    return raw_response(
        b'{"stands":%s,"standing":%s}' % (accepted, serialization.dump_decision(current)),
        200 if stands or data.over is None else 409,
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
    return await lines_response(request, lambda: all_bodies(store))
