"""Describing: what a service says of itself (OpenAPI), as strict as what it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIType, Operation, RequestBody, Schema

from tunewright.service import asking
from tunewright.service.answering import NDJSON, Wrong

_BODIES = (
    *(asking.Lookup, asking.Nearest, asking.Kin, asking.Publication, asking.Wanting, asking.Claim, asking.Release),
    *(asking.Fetching, asking.Keeping, asking.Clearing),
)
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_KEPT = {"pattern": asking.KEPT, "maxLength": asking.MOST_TEXT}


class Description(JsonRenderPlugin):
    """The framework's description, with the bodies as msgspec describes them: it knows of items and of extra fields."""

    def render(self, request: Any, openapi_schema: dict[str, Any]) -> bytes:
        """The whole of it as JSON."""
        parts = openapi_schema["components"] | {"schemas": _bodies()}
        return super().render(request, openapi_schema | {"components": parts})


def _bodies() -> dict[str, Any]:
    """Every body by its name, with what `asking` objects to beyond its type."""
    _, found = msgspec.json.schema_components((*_BODIES, Wrong), ref_template="#/components/schemas/{name}")
    for name in ("Key", "Device", "Signature"):
        for part in found[name]["properties"].values():
            _bound(part)
    found["Key"]["properties"]["kernel"] |= {"pattern": asking.NAMED, "minLength": 1, "maxLength": 1000}
    want = found["Want"]["properties"]
    want["calls"] |= {"minimum": 0, "maximum": asking.MOST_CALLS}
    want["seconds"] |= {"minimum": 0, "maximum": asking.MOST_SECONDS}
    for name in ("target", "recipe"):
        want[name] |= {"pattern": asking.KEPT, "maxLength": asking.MOST_RECORD}
    found["Keeping"]["properties"]["body"]["pattern"] = _BASE64
    return found


def _bound(part: dict[str, Any]) -> None:
    """Bound what a part of a key may be, and what is in it."""
    if part.get("type") == "string":
        part.update(_KEPT)
    elif part.get("type") == "integer":
        part.update({"minimum": -(1 << 63), "maximum": (1 << 63) - 1})
    elif part.get("type") == "array":
        _bound(part["items"])
    elif part.get("type") == "object":
        part["propertyNames"] = dict(_KEPT)
        _bound(part["additionalProperties"])


def _sent(kind: str, said: str) -> RequestBody:
    text = Schema(type=OpenAPIType.STRING, min_length=1)
    return RequestBody(content={kind: OpenAPIMediaType(schema=text)}, description=said, required=True)


@dataclass
class TakesLines(Operation):
    """A request whose body is read as it arrives, line by line."""

    request_body: RequestBody | None = field(default_factory=lambda: _sent(NDJSON, "The record of a key, then trials."))


@dataclass
class TakesBytes(Operation):
    """A request whose body is a bundle."""

    request_body: RequestBody | None = field(
        default_factory=lambda: _sent("application/octet-stream", "A bundle, as it is.")
    )
