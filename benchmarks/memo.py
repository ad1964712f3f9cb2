"""What remembering costs: a hit beside `functools.lru_cache`, and results in a store beside the bare store.

    python benchmarks/memo.py [--quick] [--json]

- hit: a call of a memoised two-argument function whose result is kept in the process, and the same through
  `functools.lru_cache`; unbounded, bounded (`most=`) and expiring (`seconds=`; lru_cache cannot, so it stands beside
  the unbounded one). The floor is a call of the function itself.
- other: hits that take the longer way, for arguments that are no atoms; no peer does the same.
- get: a hit of `persistent_memo` on SQLite, beside `fetch` of the same bytes from the same file.
- put: a miss, the function doing nothing, beside `keep` of the same bytes; and beside all five questions that a miss
  puts to the store (fetch, claim, fetch, keep, release), since of many processes one computes.

All are timed in turn, block by block: hits in CPU time, the store by the wall clock. A ratio is the median of those of
neighbouring blocks; above 1 for hits means dearer than lru_cache, for get and put it is the share of the bare rate.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import count, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from figures import Goal, Paired, Report, Series, parser

from tunewright.memoization import memo, persistent_memo
from tunewright.stores.sqlite import SqliteStore

GOALS = (
    Goal("hit.unbounded.us", "<=", 1),
    Goal("hit.bounded.us", "<=", 1),
    Goal("hit.expiring.us", "<=", 1),
    Goal("store.get", ">=", 0.5),
    Goal("store.put", ">=", 0.5),
)


def add(a: int, b: int = 2) -> int:
    return a + b


def per_call_us(call: Callable[..., Any], calls: int) -> float:
    """CPU microseconds of one call among many."""
    start = time.process_time_ns()
    for _ in repeat(None, calls):
        call(1, 2)
    return (time.process_time_ns() - start) / calls / 1e3


def in_turn(ways: Sequence[Callable[[], float]], blocks: int) -> list[list[float]]:
    """Blocks of every way in turn, each round in the other order; the first round is dropped."""
    seen: list[list[float]] = [[] for _ in ways]
    for block in range(blocks + 1):
        order = range(len(ways)) if block % 2 else reversed(range(len(ways)))
        for i in order:
            seen[i].append(ways[i]())
    return [times[1:] for times in seen]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Series:
    return Series(mine / other for mine, other in zip(ours, theirs, strict=True))


def measure_hits(report: Report, *, quick: bool) -> None:
    """A hit of each kind of memo, and of the peer that does the same."""
    peers = {"unbounded": lru_cache(maxsize=None)(add), "bounded": lru_cache(maxsize=100)(add)}
    ours = {"unbounded": memo(add), "bounded": memo(most=100)(add), "expiring": memo(seconds=3600)(add)}
    calls = [add, *peers.values(), *ours.values()]
    for call in calls:
        call(1, 2)
    times = in_turn([partial(per_call_us, call, 2000) for call in calls], 30 if quick else 120)
    direct, *rest = times
    peer_times = dict(zip(peers, rest, strict=False))
    our_times = dict(zip(ours, rest[len(peers) :], strict=True))
    report.figures["hit"] = {"direct_us": round(Series(direct).median, 3)}
    report.lines.append("a hit in the process, CPU time: memo, lru_cache, and how many times as dear")
    for name, mine in our_times.items():
        theirs = peer_times.get(name, peer_times["unbounded"])
        pair, times_as = Paired.of(zip(mine, theirs, strict=True)), ratio(mine, theirs)
        report.figures["hit"][name] = {
            "us": round(pair.dearer.median, 3),
            "lru_cache_us": round(pair.cheaper.median, 3),
            "ratio": round(times_as.median, 2),
            "quietest_us": round(pair.dearer.low, 3),
            "lru_cache_quietest_us": round(pair.cheaper.low, 3),
        }
        report.lines.append(
            f"  {name:<10} {pair.dearer.text('us', 2)}, {pair.cheaper.text('us', 2)}: {times_as.text('times', 1)}"
        )
        seen = ours[name].cache_info()
        report.check(seen.misses == 1, f"{name}: one miss expected: {seen}")
    report.lines.append(f"  the function itself: {Series(direct).text('us', 2)}")


def measure_others(report: Report, *, quick: bool) -> None:
    """Hits whose arguments have to be written out to be told apart."""
    arguments = {
        "zero": 0.0,
        "tuple": (1, 2),
        "dict": {"a": 1},
        "array_1kB": np.zeros(128),
        "array_1MB": np.zeros(1 << 17),
    }
    tell = memo(lambda value: 1)
    report.lines.append("a hit with other arguments, CPU time")
    figures = report.figures["other_us"] = {}
    for name, value in arguments.items():
        tell(value)

        def block(value: Any = value, calls: int = 20 if name == "array_1MB" else 500) -> float:
            start = time.process_time_ns()
            for _ in repeat(None, calls):
                tell(value)
            return (time.process_time_ns() - start) / calls / 1e3

        cost = Series(block() for _ in range(5 if quick else 20))
        figures[name] = round(cost.median, 2)
        report.lines.append(f"  {name:<10} {cost.text('us', 1)}")


class Questions:
    """The same traffic with a store, through a memo and bare."""

    def __init__(self, path: Path, calls: int) -> None:
        self.store, self.calls, self._fresh = SqliteStore(path), calls, count()
        self.memo = persistent_memo(store=self.store)(add)
        for i in range(100):
            self.memo(i)
        self.shelf = f"memo {Path(__file__).stem}:add"
        self.names, bodies = zip(*self.store.entries(self.shelf), strict=True)
        self.body = bodies[0]

    def timed(self, call: Callable[[int], Any]) -> float:
        """Wall microseconds of a call."""
        start = time.perf_counter_ns()
        for i in range(self.calls):
            call(i)
        return (time.perf_counter_ns() - start) / self.calls / 1e3

    def get(self, i: int) -> None:
        self.memo(i % 100)

    def bare_get(self, i: int) -> None:
        self.store.fetch(self.shelf, [self.names[i % 100]])

    def put(self, i: int) -> None:
        self.memo(1000 + next(self._fresh))

    def bare_put(self, i: int) -> None:
        self.store.keep("bare", f"{next(self._fresh):032x}", self.body, replace=False)

    def bare_miss(self, i: int) -> None:
        name = f"{next(self._fresh):032x}"
        self.store.fetch("bare", [name])
        self.store.claim(name, "me", 10)
        self.store.fetch("bare", [name])
        self.store.keep("bare", name, self.body, replace=False)
        self.store.release(name, "me")


def measure_store(report: Report, *, quick: bool) -> None:
    """Gets and puts through a memo, beside those of the bare store."""
    with TemporaryDirectory() as folder:
        ask = Questions(Path(folder, "store.sqlite"), 50 if quick else 200)
        names = ("get", "bare_get", "put", "bare_put", "bare_miss")
        ways = [partial(ask.timed, getattr(ask, name)) for name in names]
        times = dict(zip(names, in_turn(ways, 12 if quick else 40), strict=True))
        report.check(ask.memo.cache_info().misses >= 100, "nothing was computed")
    shares = {
        "get": ratio(times["bare_get"], times["get"]),
        "put": ratio(times["bare_miss"], times["put"]),
        "put_beside_keep_alone": ratio(times["bare_put"], times["put"]),
    }
    report.figures["store"] = {name: round(share.median, 3) for name, share in shares.items()}
    report.figures["store"]["us"] = {name: round(Series(seen).median, 1) for name, seen in times.items()}
    report.lines.append("results in SQLite, wall time, and the share of the bare store's rate")
    report.lines += [f"  {name:<10} {Series(seen).text('us', 1)}" for name, seen in times.items()]
    report.lines += [f"  {name:<22} {share.text('', 2)}" for name, share in shares.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Time, compare, report."""
    given = parser(__doc__).parse_args(arguments)
    report = Report()
    measure_hits(report, quick=given.quick)
    measure_others(report, quick=given.quick)
    measure_store(report, quick=given.quick)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
