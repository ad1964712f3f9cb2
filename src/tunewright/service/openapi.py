"""The OpenAPI description of a service, as strict as the validation of its requests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema
from litestar.types import Method

from tunewright.service import schemas
from tunewright.service.responses import NDJSON, ErrorBody
from tunewright.stores.statistics import MissRecord

_BODIES = (
    *(schemas.LookupRequest, schemas.NearestRequest, schemas.RelatedRequest, schemas.PublishRequest),
    *(schemas.MissesRequest, schemas.ClaimRequest, schemas.ReleaseRequest),
    *(schemas.FetchRequest, schemas.KeepRequest, schemas.ClearRequest),
    ErrorBody,
)
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_STORABLE = {"pattern": schemas.STORABLE_PATTERN, "maxLength": schemas.MAX_TEXT}

_PUBLIC_NAMES = {
    "LookupRequest": "Lookup",
    "KeyQuery": "Question",
    "NearestRequest": "Nearest",
    "RelatedRequest": "Kin",
    "PublishRequest": "Publication",
    "MissesRequest": "Wanting",
    MissRecord.__name__: "Want",
    "ClaimRequest": "Claim",
    "ReleaseRequest": "Release",
    "FetchRequest": "Fetching",
    "KeepRequest": "Keeping",
    "ClearRequest": "Clearing",
    "ErrorBody": "Wrong",
}
"""Names of schemas in the published description, which clients may rely on, by name of the class."""

_OPERATION_NAMES = {
    "list_audit": "Audit",
    "list_bundles": "Every",
    "get_bundle": "One",
    "put_bundle": "Keep",
    "list_decisions": "Every",
    "lookup_decisions": "Many",
    "nearest_decisions": "Nearest",
    "related_decisions": "Relatives",
    "get_decision": "One",
    "decision_history": "History",
    "list_devices": "Devices",
    "list_keys": "Keys",
    "claim_lease": "Claim",
    "release_lease": "Release",
    "list_entries": "Entries",
    "clear_entries": "Clear",
    "fetch_entries": "Fetch",
    "keep_entry": "Keep",
    "record_trials": "Record",
    "list_trials": "Trials",
    "list_misses": "Wanted",
    "add_misses": "Want",
}
"""Last parts of published operation ids, which clients may rely on, by name of the handler."""


def operation_id(handler: HTTPRouteHandler, method: Method, path: list[Any]) -> str:
    """Returns the published id of an operation."""
    parts = [part if isinstance(part, str) else part.name for part in path]
    name = _OPERATION_NAMES.get(handler.handler_name, handler.handler_name)
    verb = method.title() if len(handler.http_methods) > 1 else ""
    return re.sub(r"[^A-Za-z0-9]", "", "".join(part.title() for part in parts) + verb + name.title())


class StrictOpenApi(JsonRenderPlugin):
    """Renders the framework's description with schemas by msgspec, which also describe items and extra fields."""

    def render(self, request: Any, openapi_schema: dict[str, Any]) -> bytes:
        """Returns the description as JSON."""
        components = openapi_schema["components"] | {"schemas": _body_schemas()}
        document = super().render(request, openapi_schema | {"components": components})
        return re.sub(rb"(?<=#/components/schemas/)\w+", lambda name: _public_name(name[0].decode()).encode(), document)


def _public_name(name: str) -> str:
    return _PUBLIC_NAMES.get(name, name)


def _body_schemas() -> dict[str, Any]:
    """Returns the schema of every body by its published name, with the limits that `schemas` checks."""
    _, components = msgspec.json.schema_components(_BODIES, ref_template="#/components/schemas/{name}")
    for name in ("Key", "Device", "Signature"):
        for part in components[name]["properties"].values():
            _limit(part)
    kernel_limits = {"pattern": schemas.PRINTABLE_PATTERN, "minLength": 1, "maxLength": 1000}
    components["Key"]["properties"]["kernel"] |= kernel_limits
    miss = components[MissRecord.__name__]["properties"]
    miss["calls"] |= {"minimum": 0, "maximum": schemas.MAX_CALLS}
    miss["seconds"] |= {"minimum": 0, "maximum": schemas.MAX_SECONDS}
    for name in ("target", "recipe"):
        miss[name] |= {"pattern": schemas.STORABLE_PATTERN, "maxLength": schemas.MAX_RECORD_BYTES}
    components["KeepRequest"]["properties"]["body"]["pattern"] = _BASE64
    return {_public_name(name): schema | {"title": _public_name(name)} for name, schema in components.items()}


def _limit(part: dict[str, Any]) -> None:
    """Adds limits to the schema of a part of a key."""
    if part.get("type") == "string":
        part.update(_STORABLE)
    elif part.get("type") == "integer":
        part.update({"minimum": -(1 << 63), "maximum": (1 << 63) - 1})
    elif part.get("type") == "array":
        _limit(part["items"])
    elif part.get("type") == "object":
        part["propertyNames"] = dict(_STORABLE)
        _limit(part["additionalProperties"])


def _text_body(media_type: str, description: str) -> RequestBody:
    text = Schema(type=OpenAPIType.STRING, min_length=1)
    content = {media_type: OpenAPIMediaType(schema=text)}
    return RequestBody(content=content, description=description, required=True)


@dataclass
class LinesOperation(Operation):
    """An operation whose body is read line by line as it arrives."""

    request_body: RequestBody | None = field(
        default_factory=lambda: _text_body(NDJSON, "The record of a key, then trials.")
    )


@dataclass
class BytesOperation(Operation):
    """An operation whose body is a bundle."""

    request_body: RequestBody | None = field(
        default_factory=lambda: _text_body("application/octet-stream", "The bytes of a bundle.")
    )
