"""Provenance: who tuned what, where, from which commit and by which races, as an in-toto statement in a bundle.

The statement is inside the bundle and under its signature, so its subjects are the parts of the bundle, not the file.
"""

from __future__ import annotations

import getpass
import platform
import subprocess
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tunewright.model.decision import Decision
from tunewright.stores import choice_digest
from tunewright.stores.bundle.build import Attachment
from tunewright.stores.bundle.statements import KIND
from tunewright.version import __version__

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://tunewright.github.io/tunewright/shipping/#provenance"
_GIT_SECONDS = 10.0


def make_statement(
    decisions: Sequence[Decision], attachments: Iterable[Attachment], by: str = "", source: Path | None = None
) -> Attachment:
    """Returns the statement for a bundle of these decisions and attachments, tuned from the checkout at `source`."""
    attached = sorted(attachments, key=lambda one: (one.kind, one.name))
    choice = choice_digest.digest((decision.key, decision.config) for decision in decisions)
    subjects = [{"name": "choice", "digest": {"sha256": choice}}]
    subjects += [_reference(one) for one in attached if one.kind == "build"]
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"kernels": sorted({decision.key.kernel for decision in decisions})},
                "internalParameters": {"devices": sorted({str(decision.key.device) for decision in decisions})},
                "resolvedDependencies": [
                    *_find_commit(source or Path.cwd()),
                    *(_reference(one) for one in attached if one.kind == "race"),
                ],
            },
            "runDetails": {
                "builder": {"id": _builder(by), "version": {"tunewright": __version__}},
                "metadata": _times(decisions),
            },
        },
    }
    body = msgspec.json.encode(statement)
    return Attachment(KIND, sha256(body).hexdigest(), body)


def _reference(attachment: Attachment) -> dict[str, Any]:
    digest = {"sha256": sha256(attachment.content).hexdigest()}
    return {"name": f"{attachment.kind}/{attachment.name}", "digest": digest}


def _builder(by: str) -> str:
    """Returns who and where, as an address: what was given, else the user and the host."""
    if by:
        return by
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # an id without a name
        user = "unknown"
    return f"ssh://{user}@{platform.node() or 'unknown'}"


def _times(decisions: Iterable[Decision]) -> dict[str, str]:
    """Returns when the first and the last decision was made: the same decisions make the same bytes."""
    times = sorted(decision.evidence.when for decision in decisions if decision.evidence and decision.evidence.when)
    return {"startedOn": times[0], "finishedOn": times[-1]} if times else {}


def _find_commit(folder: Path) -> list[dict[str, Any]]:
    """Returns the commit that is checked out in a folder, if there is one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return []
    remote = _git(folder, "config", "--get", "remote.origin.url")
    found: dict[str, Any] = {"uri": f"git+{_without_password(remote)}" if remote else "git", "digest": {}}
    found["digest"] = {"gitCommit": commit}
    if _git(folder, "status", "--porcelain", "--untracked-files=no"):
        found["annotations"] = {"dirty": True}
    return [found]


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark or scheme == "file":
        return (
            "ssh://" + url.replace(":", "/", 1) if "@" in url else "local"
        )  # a path of this machine tells others nothing
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _git(folder: Path, *arguments: str) -> str:
    """Returns what git says; nothing if it is missing or fails."""
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]  # a monitor would be run
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
