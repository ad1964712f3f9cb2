"""What `tunewright tables audit` finds in other tools' tables: every planted fault, and nothing in healthy ones.

    python benchmarks/audit.py [--quick] [--json] [--draws 10]

Each planted table has one fault, at a place drawn by lot, and lies among sound tables of all formats; it is found if it
is named with its kind, its file, and its row where it has one.

- planted, found, missed: tables with a fault, by tool and kind.
- healthy: sound tables, looked through alone, and all together.
- false_alarms: findings in sound tables, be they alone or beside a planted one.
- also_said: other findings in the planted file itself, which its fault brings about.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from time import perf_counter

from audit_tables import EVERY, Files, Planted, planted, sound
from figures import Goal, Report, parser

from tunewright.interop.audit import audit_tables
from tunewright.interop.findings import AuditRequest, Finding, read_shapes

Trace = tuple[str, str] | None

GOALS = (
    Goal("planted", ">=", 25),
    Goal("missed", "==", 0),
    Goal("healthy", ">=", 25),
    Goal("false_alarms", "==", 0),
)


def looked_through(files: Files, asked: AuditRequest, trace: Trace = None) -> tuple[int, tuple[Finding, ...]]:
    """How many tables there are in these files, and what is found in them."""
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "tables"
        for name, text in files.items():
            path = tables / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if trace is not None:
            path = Path(folder) / trace[0]
            path.write_text(trace[1])
            asked = replace(asked, shapes=read_shapes(path))
        report = audit_tables(tables, asked)
    return report.tables, report.findings


def found(one: Planted, said: Sequence[Finding]) -> bool:
    """Whether the planted fault is among what is said."""
    return any((s.file, s.fault) == (one.file, one.fault) and one.row in (None, s.row) for s in said)


class Tally:
    """What was planted and found, by tool and kind."""

    def __init__(self) -> None:
        self.planted: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.missed: list[str] = []
        self.alarms: list[str] = []
        self.also = self.healthy = self.tables = 0

    def plant(self, one: Planted, rng: Random) -> None:
        """Look for a fault, alone and among sound tables that it has nothing to do with."""
        among = {f"sound/{name}": text for name, text in sound(rng).items()} if one.asked is EVERY else {}
        count, said = looked_through(one.files | among, one.asked, one.trace)
        self.tables += count
        kind = f"{one.tool}: {one.fault}"
        self.planted[kind] += 1
        self.found[kind] += (hit := found(one, said))
        if not hit:
            self.missed.append(f"{kind} in {one.file} {one.row or ''}")
        theirs = [s for s in said if s.file == one.file]
        self.also += sum(s.fault is not one.fault for s in theirs)
        self.alarm([s for s in said if s not in theirs])

    def check(self, files: Files) -> None:
        """Look through sound tables, each alone and all together."""
        for some in ({}, *({name: text} for name, text in files.items())):
            count, said = looked_through(some or files, EVERY)
            self.tables += count
            self.alarm(said)
        self.healthy += len(files)

    def alarm(self, said: Sequence[Finding]) -> None:
        self.alarms += [f"{s.file} {s.row}: {s.fault}: {s.wrong}" for s in said]


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, look, count."""
    takes = parser(__doc__)
    takes.add_argument("--draws", type=int, help="how often every fault is planted; 10, or 2 if quick")
    takes.add_argument("--seed", type=int, default=0)
    given = takes.parse_args(arguments)
    draws = given.draws or (2 if given.quick else 10)
    tally, report = Tally(), Report()
    began = perf_counter()
    for draw in range(draws):
        rng = Random(f"{given.seed} {draw}")
        tally.check(sound(rng))
        for one in planted(rng):
            tally.plant(one, rng)
    seconds = perf_counter() - began
    kinds = {kind: {"planted": count, "found": tally.found[kind]} for kind, count in sorted(tally.planted.items())}
    report.figures |= {
        "planted": tally.planted.total(),
        "found": tally.found.total(),
        "missed": len(tally.missed),
        "healthy": tally.healthy,
        "false_alarms": len(tally.alarms),
        "also_said": tally.also,
        "tables_per_second": round(tally.tables / seconds),
        "kinds": kinds,
        "which": sorted(set(tally.missed))[:20] + sorted(set(tally.alarms))[:20],
    }
    report.lines += [f"{kind:<28} planted {n['planted']:>4}  found {n['found']:>4}" for kind, n in kinds.items()]
    report.lines += [f"  {line}" for line in report.figures["which"]]
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
