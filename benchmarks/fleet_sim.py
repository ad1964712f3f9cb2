"""Fleet, simulated: how far one driver and one store carry, up to 10,000 devices; what 8 devices do for a search.

    python benchmarks/fleet_sim.py [--quick] [--json] [--spaces DIR] [--only scale|check|speedup|transfer]

A discrete-event simulation. Compile and run times are the recorded ones of six kinds of devices; what driver and store
take per trial and per portion is measured here first. `check` holds it to real runs through the pool on 1 to 8 raylets.
`speedup`: the same seeds on one device and on eight. `transfer`: a campaign over three kinds of devices, with what the
others found and without.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from figures import Goal, Report, parser
from numpy.typing import NDArray
from search import OWN, SHARED

from tunewright import Config
from tunewright.cases.inputs import Inputs
from tunewright.fleet.campaign.ledger import CampaignLedger
from tunewright.fleet.campaign.plan import CampaignItem, CampaignPlan
from tunewright.fleet.campaign.portion import PortionRequest, PortionResult
from tunewright.fleet.campaign.scheduler import CampaignDevice, CampaignScheduler
from tunewright.model.trial import Timing, Trial, TrialRequest
from tunewright.pools.worker import IsolatedAttempt
from tunewright.ports.strategy import Prior, Source
from tunewright.replay.tables import RecordedTable, RecordingFile
from tunewright.stores import locations
from tunewright.strategies.portfolio import Portfolio
from tunewright.testing.keys import other_key
from tunewright.testing.ray_cluster import command, inside, raylets

HERE = Path(__file__).resolve().parent
KINDS = ("A100", "A4000", "A6000", "MI250X", "W6600", "W7800")
KERNELS = ("convolution", "dedispersion")
Times = tuple[NDArray[np.float64], NDArray[np.float64]]
PORTION, DEPTH, BUILDERS = 40, 2, 8
ITEMS = 5000
SEEDS = {True: 2, False: 5}
GOALS = [Goal("speedup_8", ">=", 6.0), Goal("quality_8", "<=", 1.01), Goal("check_error", "<=", 0.1)]


@dataclass(frozen=True)
class Units:
    """Seconds that the one driver and the one store need: measured."""

    trial: float  # the driver, for a trial of a pool that it holds
    portion: float  # the driver, for a portion of a campaign of `ITEMS` items
    record: float  # the store, for a trial
    station: float = 0.0  # a device's own machine, for a trial, beyond what was recorded


class InstantDevices:
    """Devices that answer at once: what is left is the driver."""

    def __init__(self) -> None:
        self.done: list[tuple[CampaignItem, PortionResult]] = []

    def free(self) -> list[CampaignDevice]:
        return [] if self.done else [CampaignDevice("x", "here")]

    def submit(self, device: CampaignDevice, request: PortionRequest) -> None:
        self.done.append((request.item, PortionResult("x", tried=1, gain=2.0, default_seconds=1e-3, remains=0.5)))

    def results(self) -> Iterator[Any]:
        while self.done:
            yield self.done.pop()

    def time_defaults(self, request: PortionRequest) -> dict[CampaignDevice, float]:
        return {}

    def close(self) -> None: ...


class Unwatched:
    """Nobody looks on."""

    def portion_started(self, device: CampaignDevice, request: PortionRequest) -> None: ...

    def portion_finished(self, state: Any, result: Any) -> None: ...


def portion_cost(folder: Path, items: int, portions: int) -> float:
    """Seconds of the driver for a portion, with so many items to choose from."""
    made = tuple(CampaignItem("t", "k", {"N": i}, "here") for i in range(items))
    plan = CampaignPlan("units", made, str(portions), 1, 0.0, {})
    ledger = CampaignLedger(locations.open_authoritative(str(folder / f"{items}.sqlite")), plan)
    began = time.process_time()
    CampaignScheduler(plan, ledger, InstantDevices(), Unwatched()).run()
    return (time.process_time() - began) / portions


def measured(trial: float) -> Units:
    """What driver and store need, in CPU time of this machine: others on it do not count."""
    with tempfile.TemporaryDirectory() as folder:
        portion = portion_cost(Path(folder), ITEMS, 1000)
        store, key = locations.open_authoritative(str(Path(folder) / "s.sqlite")), other_key()
        made = [Trial(Config(step=i), Timing((1e-3,) * 12, "wall"), 0.1, 0.1, at=time.time()) for i in range(500)]
        began = time.process_time()
        for trial_ in made:
            store.record(key, [trial_])
        record = (time.process_time() - began) / len(made)
    return Units(trial, portion, record)


@dataclass
class Server:
    """Something that serves one after another: when it is free again, and how long it was busy."""

    free: float = 0.0
    busy: float = 0.0

    def serve(self, now: float, seconds: float) -> float:
        self.free = max(now, self.free) + seconds
        self.busy += seconds
        return self.free


class Simulation:
    """Devices of which each has its compile and run times; `builders` in all, 0 if nothing is built."""

    def __init__(self, times: list[Times], trials: int, units: Units, *, captains: bool, builders: int) -> None:
        self.times, self.trials, self.units, self.captains, self.builders = times, trials, units, captains, builders
        self.driver, self.store, self.idle = Server(), Server(), builders
        self.heap: list[tuple[float, int, str, int, float, float]] = []
        self.order = count()
        self.waiting: list[deque[float]] = [deque() for _ in times]
        self.unbuilt: deque[tuple[int, float, float]] = deque()
        self.is_busy, self.begun = [False] * len(times), [0] * len(times)
        self.busy, self.done, self.started = 0.0, 0, 0
        self.ended: list[float] = []
        self.sequence: list[float] = []
        rng = np.random.default_rng(0)
        self.rows = [rng.integers(0, len(run), size=min(trials, 4096)) for _, run in times]

    def _start(self, now: float, device: int) -> None:
        """The next trial of a device, asked for."""
        if self.started >= self.trials:
            return
        self.started += 1
        rows, (build, run) = self.rows[device], self.times[device]
        row = rows[self.begun[device] % len(rows)]
        self.begun[device] += 1
        took = self.sequence[self.started - 1] if self.sequence else float(run[row])
        if not self.captains:
            now = self.driver.serve(now, self.units.trial)
        elif self.begun[device] % PORTION == 1:
            now = self.driver.serve(now, self.units.portion)
        self._push(now, "asked", device, float(build[row]), took + self.units.station)

    def _push(self, at: float, what: str, device: int, build: float, run: float) -> None:
        heappush(self.heap, (at, next(self.order), what, device, build, run))

    def _happens(self, now: float, what: str, device: int, build: float, run: float) -> None:
        if what == "asked" and self.builders:
            self.unbuilt.append((device, build, run))
        elif what == "ran":
            self.is_busy[device] = False
            self.done += 1
            self.ended.append(now)
            self._start(self.store.serve(now, self.units.record), device)
        else:
            self.idle += what == "built"
            self.waiting[device].append(run)
        while self.unbuilt and self.idle:
            self.idle -= 1
            one, seconds, rest = self.unbuilt.popleft()
            self._push(now + seconds, "built", one, seconds, rest)
        if self.waiting[device] and not self.is_busy[device]:
            self.is_busy[device], seconds = True, self.waiting[device].popleft()
            self.busy += seconds
            self._push(now + seconds, "ran", device, 0.0, seconds)

    def run(self) -> dict[str, float]:
        """All trials; how fast, and who was how busy."""
        for device in range(len(self.times)):
            for _ in range(DEPTH):
                self._start(0.0, device)
        now = 0.0
        while self.heap:
            now, _, what, device, build, run = heappop(self.heap)
            self._happens(now, what, device, build, run)
        return {
            "rate": self.done / now,
            "devices_busy": self.busy / now / len(self.times),
            "driver_busy": self.driver.busy / now,
            "store_busy": self.store.busy / now,
        }


def simulate(times: list[Times], trials: int, units: Units, *, captains: bool, builders: int) -> dict[str, float]:
    """A simulation, run."""
    return Simulation(times, trials, units, captains=captains, builders=builders).run()


def by_kind(spaces: Path) -> dict[str, list[Path]]:
    """Recordings for each kind of device."""
    if (spaces / f"{KERNELS[0]}-{KINDS[0]}.parquet").is_file():
        return {kind: [spaces / f"{kernel}-{kind}.parquet" for kernel in KERNELS] for kind in KINDS}
    return {path.stem: [path] for path in sorted(OWN.glob("*.parquet"))}


def kinds(spaces: Path) -> list[Times]:
    """Compile and run times of six kinds of devices, as recorded; without these, of the project's own recordings."""
    found = []
    for paths in by_kind(spaces).values():
        trials = [t for path in paths for t in RecordingFile(path).load().trials]
        build, run = (np.nan_to_num([getattr(t, name) for t in trials]) for name in ("build_seconds", "run_seconds"))
        found.append((np.asarray(build), np.maximum(run, 1e-3)))
    return found


def scale(report: Report, quick: bool, spaces: Path, units: Units) -> None:
    """1 to 10,000 devices."""
    recorded, most = kinds(spaces), 50_000 if quick else 1_000_000
    report.lines.append(f"{'devices':>8} {'':>9} {'trials/s':>9} {'devices':>8} {'driver':>7} {'store':>6}")
    for captains in (False, True):
        name, curve = ("captains" if captains else "one pool"), {}
        for devices in (1, 10, 100, 1000, 10_000):
            times = [recorded[i % len(recorded)] for i in range(devices)]
            told = simulate(times, min(most, 2000 * devices), units, captains=captains, builders=BUILDERS * devices)
            curve[str(devices)] = {key: round(value, 4) for key, value in told.items()}
            report.lines.append(
                f"{devices:>8} {name:>9} {told['rate']:>9.1f} {told['devices_busy']:>8.1%} "
                f"{told['driver_busy']:>7.1%} {told['store_busy']:>6.1%}"
            )
        report.figures[name.replace(" ", "_")] = curve


def real(nodes: int, sleeps: list[float]) -> tuple[float, float]:
    """Trials per second through the pool on so many raylets, and the driver's CPU seconds for each."""
    from tunewright.fleet.ray import RayPool

    target = f"{HERE / 'fleet_payload.py'}:told"
    attempt = IsolatedAttempt(None, (Inputs(),), Path(tempfile.gettempdir()), target)  # type: ignore[arg-type]
    configs = [Config(step=i, micro=int(1e6 * seconds)) for i, seconds in enumerate(sleeps)]
    came = RayPool(DEPTH * nodes, f"n{nodes}").run(attempt, map(TrialRequest, configs))
    first, last = window(nodes, sleeps)
    for _ in range(first):
        next(came)
    began, spent = time.perf_counter(), time.process_time()
    for _ in range(last - first):
        next(came)
    wall, cpu = time.perf_counter() - began, time.process_time() - spent
    came.close()  # type: ignore[attr-defined]
    return (last - first) / wall, cpu / (last - first)


def window(nodes: int, sleeps: list[float]) -> tuple[int, int]:
    """The trials that count: after all have begun, before the first have nothing to do."""
    return 12 * nodes, len(sleeps) - DEPTH * nodes


def told(nodes: int, sleeps: list[float], units: Units) -> float:
    """The same, simulated: the same sleeps in the same order."""
    flat = np.zeros(1)
    made = Simulation([(flat, flat)] * nodes, len(sleeps), units, captains=False, builders=0)
    made.sequence = sleeps
    made.run()
    first, last = window(nodes, sleeps)
    return (last - first) / (made.ended[last - 1] - made.ended[first - 1])


def check(report: Report, quick: bool, spaces: Path) -> float:
    """The simulation against real runs; what a machine adds to a trial is learned from the first of them."""
    rng = np.random.default_rng(0)
    # A hundredth of what was recorded: a minute of real time instead of hours.
    pooled = np.concatenate([np.minimum(build + run, 20.0) for build, run in kinds(spaces)]) / 100
    rows = []
    with tempfile.TemporaryDirectory() as homes, raylets(processors=2) as machines:
        for nodes in (1, 2, 4) if quick else (1, 2, 4, 8):
            for i in range(nodes):
                machines.add(f"n{nodes}", Path(homes) / f"{nodes}-{i}")
            sleeps = rng.choice(pooled, size=(60 if quick else 150) * nodes).tolist()
            rows.append((nodes, sleeps, *real(nodes, sleeps)))
    unit, (_, alone, rate, _) = median(row[3] for row in rows), rows[0]
    station = max(0.0, 1 / rate - 1 / told(1, alone, Units(unit, 0.0, 0.0)))
    units, errors = Units(unit, 0.0, 0.0, station), {}
    for nodes, sleeps, rate, _ in rows:
        found = told(nodes, sleeps, units)
        errors[str(nodes)] = {"real": round(rate, 2), "simulated": round(found, 2), "error": round(found / rate - 1, 3)}
        report.lines.append(f"{nodes} raylets: {rate:.1f} trials/s, simulated {found:.1f} ({found / rate - 1:+.1%})")
    report.figures["check"] = errors
    report.figures["check_error"] = max(abs(one["error"]) for number, one in errors.items() if number != "1")
    report.figures["station_seconds_per_trial"] = round(station, 6)
    return unit


def searched(table: RecordedTable, seed: int, width: int, overhead: float, most: int) -> tuple[float, float]:
    """Best time and wall-clock of a search with so many devices, in simulated time."""
    search, heap, order = Portfolio(table.space, np.random.default_rng(seed)), [], count()
    now, best, asked = 0.0, np.inf, 0
    while True:
        while len(heap) < width and asked < most and (wave := search.ask(1)):
            row = table.rows[wave[0]]
            asked += 1
            heappush(heap, (now + float(np.nan_to_num(table.costs[row])) + overhead, next(order), row))
        if not heap:
            return best, now
        now, _, row = heappop(heap)
        search.tell([table.trials[row]])
        best = min(best, table.trials[row].seconds)


def speedup(report: Report, quick: bool, spaces: Path, units: Units) -> None:
    """The same seeds on one device and on eight."""
    paths = [path for paths in by_kind(spaces).values() for path in paths]
    gains, quality = [], []
    for path in paths[:2] if quick else paths:
        table = RecordingFile(path).load()
        most = 60 if quick else 200
        runs = [[searched(table, seed, w, units.trial, most) for w in (1, 8)] for seed in range(SEEDS[quick])]
        gains += [one[1] / eight[1] for one, eight in runs]
        quality.append(median(eight[0] for _, eight in runs) / median(one[0] for one, _ in runs))
    report.figures["speedup_8"] = round(median(gains), 2)
    report.figures["quality_8"] = round(median(quality), 4)
    report.figures["quality_8_by_space"] = [round(one, 4) for one in quality]
    report.lines.append(
        f"8 devices: {median(gains):.2f}x as fast ({min(gains):.2f} - {max(gains):.2f}), best {median(quality):.4f} of "
        f"one device's ({min(quality):.3f} - {max(quality):.3f} by space)"
    )


def evaluations(
    table: RecordedTable, seed: int, earlier: list[tuple[RecordedTable, list[Trial]]], most: int = 200
) -> tuple[int, list[Trial]]:
    """Evaluations until within 5 % of the optimum, and all trials; what earlier devices found comes first."""
    search = Portfolio(table.space, np.random.default_rng(seed))
    search.inform(Prior([Source(one.name, trials) for one, trials in reversed(earlier)]))
    bests = [min(trials, key=lambda trial: trial.seconds).config for _, trials in reversed(earlier)]
    trials: list[Trial] = []
    reached, queue = most, [config for config in dict.fromkeys(bests) if config in table.rows]
    while len(trials) < most and (wave := [queue.pop(0)] if queue else search.ask(1)):
        trial = table.trials[table.rows[wave[0]]]
        trials.append(trial)
        search.tell([trial])
        if reached == most and trial.seconds <= 1.05 * table.optimum:
            reached = len(trials)
    return reached, trials


def transfer(report: Report, quick: bool, spaces: Path) -> None:
    """Three kinds of devices one after another, with what the others found and without."""
    if KINDS[0] not in by_kind(spaces):
        report.lines.append("transfer: needs one kernel recorded on several kinds of devices; see --spaces")
        return
    for kernel in KERNELS:
        tables = [RecordingFile(spaces / f"{kernel}-{kind}.parquet").load() for kind in KINDS[:3]]
        shared: list[list[int]] = [[] for _ in tables]
        alone: list[list[int]] = [[] for _ in tables]
        for seed in range(SEEDS[quick]):
            earlier: list[tuple[RecordedTable, list[Trial]]] = []
            for number, table in enumerate(tables):
                found, trials = evaluations(table, seed, earlier)
                shared[number].append(found)
                alone[number].append(evaluations(table, seed, [])[0])
                earlier.append((table, trials))
        told = {
            kind: {"shared": median(with_), "alone": median(without)}
            for kind, with_, without in zip(KINDS, shared, alone, strict=False)
        }
        report.figures[f"transfer_{kernel}"] = told
        said = ", ".join(f"{kind} {one['alone']:g} -> {one['shared']:g}" for kind, one in told.items())
        report.lines.append(f"{kernel}: evaluations to within 5 %, alone -> with what others found: {said}")


def main() -> int:
    """Measure units, check, simulate."""
    takes = parser(__doc__)
    takes.add_argument("--spaces", type=Path, default=SHARED / "spaces", metavar="DIR", help="recordings")
    takes.add_argument("--only", choices=["scale", "check", "speedup", "transfer"])
    takes.add_argument("--trial", type=float, default=0.003, help="seconds of the driver for a trial, if not measured")
    given = takes.parse_args()
    if given.only in (None, "check") and not inside():
        argv, environ = command([sys.executable, *sys.argv])
        return subprocess.run(argv, env=environ, check=False).returncode
    report, trial = Report(), given.trial
    if given.only in (None, "check"):
        trial = check(report, given.quick, given.spaces)
    units = measured(trial)
    report.figures["units"] = {name: round(value, 7) for name, value in vars(units).items()}
    report.lines.append("units: " + ", ".join(f"{name} {1e3 * value:.3g} ms" for name, value in vars(units).items()))
    if given.only in (None, "scale"):
        scale(report, given.quick, given.spaces, units)
    if given.only in (None, "speedup"):
        speedup(report, given.quick, given.spaces, units)
    if given.only in (None, "transfer"):
        transfer(report, given.quick, given.spaces)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    raise SystemExit(main())
