"""Random interleavings of hosts that publish, roll back, read and fail over two layers of stores: who is left stale?

    python benchmarks/interleavings.py [--quick] [--json] [--runs 10000] [--seed 0]

Each run has a few hosts, real stores and a clock of its own. Every call of a store is a step: before and after it the
host may be held up for as long as others take, and the call may fail, before or after it had its effect. One seed
makes one interleaving, so a run can be repeated: `--seed N --runs 1`.

- tiered: hosts share a cache in front of a record of truth. mirror: threads of a host share a mirror of a remote.
- stale: keys for which the cache, or the mirror, differs from the truth two seconds after the last step.
- lost: acknowledged writes that the record of truth never had; for a mirror, also those that nobody sends.
- unfinished: runs that did not end. acknowledged, refused: writes that returned, and that raised a StoreError.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from figures import Goal, Report, parser

from tunewright.errors import StoreError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.spaces.config import Config
from tunewright.stores.memory import MemoryStore
from tunewright.stores.mirror import MirrorStore
from tunewright.stores.pending_writes import PENDING
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.tiered import TieredStore
from tunewright.testing.keys import other_key

GOALS = (Goal("stale", "==", 0), Goal("lost", "==", 0), Goal("unfinished", "==", 0))
KEYS = tuple(other_key(mode={"number": str(number)}) for number in range(2))
MAX_STEPS = 5000
SETTLED_SECONDS = 2.0
SQLITE_EVERY = 25
"""One run in so many has SQLite files instead of dictionaries."""


class Schedule:
    """Lets one of several threads run at a time, from one step to the next; chance decides which."""

    def __init__(self, random: Random) -> None:
        self.random, self.now = random, 0.0
        self.fault_rates = {"cache": 0.0, "truth": 0.0}
        self._turns: dict[int, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._waiting: list[int] = []

    def clock(self) -> float:
        """The time of this run, in seconds."""
        return self.now

    def step(self) -> None:
        """Gives the turn back and waits for the next; does nothing outside of the threads of this run."""
        own = threading.get_ident()
        if own in self._turns:
            self._waiting.append(own)
            self._back.release()
            self._turns[own].acquire()

    def fails(self, layer: str) -> bool:
        """Whether this call fails."""
        return self.random.random() < self.fault_rates[layer]

    def run(self, actors: Sequence[Callable[[], None]]) -> bool:
        """Runs all actors to their ends; returns whether they reached them."""
        running = len(actors)

        def act(actor: Callable[[], None]) -> None:
            self._turns[threading.get_ident()] = threading.Semaphore(0)
            self.step()
            try:
                actor()
            finally:
                self._turns.pop(threading.get_ident())
                finished.append(1)
                self._back.release()

        finished: list[int] = []
        threads = [threading.Thread(target=act, args=(actor,), daemon=True) for actor in actors]
        for thread in threads:
            thread.start()
            self._back.acquire()
        for _ in range(MAX_STEPS):
            if len(finished) == running:
                break
            self.now += self.random.choice((0.0, 0.0, 0.001, 0.2))
            chosen = self._waiting.pop(self.random.randrange(len(self._waiting)))
            self._turns[chosen].release()
            if not self._back.acquire(timeout=30):
                return False
        return len(finished) == running


def stepped(kind: type, layer: str) -> type:
    """Returns a class of stores whose calls are steps, and may fail."""

    def wrap(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **options: Any) -> Any:
            if getattr(self, "_inside", None) == threading.get_ident():
                return method(self, *args, **options)
            schedule: Schedule = self.schedule
            schedule.step()
            if schedule.fails(layer):
                raise StoreError(f"the {layer} did not get {name}")
            self._inside = threading.get_ident()
            try:
                result = method(self, *args, **options)
                result = list(result) if isinstance(result, Iterator) else result
            finally:
                self._inside = None
            schedule.step()
            if schedule.fails(layer):
                raise StoreError(f"the answer of the {layer} to {name} was lost")
            return iter(result) if isinstance(result, list) and name in ("entries", "decisions") else result

        return call

    names = [name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name)) and name != "at"]
    return type(f"Stepped{kind.__name__}", (kind,), {name: wrap(name, getattr(kind, name)) for name in names})


STEPPED = {(kind, layer): stepped(kind, layer) for kind in (MemoryStore, SqliteStore) for layer in ("cache", "truth")}


class Run:
    """One interleaving: its stores, and what was acknowledged."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.schedule = Schedule(self.random)
        self.acknowledged: list[Decision] = []
        self.refused = 0
        self._sqlite, self._folder, self._number = seed % SQLITE_EVERY == 0, folder / str(seed), 0

    def store(self, layer: str) -> Any:
        """A new store, of which each call is a step."""
        if self._sqlite:
            store = STEPPED[SqliteStore, layer](self._folder / f"{layer}.sqlite")
        else:
            store = STEPPED[MemoryStore, layer](clock=self.schedule.clock)
            store.is_private = False  # it stands for a cache that hosts share
        store.schedule = self.schedule
        return store

    def decision(self, key: Key) -> Decision:
        """A decision that no other equals."""
        self._number += 1
        return Decision(key, Config(number=self._number))

    def put(self, store: Any, decision: Decision, *, replace: bool) -> None:
        """Publishes, and notes whether that was acknowledged."""
        try:
            current = store.put(decision, replace=replace)
        except StoreError:
            self.refused += 1
        else:
            if current == decision:
                self.acknowledged.append(decision)

    def actor(self, store: Any) -> Callable[[], None]:
        """A host, or a thread of one, that does a few things in an order drawn by lot."""
        todo = [
            (self.random.choice(("publish", "roll back", "read", "fail")), self.random.choice(KEYS)) for _ in range(4)
        ]

        def act() -> None:
            for what, key in todo:
                if what == "fail":
                    layer = self.random.choice(("cache", "truth"))
                    self.schedule.fault_rates[layer] = self.random.choice((0.0, 0.1, 1.0))
                elif what == "read":
                    try:
                        store.get(key)
                    except StoreError:
                        continue
                else:
                    self.put(store, self.decision(key), replace=what == "roll back")

        return act

    def settle(self) -> None:
        """Everything answers again, and two seconds pass."""
        self.schedule.fault_rates = {"cache": 0.0, "truth": 0.0}
        self.schedule.now += SETTLED_SECONDS


def tiered(run: Run) -> Counter[str]:
    """Hosts that share a cache in front of a record of truth."""
    cache, truth = run.store("cache"), run.store("truth")
    for key in KEYS:
        run.put(truth, run.decision(key), replace=True)
    hosts = [TieredStore(cache, truth, clock=run.schedule.clock) for _ in range(3)]
    ended = run.schedule.run([run.actor(host) for host in hosts])
    run.settle()
    late = TieredStore(cache, truth, clock=run.schedule.clock)
    stale = sum(late.get(key) != truth.get(key) for key in KEYS)
    lost = [decision for decision in run.acknowledged if not _was_stored(truth, decision)]
    return Counter(stale=stale, lost=len(lost), unfinished=not ended)


def mirrored(run: Run) -> Counter[str]:
    """Threads of one host that share a mirror of a remote store, which nobody else writes to."""
    remote, local = run.store("truth"), run.store("cache")
    mirror = MirrorStore(remote, local, clock=run.schedule.clock)
    ended = run.schedule.run([run.actor(mirror) for _ in range(3)])
    run.settle()
    for number in range(2):  # usual writes of other keys, which send what is pending
        run.put(mirror, run.decision(other_key(mode={"later": str(number)})), replace=True)
        run.schedule.now += SETTLED_SECONDS
    unsent = [body for _, body in local.entries(PENDING) if body]
    stale = sum((kept := local.get(key)) is not None and kept != remote.get(key) for key in KEYS)
    # One that was sent late loses against one that came first, as documented; all others were current at some time.
    lost = [
        decision
        for decision in run.acknowledged
        if not _was_stored(remote, decision) and remote.get(decision.key) is None
    ]
    return Counter(stale=stale, lost=len(lost) + len(unsent), unfinished=not ended)


def _was_stored(store: Any, decision: Decision) -> bool:
    return any(revision.decision == decision for revision in store.history(decision.key))


SHAPES: dict[str, Callable[[Run], Counter[str]]] = {"tiered": tiered, "mirror": mirrored}


def measure(runs: int, seed: int) -> dict[str, Any]:
    """Runs all interleavings, half of them of each shape."""
    logging.disable(logging.CRITICAL)
    totals: Counter[str] = Counter()
    parts: dict[str, Counter[str]] = {name: Counter() for name in SHAPES}
    bad: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(seed, seed + runs):
            name = tuple(SHAPES)[number % len(SHAPES)]
            run = Run(number, Path(folder))
            found = SHAPES[name](run)
            counts = Counter(runs=1, acknowledged=len(run.acknowledged), refused=run.refused) + found
            parts[name] += counts
            totals += counts
            if found.total():
                bad.append(f"{name} {number}")
    figures: dict[str, Any] = {name: totals[name] for name in ("runs", "stale", "lost", "unfinished")}
    figures |= {name: totals[name] for name in ("acknowledged", "refused")}
    return figures | {name: dict(counts) for name, counts in parts.items()} | {"bad": bad[:20]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and reports."""
    takes = parser(__doc__)
    takes.add_argument("--runs", type=int, help="how many; 10,000, or a thousand if quick")
    takes.add_argument("--seed", type=int, default=0, help="of the first")
    given = takes.parse_args(arguments)
    figures = measure(given.runs or (1000 if given.quick else 10_000), given.seed)
    lines = [f"{figures['runs']:,} interleavings: {figures['stale']} stale, {figures['lost']} lost"]
    lines += [f"  not right: {text}" for text in figures["bad"]]
    return Report(figures, lines).finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
