"""What pages show of a store, read on demand and cached for a few seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar, cast

from tunewright.dashboard.assets import STATIC
from tunewright.dashboard.saved_reports import REPORT_NAMESPACE, SavedReport
from tunewright.dashboard.trial_columns import TrialColumns
from tunewright.errors import TunewrightError
from tunewright.model.decision import Decision, Tier
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.spaces.config import Config
from tunewright.stores.capabilities import CountsTrials, KeepsNamespaces, KeepsRevisions, RecordsMisses
from tunewright.stores.statistics import MissRecord, Revision, TrialCount
from tunewright.stores.transcripts import NAMESPACE as RACE_NAMESPACE
from tunewright.stores.transcripts import Transcript, load_transcript

T = TypeVar("T")

MIN_FRESH_SECONDS = 5.0
"""Seconds for which a value is shown again without reading the store."""

FRESH_PER_READ_SECOND = 20.0
"""Further seconds for each second that reading took, so that expensive values are read less often."""

MAX_DECISIONS, MAX_MISSES, MAX_JOURNALS = 20_000, 500, 16
"""Decisions and misses that are read, and journals that are cached."""


class PageNotFound(TunewrightError):
    """Raised when the store does not have what a page was asked for; the message says what it has."""


class QuarantineInfo(Protocol):
    """A quarantined decision."""

    @property
    def config(self) -> Config:
        """The config that is not used."""
        ...

    @property
    def reason(self) -> str:
        """Why it was quarantined."""
        ...

    @property
    def when(self) -> str:
        """Since when."""
        ...


class BundleView(Protocol):
    """What pages show of a bundle."""

    @property
    def path(self) -> Path:
        """The file of the bundle."""
        ...

    @property
    def digest(self) -> str:
        """The digest of its bytes."""
        ...

    @property
    def signer(self) -> str | None:
        """Who signed it; None if its digest was pinned instead."""
        ...

    @property
    def manifest(self) -> Any:
        """Its manifest."""
        ...

    @property
    def attachments(self) -> Mapping[tuple[str, str], Any]:
        """The attachments, by kind and name."""
        ...

    def decisions(self, kernel: str | None = None) -> Iterable[Decision]:
        """Returns its decisions."""
        ...


class Views:
    """The content of a store for pages, with bundles, quarantined decisions and saved reports.

    `live` tells that a server shows these pages and sends events.
    """

    def __init__(
        self,
        store: Store,
        name: str = "",
        *,
        bundles: Sequence[BundleView] | Callable[[], Sequence[BundleView]] = (),
        quarantined: Mapping[str, QuarantineInfo] | None = None,
        reports: Sequence[SavedReport] = (),
        live: bool = False,
    ) -> None:
        self.store, self.name, self.quarantined, self.live = store, name, quarantined or {}, live
        self._bundles = bundles
        self._reports = tuple(reports)
        self._cache: dict[str, tuple[float, Any]] = {}
        self._columns: OrderedDict[tuple[str, int], TrialColumns] = OrderedDict()

    @property
    def bundles(self) -> Sequence[BundleView]:
        """The bundles that exist now."""
        bundles = self._bundles
        return self._cached("bundles", bundles) if callable(bundles) else bundles

    @property
    def has_plotly(self) -> bool:
        """Whether Plotly is installed."""
        return "plotly.js" in STATIC

    def decisions(self, kernel: str | None = None) -> list[Decision]:
        """Returns decisions, sorted by kernel, device and sizes."""
        decisions = self._cached(
            "decisions", lambda: sorted(islice(self.store.decisions(), MAX_DECISIONS), key=_sort_key)
        )
        return [decision for decision in decisions if kernel in (None, decision.key.kernel)]

    def has_shapes(self, kernel: str) -> bool:
        """Whether trials of several shapes of a kernel can be compared."""
        return sum(bool(count.key.signature.dims) for count in self.trial_counts(kernel)) > 1

    def decision(self, key: Key) -> Decision | None:
        """Returns the current decision of a key."""
        decisions = (decision for decision in self.decisions(key.kernel) if decision.key == key)
        return next(decisions, None) or self.store.get(key)

    def trial_counts(self, kernel: str | None = None) -> list[TrialCount]:
        """Returns the number of trials of each key, most first; counted by the store if it can."""
        counts = self._cached(
            "trial counts",
            lambda: sorted(self._count_trials(), key=lambda count: (-count.trials, count.key.digest)),
        )
        return [count for count in counts if kernel in (None, count.key.kernel)]

    def _count_trials(self) -> Iterable[TrialCount]:
        if isinstance(self.store, CountsTrials):
            return self.store.trial_counts()
        counts = (TrialCount(key, sum(1 for _ in self.store.trials(key))) for key in self.store.keys(None))
        return (count for count in counts if count.trials)

    def misses(self, kernel: str | None = None) -> list[MissRecord]:
        """Returns keys that were looked up and have no decision, most seconds first."""
        store = self.store
        if not isinstance(store, RecordsMisses):
            return []
        misses = self._cached("misses", lambda: list(islice(store.misses(), MAX_MISSES)))
        return [miss for miss in misses if kernel in (None, miss.key.kernel)]

    def kernels(self) -> list[str]:
        """Returns the names of all kernels that have decisions, trials or misses."""
        return sorted({key.kernel for key in self._keys()})

    def key(self, digest: str) -> Key:
        """Returns the key whose digest begins with this text."""
        if len(digest) >= 6:
            for key in self._keys():
                if key.digest.startswith(digest):
                    return key
        raise PageNotFound(f"No key begins with {digest[:64]!r}; the page of a kernel lists its keys.")

    def _keys(self) -> Iterator[Key]:
        yield from (decision.key for decision in self.decisions())
        yield from (count.key for count in self.trial_counts())
        yield from (miss.key for miss in self.misses())

    def history(self, key: Key) -> Sequence[Revision]:
        """Returns the revisions of a key, oldest first."""
        return self.store.history(key) if isinstance(self.store, KeepsRevisions) else ()

    def transcript(self, key: Key) -> Transcript | None:
        """Returns the transcript of the race behind a decision, if it is recorded and consistent."""
        transcript = load_transcript(self.store, key)
        return transcript if transcript is not None and transcript.is_consistent else None

    def raced_decisions(self) -> list[Decision]:
        """Returns the decisions whose races are recorded."""
        if isinstance(self.store, KeepsNamespaces):
            digests = self._cached("races", lambda: set(self._entry_names(RACE_NAMESPACE)))
            return [decision for decision in self.decisions() if decision.key.digest in digests]
        return [decision for decision in self.decisions() if load_transcript(self.store, decision.key)]

    def _entry_names(self, namespace: str) -> Iterable[str]:
        return (name for name, _ in self.store.entries(namespace)) if isinstance(self.store, KeepsNamespaces) else ()

    def trial_columns(self, key: Key) -> TrialColumns:
        """Returns the trials of a key in columns; read again when there are new ones."""
        trials = next((count.trials for count in self.trial_counts() if count.key == key), 0)
        if not trials:
            raise PageNotFound(
                f"No trials of {key.kernel} {key.signature} are recorded; bundles, for example, have none."
            )
        version = (key.digest, trials)
        if version not in self._columns:
            self._columns[version] = TrialColumns.of(self.store.trials(key), trials)
            while len(self._columns) > MAX_JOURNALS:
                self._columns.popitem(last=False)
        return self._columns[version]

    def saved_reports(self, kind: str) -> list[SavedReport]:
        """Returns the reports of a kind, newest first, of the constructor and of the store."""
        stored = self._cached("reports", lambda: list(self._stored_reports()))
        reports = (report for report in (*self._reports, *stored) if report.kind == kind)
        return sorted(reports, key=lambda report: report.when, reverse=True)

    def _stored_reports(self) -> Iterable[SavedReport]:
        entries = self.store.entries(REPORT_NAMESPACE) if isinstance(self.store, KeepsNamespaces) else ()
        return (report for _, body in entries if (report := SavedReport.decode(body)) is not None)

    def coverage(self) -> dict[Tier, list[MissRecord]]:
        """Returns the misses by the tier of the nearest decision, which a frozen process gets instead."""
        return self._cached("coverage", self._group_misses)

    def _group_misses(self) -> dict[Tier, list[MissRecord]]:
        by_tier: dict[Tier, list[MissRecord]] = {Tier.NEAREST: [], Tier.ARCHITECTURE: [], Tier.DEFAULT: []}
        related: dict[str, list[Decision]] = {}
        for miss in self.misses():
            key = miss.key
            if key.related_digest not in related:
                related[key.related_digest] = list(self.store.relatives(key))
            same_device = any(decision.key.device == key.device for decision in related[key.related_digest])
            tier = Tier.NEAREST if same_device else Tier.ARCHITECTURE if related[key.related_digest] else Tier.DEFAULT
            by_tier[tier].append(miss)
        return by_tier

    def _cached(self, name: str, read: Callable[[], T]) -> T:
        entry = self._cache.get(name)
        if entry is None or monotonic() > entry[0]:
            started = monotonic()
            value = read()
            now = monotonic()
            fresh_seconds = max(MIN_FRESH_SECONDS, FRESH_PER_READ_SECOND * (now - started))
            entry = self._cache[name] = (now + fresh_seconds, value)
        return cast(T, entry[1])


def _sort_key(decision: Decision) -> tuple[Any, ...]:
    key = decision.key
    return key.kernel, str(key.device), tuple(key.signature.dims.values()), key.digest
