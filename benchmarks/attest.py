"""How surely a few entries of a bundle, raced again, show that some of it went bad; and how often they cry wolf.

    python benchmarks/attest.py [--quick] [--json]

A bundle of 1,000 entries: one C kernel at 1,000 sizes. A healthy entry has the fastest config, one as fast beside it
as its evidence, and a default 1.6 times slower. A degraded one has a config that does 1.3 or 2 times the work.

- real: the bundle, built and opened; entries of each kind, spread over its sizes, each raced as `bundle verify
  --budget` does it: a race, and three more that must confirm what looks slower. Degraded ones at the level that a run
  of 1,000 entries has: `detected` is the share found. Healthy ones at the looser one of runs over ten: `alarms` are
  those found bad, `false_alarm_rate` is the share of such runs with any. Shares with their exact 95 % bound. `closest`
  is the most rounds in which a healthy entry was more than 5 % slower than the one that is as fast, in confirming races
  that were forced on some of them, beside the `sign_test_threshold` rounds that make an alarm in a run of 1,000.
- simulated: the confirming races alone, on the simulated machine of `tunewright.testing.torture` in seven weathers by
  turns, of entries that are exactly 5 % slower, the worst that is healthy: how many alarms at a level of 5 % each, and
  at the level of a run of 1,000.
- drawn: the curve. For each share of degraded entries and each number of entries raced, 20,000 seeded draws of which
  entries are degraded and which are sampled; a degraded one is found with the real rate. `exact` is the same by the
  hypergeometric distribution, if every degraded entry that is met is found.
- a real run end to end for each share, over as many entries as can be raced in a few seconds: what it stated.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from figures import Goal, Report, parser

import tunewright as tw
from tunewright.engine.budget import Budget
from tunewright.measure.race import PROTECTED_ROUNDS, Race, RaceOptions, run_race
from tunewright.model.decision import Decision, Evidence, Finalist
from tunewright.shipping import arrival_check
from tunewright.shipping.rerace import CONFIRMATION_RACES, MAX_SLOWDOWN, SAMPLE_RACE, ArrivalCheck, ReraceResult
from tunewright.shipping.sampling import max_bad_share, miss_probability, sign_test_threshold
from tunewright.stores.bundle import BundleStore, verify_bundle
from tunewright.stores.bundle.build import build, write
from tunewright.stores.memory import MemoryStore
from tunewright.testing.torture.disturbances import NATURAL
from tunewright.testing.torture.machine import SimulatedMachine, Truth

ENTRIES, DRAWS, RUN = 1000, 20_000, 10
SHARES, BUDGETS = (0.005, 0.01, 0.05, 0.2), (10, 30, 100, 300, 1000)
GOALS = (Goal("false_alarm_rate", "<=", 0.05), Goal("simulated.share", "<=", 0.05))
GOOD, AS_GOOD = tw.Config(PASSES=10, BACKWARDS=0), tw.Config(PASSES=10, BACKWARDS=1)
DEGRADED = {"1.3x": tw.Config(PASSES=13, BACKWARDS=0), "2x": tw.Config(PASSES=20, BACKWARDS=0)}
SOURCE = """
#include <stdint.h>
void passes(const float *x, float *y, int64_t size) {
    for (int pass = 0; pass < PASSES; pass++)
        for (int64_t n = 0; n < size; n++) {
            int64_t i = BACKWARDS ? size - 1 - n : n;
            y[i] = 2 * x[i];
            __asm__ volatile("" ::: "memory");
        }
}
"""


class Ground:
    """The kernel, a session of its own, and bundles of decisions for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "passes.c").write_text(SOURCE)
        self.session = tw.Session(store=MemoryStore(), pool="serial", cache=str(folder))
        backend = tw.C(folder / "passes.c", flags="-O1", sizes="arguments")
        space = tw.Space(tw.Knob("PASSES", [16, 10, 13, 20]), tw.Knob("BACKWARDS", [0, 1]))

        def passes(x: tw.In("N"), y: tw.Out("N")) -> None: ...  # type: ignore[valid-type]

        declared = {"backend": backend, "reference": lambda x: 2 * x, "session": self.session}
        self.kernel = tw.tune(space, **declared)(passes)
        self.keys = [self._key(size) for size in range(10_000, 10_000 + ENTRIES)]

    def _key(self, size: int) -> Any:
        x = np.ones(size, np.float32)
        return self.kernel.problem([x, x]).key

    def entry(self, number: int, config: tw.Config) -> Decision:
        """One entry: healthy, or with its config replaced."""
        tie = Finalist(AS_GOOD, 1e-5, 1e-5, 1e-5)
        return Decision(self.keys[number], config, Evidence(1e-5, 1e-5, 1e-5, ties=(tie,)))

    def bundle(self, degraded: dict[int, tw.Config]) -> BundleStore:
        """A bundle in which some entries are degraded."""
        path = self.folder / "some.bundle"
        digest = write(path, build(self.entry(i, degraded.get(i, GOOD)) for i in range(ENTRIES)))
        return BundleStore(verify_bundle(path, pin=digest))

    def arrival(self, source: Any, entries: int = ENTRIES) -> ArrivalCheck:
        """Where entries are raced, as strictly as in a run over so many of them."""
        return arrival_check.with_corrected_level(
            ArrivalCheck(source, self.session, {"passes": self.kernel}, race_options=SAMPLE_RACE), entries
        )


def raced(
    ground: Ground, arrival: ArrivalCheck, config: tw.Config, places: Sequence[int]
) -> tuple[list[ReraceResult], float]:
    """Entries with that config, and the seconds that each took."""
    began = perf_counter()
    results = [arrival.rerace(ground.entry(int(i), config)) for i in places]
    return results, (perf_counter() - began) / len(places)


def closest(ground: Ground, count: int, rng: np.random.Generator) -> int:
    """The most rounds in which a healthy entry looked slower, in confirming races that nobody asked for."""
    arrival = ground.arrival(None)
    found = []
    for i in rng.permutation(ENTRIES)[:count]:
        setup = arrival.make_setup(ground.entry(int(i), GOOD))
        signs = arrival.count_slower_rounds(setup.kernel.attempt(setup.cases), [GOOD, AS_GOOD])
        found.append(signs[0] if signs else 0)
    return max(found)


def rates(report: Report, ground: Ground, *, quick: bool) -> dict[str, float]:
    """Real races: how often each kind is found bad."""
    rng = np.random.default_rng(0)
    places = rng.permutation(ENTRIES)[: 10 if quick else 300]
    healthy, seconds = raced(ground, ground.arrival(None, RUN), GOOD, places)
    alarms = [result.regressed for result in healthy]
    runs = [any(alarms[at : at + RUN]) for at in range(0, len(alarms), RUN)]
    report.figures |= {
        "healthy_raced": len(alarms),
        "alarms": sum(alarms),
        "alarms_at_most": round(max_bad_share(sum(alarms), len(alarms)), 4),
        "healthy_runs": len(runs),
        "false_alarm_rate": round(sum(runs) / len(runs), 4),
        "seconds_an_entry": round(seconds, 3),
        "closest": closest(ground, 4 if quick else 100, rng),
        "needed": sign_test_threshold(CONFIRMATION_RACES * PROTECTED_ROUNDS, 0.05 / ENTRIES),
        "rounds": CONFIRMATION_RACES * PROTECTED_ROUNDS,
        "detected": {},
    }
    for name, config in DEGRADED.items():
        results, _ = raced(ground, ground.arrival(None), config, rng.permutation(ENTRIES)[: 4 if quick else 100])
        found = sum(result.regressed for result in results)
        report.figures["detected"][name] = {
            "raced": len(results),
            "found": found,
            "rate": round(found / len(results), 4),
            "at_least": round(1 - max_bad_share(len(results) - found, len(results)), 4),
            "slower": round(median([one.slower.ratio for one in results if one.slower] or [1.0]), 3),
        }
    said = report.figures
    report.lines.append(
        f"real: {said['alarms']} alarms in {len(alarms)} healthy entries (at most {said['alarms_at_most']:.1%} each, "
        f"95 %), {seconds:.2f} s an entry; at most {said['closest']} of {said['rounds']} rounds spoke against one, "
        f"{said['needed']} are needed"
    )
    for name, one in said["detected"].items():
        report.lines.append(
            f"real: {one['found']} of {one['raced']} entries with {name} the work found (at least "
            f"{one['at_least']:.1%}); they take {one['slower']} times as long as the fastest raced"
        )
    return {name: one["rate"] for name, one in said["detected"].items()}


class Simulated:
    """An attempt on a simulated machine, as far as it is raced."""

    def __init__(self, machine: SimulatedMachine, seconds: float) -> None:
        self._machine, self._count = machine, max(1, round(1e-3 / seconds))

    def race(self, configs: Sequence[tw.Config], terms: RaceOptions, kept: Sequence[int] = ()) -> Race:
        """A race of its first candidates."""
        return run_race([partial(self._visit, number) for number in range(len(configs))], terms, protected=kept)

    def _visit(self, number: int) -> float:
        return self._machine.run(number, self._count) / self._count


def simulated(report: Report, *, quick: bool) -> None:
    """Alarms of entries at the very edge of what is healthy, where the truth is known."""
    rng, count = np.random.default_rng(2), 70 if quick else 2100
    arrival = ArrivalCheck(None, tw.Session(store=MemoryStore(), pool="serial"))
    strict, slower = sign_test_threshold(CONFIRMATION_RACES * PROTECTED_ROUNDS, 0.05 / ENTRIES), []
    for number in range(count):
        seconds = float(np.exp(rng.uniform(np.log(30e-6), np.log(1e-3))))
        truth = Truth(((1 + MAX_SLOWDOWN) * seconds, seconds), 1)
        machine = SimulatedMachine(truth, NATURAL[number % len(NATURAL)], [2, number])
        signs = arrival.count_slower_rounds(Simulated(machine, seconds), [GOOD, AS_GOOD])
        slower.append(signs[0] if signs else 0)
    alarms = sum(one >= sign_test_threshold(CONFIRMATION_RACES * PROTECTED_ROUNDS, 0.05) for one in slower)
    report.figures["simulated"] = {
        "entries": count,
        "alarms_at_5_percent": alarms,
        "share": round(alarms / count, 4),
        "share_at_most": round(max_bad_share(alarms, count), 4),
        "alarms_at_the_level_of_a_run": sum(one >= strict for one in slower),
    }
    report.lines.append(
        f"simulated: of {count} entries at the edge {alarms / count:.1%} alarms at a level of 5 % "
        f"(at most {max_bad_share(alarms, count):.1%}), "
        f"{sum(one >= strict for one in slower)} at that of a run of {ENTRIES}"
    )


def curve(report: Report, found: dict[str, float]) -> None:
    """Drawn: the chance that a run meets and finds any degraded entry."""
    rng = np.random.default_rng(1)
    report.lines.append(_line(f"drawn: detection rate by entries raced, of {ENTRIES}", [f"{b}" for b in BUDGETS]))
    rows = []
    for share in SHARES:
        wrong = round(share * ENTRIES)
        exact = [1 - miss_probability(budget, ENTRIES, share) for budget in BUDGETS]
        for name, rate in found.items():
            met = np.stack([rng.hypergeometric(wrong, ENTRIES - wrong, budget, DRAWS) for budget in BUDGETS])
            seen = (rng.binomial(met, rate) > 0).mean(axis=1).round(4).tolist()
            rows.append({"share": share, "kind": name, "entries_raced": BUDGETS, "detection": seen})
            report.lines.append(_line(f"  {share:>5.1%} degraded, {name}", [f"{x:.1%}" for x in seen]))
        rows.append(
            {"share": share, "kind": "exact", "entries_raced": BUDGETS, "detection": [round(x, 4) for x in exact]}
        )
        report.lines.append(
            _line(f"  {share:>5.1%} degraded, if each that is met is found", [f"{x:.1%}" for x in exact])
        )
    report.figures["curve"] = rows


def _line(label: str, cells: Sequence[str]) -> str:
    return f"{label:<50}" + "".join(f"{cell:>8}" for cell in cells)


def whole(report: Report, ground: Ground, shares: Sequence[float], seconds: float) -> None:
    """Real runs over real bundles, from the file to the statement."""
    report.figures["runs"] = []
    for share in shares:
        rng = np.random.default_rng(int(1000 * share))
        chosen = rng.permutation(ENTRIES)[: round(share * ENTRIES)]
        kinds = list(DEGRADED.values())
        bundle = ground.bundle({int(i): kinds[n % 2] for n, i in enumerate(chosen)})
        entries, _ = arrival_check.select_relevant(ground.arrival(bundle), bundle.decisions())
        says = arrival_check.rerace_sample(ground.arrival(bundle), entries.values(), Budget(seconds=seconds)).statement
        report.check(share > 0 or says.bad == 0, "an alarm in a healthy bundle")
        report.figures["runs"].append(
            {"share": share, "drawn": says.drawn, "bad": says.bad, "most": round(says.most, 4)}
        )
        report.lines.append(
            f"real run, {share:.1%} degraded, {seconds:g} s: "
            f"{says.drawn} raced, {says.bad} bad, at most {says.most:.1%}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Race for real, then draw."""
    given = parser(__doc__).parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        found = rates(report, ground, quick=given.quick)
        simulated(report, quick=given.quick)
        curve(report, found)
        whole(report, ground, (0.2,) if given.quick else (0.0, *SHARES), 0.5 if given.quick else 10.0)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
