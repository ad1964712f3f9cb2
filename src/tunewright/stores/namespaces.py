"""Namespaces: every kind of entry that is kept in a store, and whether `store gc` may remove it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Retention(StrEnum):
    """When records of a kind may be removed to bound the age or the size of a store."""

    NEVER = "never"  # nothing can replace them; whoever wrote them removes them
    ON_REQUEST = "on request"  # they can be made again, which costs time; removed only if the operator names the kind
    BY_AGE = "by age"  # removed when they are too old, or when the store is too large


class Namespace(NamedTuple):
    """A kind of entry. `name` is that of its namespace, or the beginning of the names if there are many.

    A namespace that is not declared here is never removed: nobody has said that it may be.
    """

    kind: str
    name: str
    retention: Retention
    why: str
    many: bool = False

    def named(self, name: str) -> str:
        """Returns the namespace of one function, campaign, ..., of a kind that has many."""
        return f"{self.name}{name}"

    @property
    def condition(self) -> str:
        """The entries of this kind, as SQL."""
        column = f"substr(shelf, 1, {len(self.name)})" if self.many else "shelf"
        return f"{column} = '{self.name}'"


TOKENS = Namespace("tokens", "service:tokens", Retention.NEVER, "without them nobody reaches the service")
AUDIT_LOG = Namespace("audit log", "service:audit log", Retention.NEVER, "old entries are exported, not removed")
UNCHAINED_LOG = Namespace("older audit log", "service:audit", Retention.NEVER, "versions before the chain wrote it")
AUDIT_EXPORTS = Namespace("audit exports", "service:audit exports", Retention.NEVER, "the chain goes on from them")
USED_SIGNATURES = Namespace("used signatures", "service:used signatures", Retention.NEVER, "each is good once")
BUNDLES = Namespace("bundles", "service:bundles", Retention.NEVER, "machines are pinned to them by their digest")
BUNDLE_LIST = Namespace("bundle list", "service:bundle list", Retention.NEVER, "it lists the bundles")
PENDING_WRITES = Namespace("unsent writes", "unsent", Retention.NEVER, "no other store has them yet")
REFUSED_WRITES = Namespace("refused writes", "refused", Retention.NEVER, "nobody has looked at them yet")
CAMPAIGNS = Namespace("campaigns", "campaign ", Retention.NEVER, "a campaign resumes by them", many=True)
SLOW_DEVICES = Namespace("slow devices", "quarantine ", Retention.NEVER, "a campaign avoids them", many=True)
REPORTS = Namespace("reports", "reports", Retention.NEVER, "somebody asked to keep them")
MEMO = Namespace("memo", "memo ", Retention.ON_REQUEST, "functions compute them again", many=True)
TRANSCRIPTS = Namespace("races", "races", Retention.ON_REQUEST, "they are the evidence of decisions")
TORCH_CACHE = Namespace("torch", "torch", Retention.BY_AGE, "torch compiles again")

NAMESPACES = (
    TOKENS,
    AUDIT_LOG,
    UNCHAINED_LOG,
    AUDIT_EXPORTS,
    USED_SIGNATURES,
    BUNDLES,
    BUNDLE_LIST,
    PENDING_WRITES,
    REFUSED_WRITES,
    CAMPAIGNS,
    SLOW_DEVICES,
    REPORTS,
    MEMO,
    TRANSCRIPTS,
    TORCH_CACHE,
)
"""Every kind that this project writes."""

ON_REQUEST = tuple(each.kind for each in NAMESPACES if each.retention is Retention.ON_REQUEST)
"""Kinds that an operator may name."""


def removable(requested: tuple[str, ...] = ()) -> list[Namespace]:
    """Returns the namespaces whose entries may be removed: those that go by age, and those that were asked for."""
    return [
        each
        for each in NAMESPACES
        if each.retention is Retention.BY_AGE or (each.retention is Retention.ON_REQUEST and each.kind in requested)
    ]
