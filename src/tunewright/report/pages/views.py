"""Views: what pages show of a store, read when it is asked for and kept for a few seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar, cast

from tunewright.errors import TunewrightError
from tunewright.model.decision import Decision, Tier
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.report.pages.assets import STATIC
from tunewright.report.pages.filed import SHELF, Filed
from tunewright.report.pages.journal import Journal
from tunewright.sharing.offers import Generations, Shelves, Tallies, Wants
from tunewright.sharing.records import Generation, Tally, Want
from tunewright.sharing.transcripts import SHELF as RACES
from tunewright.sharing.transcripts import Transcript, transcript_of
from tunewright.spaces.config import Config

T = TypeVar("T")

FRESH = 5.0
"""Seconds for which what was read is shown again without asking."""

DEAR = 20.0
"""How many times as long as it took to read it: what is dear to count is counted less often."""

MOST_DECISIONS, MOST_WANTS, MOST_JOURNALS = 20_000, 500, 16
"""Decisions and wants that are looked at, and journals that are kept at once."""


class NotThere(TunewrightError):
    """What a page was asked for is not in the store; the message says what is."""


class Held(Protocol):
    """An entry in quarantine."""

    @property
    def config(self) -> Config:
        """What is passed over."""
        ...

    @property
    def reason(self) -> str:
        """Why."""
        ...

    @property
    def when(self) -> str:
        """Since when."""
        ...


class Parcel(Protocol):
    """A bundle, as far as a page shows it."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...

    @property
    def digest(self) -> str:
        """What it is, to the bit."""
        ...

    @property
    def signer(self) -> str | None:
        """Who vouches for it; None where its digest was pinned."""
        ...

    @property
    def manifest(self) -> Any:
        """What it says of itself."""
        ...

    @property
    def enclosures(self) -> Mapping[tuple[str, str], Any]:
        """What comes along, by kind and name."""
        ...

    def decisions(self, kernel: str | None = None) -> Iterable[Decision]:
        """What it decides."""
        ...


class Views:
    """A store as pages see it, with what else is to be shown: bundles, what is in quarantine, filed reports.

    `live` says that somebody serves these pages and sends events.
    """

    def __init__(
        self,
        store: Store,
        name: str = "",
        *,
        bundles: Sequence[Parcel] | Callable[[], Sequence[Parcel]] = (),
        held: Mapping[str, Held] | None = None,
        filed: Sequence[Filed] = (),
        live: bool = False,
    ) -> None:
        self.store, self.name, self.held, self.live = store, name, held or {}, live
        self._bundles = bundles
        self._filed = tuple(filed)
        self._kept: dict[str, tuple[float, Any]] = {}
        self._journals: OrderedDict[tuple[str, int], Journal] = OrderedDict()

    @property
    def bundles(self) -> Sequence[Parcel]:
        """Bundles to be shown; where they come and go, those there are now."""
        found = self._bundles
        return self._fresh("bundles", found) if callable(found) else found

    @property
    def draws(self) -> bool:
        """Whether Plotly is here."""
        return "plotly.js" in STATIC

    def decisions(self, kernel: str | None = None) -> list[Decision]:
        """What is decided, by kernel, device and sizes."""
        read = self._fresh("decisions", lambda: sorted(islice(self.store.decisions(), MOST_DECISIONS), key=_order))
        return [decision for decision in read if kernel in (None, decision.key.kernel)]

    def decision(self, key: Key) -> Decision | None:
        """What stands for a key."""
        return next((one for one in self.decisions(key.kernel) if one.key == key), None) or self.store.get(key)

    def tallies(self, kernel: str | None = None) -> list[Tally]:
        """How many trials each key has, most first; counted where they lie, if the store can."""
        read = self._fresh("tallies", lambda: sorted(self._tallied(), key=lambda one: (-one.trials, one.key.digest)))
        return [tally for tally in read if kernel in (None, tally.key.kernel)]

    def _tallied(self) -> Iterable[Tally]:
        if isinstance(self.store, Tallies):
            return self.store.tallies()
        counted = (Tally(key, sum(1 for _ in self.store.trials(key))) for key in self.store.keys(None))
        return (tally for tally in counted if tally.trials)

    def wants(self, kernel: str | None = None) -> list[Want]:
        """What is asked for and not decided, most seconds first."""
        if not isinstance(self.store, Wants):
            return []
        wanted = self.store.wanted
        read = self._fresh("wants", lambda: list(islice(wanted(), MOST_WANTS)))
        return [want for want in read if kernel in (None, want.key.kernel)]

    def kernels(self) -> list[str]:
        """Everything that is tuned, tried or wanted."""
        return sorted({key.kernel for key in self._keys()})

    def key(self, digest: str) -> Key:
        """The key whose digest begins so."""
        if len(digest) >= 6:
            for key in self._keys():
                if key.digest.startswith(digest):
                    return key
        raise NotThere(f"No key begins with {digest[:64]!r}; kernels have lists of theirs.")

    def _keys(self) -> Iterator[Key]:
        yield from (one.key for one in self.decisions())
        yield from (one.key for one in self.tallies())
        yield from (one.key for one in self.wants())

    def history(self, key: Key) -> Sequence[Generation]:
        """What stood for a key, oldest first."""
        return self.store.history(key) if isinstance(self.store, Generations) else ()

    def transcript(self, key: Key) -> Transcript | None:
        """The race that a decision rests on, if it was written down and its parts fit."""
        found = transcript_of(self.store, key)
        return found if found is not None and found.sound else None

    def raced(self) -> list[Decision]:
        """The decisions whose races may be written down."""
        if isinstance(self.store, Shelves):
            names = self._fresh("races", lambda: set(self._names(RACES)))
            return [decision for decision in self.decisions() if decision.key.digest in names]
        return [decision for decision in self.decisions() if transcript_of(self.store, decision.key)]

    def _names(self, shelf: str) -> Iterable[str]:
        return (name for name, _ in self.store.entries(shelf)) if isinstance(self.store, Shelves) else ()

    def journal(self, key: Key) -> Journal:
        """The trials of a key in columns; read again when there are more of them."""
        count = next((tally.trials for tally in self.tallies() if tally.key == key), 0)
        if not count:
            raise NotThere(f"No trials of {key.kernel} {key.signature} are recorded; a bundle, for one, has none.")
        place = (key.digest, count)
        if place not in self._journals:
            self._journals[place] = Journal.of(self.store.trials(key), count)
            while len(self._journals) > MOST_JOURNALS:
                self._journals.popitem(last=False)
        return self._journals[place]

    def filed(self, kind: str) -> list[Filed]:
        """Reports of a kind, newest first: those handed over, and those on the store's shelf."""
        shelved = self._fresh("filed", lambda: list(self._shelved()))
        return sorted(
            (one for one in (*self._filed, *shelved) if one.kind == kind), key=lambda one: one.when, reverse=True
        )

    def _shelved(self) -> Iterable[Filed]:
        entries = self.store.entries(SHELF) if isinstance(self.store, Shelves) else ()
        return (found for _, body in entries if (found := Filed.kept(body)) is not None)

    def coverage(self) -> dict[Tier, list[Want]]:
        """What is wanted, by the tier of the nearest answer there is: what a frozen process gets instead."""
        return self._fresh("coverage", self._covered)

    def _covered(self) -> dict[Tier, list[Want]]:
        found: dict[Tier, list[Want]] = {Tier.NEAREST: [], Tier.ARCHITECTURE: [], Tier.DEFAULT: []}
        kin: dict[str, list[Decision]] = {}
        for want in self.wants():
            key = want.key
            if key.kin not in kin:
                kin[key.kin] = list(self.store.relatives(key))
            same = any(decision.key.device == key.device for decision in kin[key.kin])
            found[Tier.NEAREST if same else Tier.ARCHITECTURE if kin[key.kin] else Tier.DEFAULT].append(want)
        return found

    def _fresh(self, name: str, read: Callable[[], T]) -> T:
        kept = self._kept.get(name)
        if kept is None or monotonic() > kept[0]:
            began = monotonic()
            value = read()
            now = monotonic()
            kept = self._kept[name] = (now + max(FRESH, DEAR * (now - began)), value)
        return cast(T, kept[1])


def _order(decision: Decision) -> tuple[Any, ...]:
    key = decision.key
    return key.kernel, str(key.device), tuple(key.signature.dims.values()), key.digest
