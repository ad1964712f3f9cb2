"""Statements of provenance in a bundle, read and summed up."""

from __future__ import annotations

from typing import Any

import msgspec

from tunewright.errors import BundleError
from tunewright.stores.bundle.store import BundleStore

KIND = "provenance"


def read_statements(store: BundleStore) -> list[dict[str, Any]]:
    """Returns the statements in a bundle: one, or those of all bundles that it was merged from."""
    names = sorted(name for kind, name in store.attachments if kind == KIND)
    bodies = [store.read_attachment(KIND, name) for name in names]
    try:
        return [msgspec.json.decode(body, type=dict[str, Any]) for body in bodies if body is not None]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BundleError(f"{store.path}: a statement of provenance cannot be read: {error}; build it again") from error


def summarize(statement: dict[str, Any]) -> str:
    """Returns who, where, when and from which commit, in one line; a signer may have written anything."""
    try:
        definition = statement["predicate"]["buildDefinition"]
        details = statement["predicate"]["runDetails"]
        dependencies = definition["resolvedDependencies"]
        commits = [one["digest"]["gitCommit"] for one in dependencies if "gitCommit" in one.get("digest", {})]
        races = sum(str(one.get("name", "")).startswith("race/") for one in dependencies)
        finished = details["metadata"].get("finishedOn", "an unknown time")
        changed = " with local changes" if any(one.get("annotations", {}).get("dirty") for one in dependencies) else ""
        commit = f"commit {commits[0][:12]}{changed}" if commits else "no commit"
        return f"by {details['builder']['id']}, until {finished}, from {commit}, {races} race transcripts"
    except (KeyError, TypeError, AttributeError, IndexError):
        return "a statement that is not SLSA provenance"
