"""Building search spaces: CPU time, memory and exact content, beside Kernel Tuner 1.5.0 in the same run.

    python benchmarks/space.py [--quick] [--json] [--spaces DIR]

DIR holds `definitions.json`: knobs, rules as Python expressions, and how many configs keep them. Where it does not,
the definition beside this script, a space of our own, is built instead, and the report says so.

- numbered: declared and counted; any config can be had by its number.
- materialised: also written out, all configs as one table of small integers. Speed-ups are of this one, against
  Kernel Tuner's construction, which makes a list of tuples and a dictionary from each to its place; medians of CPU
  time, repeats of both interleaved.
- peak memory and CPU time of a first, cold build: of the largest space, each in a process of its own. Imports count
  towards the peak, not the time.

Contents are compared config by config up to 200,000 of them, beyond that by count. A difference is an error.
Needs the dependency group `peers`.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from figures import Goal, Report, Series, cpu_seconds, parser

from tunewright import Knob, Space
from tunewright.backends import expressions

HERE = Path(__file__).resolve().parent
SHARED = HERE.parent.parent / "shared" / "spaces"
MOST_COMPARED = 200_000
SHORT = {"hotspot-large": "large"}
GOALS = (
    Goal("hotspot_speedup", ">=", 20),
    Goal("large_speedup", ">=", 20),
    Goal("large_cpu_s", "<", 0.5),
    Goal("large_peak_mb", "<", 500),
)


@dataclass(frozen=True)
class Definition:
    """A space as its file has it."""

    name: str
    parameters: dict[str, list[Any]]
    constraints: list[str]
    feasible: int

    @property
    def short(self) -> str:
        """Its name in figures."""
        return SHORT.get(self.name, self.name.replace("-", "_"))


@dataclass(frozen=True)
class Timings:
    """CPU seconds of repeated builds."""

    numbered: Series
    materialised: Series
    peer: Series


def definitions(folder: Path) -> tuple[list[Definition], Path]:
    """The definitions in `folder`, or ours; and the file they came from."""
    file = next(path / "definitions.json" for path in (folder, HERE) if (path / "definitions.json").is_file())
    fields = ("parameters", "constraints", "feasible")
    spaces = json.loads(file.read_text())["spaces"]
    return [Definition(name, *(said[field] for field in fields)) for name, said in spaces.items()], file


def declare(definition: Definition) -> Space:
    """The space, ours."""
    knobs = [Knob(name, values) for name, values in definition.parameters.items()]
    return Space(*knobs, rules=[expressions.parse_rule(text) for text in definition.constraints])


def build(definition: Definition) -> int:
    """Our space, materialised; how many configs it has."""
    return len(declare(definition).codes())


def build_peer(definition: Definition) -> int:
    """Kernel Tuner's space; how many configs it has."""
    return len(peer_list(definition))


def peer_list(definition: Definition) -> list[tuple[Any, ...]]:
    """All configs, as Kernel Tuner's default settings make them."""
    from kernel_tuner.searchspace import Searchspace

    return Searchspace(definition.parameters, definition.constraints, max_threads=10**9).list


def time_ours(definition: Definition) -> tuple[float, float]:
    """CPU seconds until the space is numbered, and until it is materialised."""
    gc.collect()
    start = cpu_seconds()
    space = declare(definition)
    len(space)
    numbered = cpu_seconds()
    kept = space.codes()
    materialised = cpu_seconds()
    del kept
    return numbered - start, materialised - start


def time_peer(definition: Definition) -> float:
    """CPU seconds of Kernel Tuner's construction."""
    gc.collect()
    start = cpu_seconds()
    kept = peer_list(definition)
    spent = cpu_seconds() - start
    del kept
    return spent


def time_both(definition: Definition, *, quick: bool) -> Timings:
    """Repeats of both, interleaved; each has built the space before, so that neither pays for imports."""
    rounds, ours_each = (1, 5) if quick else (3, 3)
    ours, peer = [], []
    for _ in range(rounds):
        ours += [time_ours(definition) for _ in range(ours_each)]
        peer.append(time_peer(definition))
    numbered, materialised = zip(*ours, strict=True)
    return Timings(Series(numbered), Series(materialised), Series(peer))


def compare(definition: Definition, report: Report) -> None:
    """Check counts, and contents where there are few enough; notes what was found."""
    space, name = declare(definition), definition.name
    codes, theirs = space.codes(), peer_list(definition)
    for whose, count in (("ours", len(space)), ("our table", len(codes)), ("Kernel Tuner's", len(theirs))):
        report.check(
            count == definition.feasible, f"{name}: {whose} has {count:,} configs, not {definition.feasible:,}"
        )
    if definition.feasible > MOST_COMPARED:
        report.figures[f"{definition.short}_equal_count"] = len(codes) == len(theirs) == definition.feasible
        return
    equal = rows(space, codes) == set(theirs)
    report.figures[f"{definition.short}_equal"] = report.check(equal, f"{name}: configs differ from Kernel Tuner's")


def rows(space: Space, codes: np.ndarray) -> set[tuple[Any, ...]]:
    """Our configs as tuples of values."""
    values = {knob.name: knob.values for knob in space.knobs}
    columns = [[values[name][code] for code in codes[:, i].tolist()] for i, name in enumerate(space.names)]
    return set(zip(*columns, strict=True))


@dataclass(frozen=True)
class Cold:
    """A first build in a process of its own."""

    cpu_s: float
    peak_mb: float
    before_mb: float


def cold(builder: Callable[[Definition], int], definition: Definition) -> Cold:
    """Runs in the fresh process. The imports come before the clock: a tiny space calls for them."""
    builder(Definition("tiny", {"a": [1, 2], "b": [1, 2]}, ["a <= b"], 3))
    before, start = peak_mb(), cpu_seconds()
    builder(definition)
    return Cold(cpu_seconds() - start, peak_mb(), before)


def peak_mb() -> float:
    """The most memory this process ever held. `ru_maxrss` will not do: it starts at the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024 / 1e6


def cold_in_fresh_process(builder: Callable[[Definition], int], definition: Definition) -> Cold:
    """`cold`, by a new interpreter."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(cold, builder, definition).result()


def measure(definition: Definition, report: Report, *, quick: bool) -> None:
    """Contents and CPU time of one space."""
    compare(definition, report)
    timings, short = time_both(definition, quick=quick), definition.short
    speedup = timings.peer.median / timings.materialised.median
    report.figures |= {
        f"{short}_speedup": round(speedup, 1),
        f"{short}_cpu_s": round(timings.materialised.median, 4),
        f"{short}_numbered_cpu_s": round(timings.numbered.median, 4),
        f"{short}_peer_cpu_s": round(timings.peer.median, 4),
        f"{short}_seconds": {kind: series.plain() for kind, series in vars(timings).items()},
    }
    report.lines += [
        f"{definition.name}: {definition.feasible:,} configs; materialised {speedup:.1f} times as fast",
        f"  numbered      {timings.numbered.text('s', 4)}",
        f"  materialised  {timings.materialised.text('s', 4)}",
        f"  Kernel Tuner  {timings.peer.text('s', 4)}",
    ]


def measure_cold(definition: Definition, report: Report) -> None:
    """Peak memory and CPU time of the first build of one space, ours and Kernel Tuner's."""
    short = definition.short
    report.lines.append(f"{definition.name}, first build in a fresh process (imports are in the peak, not in the time)")
    for builder, label, prefix in ((build, "ours", short), (build_peer, "Kernel Tuner", f"{short}_peer")):
        seen = cold_in_fresh_process(builder, definition)
        growth = seen.peak_mb - seen.before_mb
        report.figures[f"{prefix}_peak_mb"] = round(seen.peak_mb, 1)
        report.figures[f"{prefix}_growth_mb"] = round(growth, 1)
        report.figures[f"{prefix}_cold_cpu_s"] = round(seen.cpu_s, 4)
        report.lines.append(
            f"  {label:<13} peak {seen.peak_mb:.1f} MB, of which the build {growth:.1f} MB; {seen.cpu_s:.4f} s"
        )
    speedup = report.figures[f"{short}_peer_cold_cpu_s"] / report.figures[f"{short}_cold_cpu_s"]
    report.figures[f"{short}_cold_speedup"] = round(speedup, 1)
    report.lines.append(f"  {speedup:.1f} times as fast when cold")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, compare, report."""
    takes = parser(__doc__)
    takes.add_argument("--spaces", type=Path, default=SHARED, metavar="DIR", help="where definitions.json lies")
    given = takes.parse_args(arguments)
    spaces, file = definitions(given.spaces)
    report = Report()
    own = file.parent == HERE
    report.figures["definitions"] = "own" if own else "given"
    if own:
        report.lines.append(f"no definitions.json in {given.spaces}; a space of our own is built instead")
    measure_cold(max(spaces, key=lambda definition: definition.feasible), report)
    for definition in spaces:
        measure(definition, report, quick=given.quick)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
