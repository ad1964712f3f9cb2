"""Our strategies beside Kernel Tuner's by the community's methodology: autotuning_methodology 1.1.0, its own score.

    python benchmarks/methodology.py [--quick] [--json] [--spaces DIR] [--repeats 100] [--strategies portfolio,...]

Each strategy is run by the package itself, in Kernel Tuner's simulation mode, on recordings that are written out for
it as the benchmark hub has them: a T1 input, a cache and a T4 file each. The score of a strategy is

    P(t) = (random(t) - F(t)) / (random(t) - optimum): 0 is random search, 1 the optimum at once,

averaged over time up to where random search is 95 % of the way from the median to the optimum, and over spaces. Time
is what compiling, verifying and running took when it was recorded, plus what the strategy itself takes now, by the
clock on the wall: keep the machine quiet. All settings but the repeats are the package's defaults; the figures are
means of several scorings of the same runs.

DIR holds recordings, `KERNEL-DEVICE.parquet`, of the hub's convolution and dedispersion on six devices. Where it does
not, two made-up ones are taken, and the report says so. With `--work DIR` what is done is kept there and not done
again; what our strategies did counts as done only for the same source. Spaces and strategies run side by side, one
process each, `--jobs` at a time. Needs the dependency group `peers`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from importlib import resources
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from figures import Goal, Report, parser

import tunewright
from tunewright.backends.replay import Recording
from tunewright.interop import kernel_tuner, t4
from tunewright.interop.table import FRAMEWORK, RUNS, VERIFY, ForeignTable
from tunewright.model.trial import Timing, Trial
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob

HERE = Path(__file__).resolve().parent
SHARED = HERE.parent.parent / "shared" / "spaces"
KERNELS = ("convolution", "dedispersion")
DEVICES = ("A100", "A4000", "A6000", "MI250X", "W6600", "W7800")
PEERS = ("simulated_annealing", "genetic_algorithm", "adaptive_tabu_greywolf")
PLUG = "from tunewright.interop.kernel_tuner_strategy import KernelTunerStrategy as Search\n\n__all__ = ['Search']\n"
SCORINGS = 20
"""How often the same runs are scored: the package draws samples of them, and where few evaluations lie before the
cut-off (8 on convolution-W6600) one scoring differs from the next by more than a tenth."""

GOALS = (Goal("score", ">=", 0.8), Goal("ahead", "==", True))


@dataclass(frozen=True)
class Job:
    """One strategy on one space, as often as asked: what a process does, and where its result is kept."""

    folder: Path
    kernel: str
    device: str
    strategy: str
    source: str  # a digest of what our strategy is made of; nothing for a peer
    repeats: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.strategy} on {self.kernel}-{self.device}"

    @property
    def done(self) -> Path:
        """The package's file of results; its place says what it depends on."""
        tables = hashlib.sha256((self.folder / "hub" / self.kernel / f"{self.device}_T4.json").read_bytes()).hexdigest()
        digest = hashlib.sha256(f"{self.source} {tables} {self.repeats} {self.seed}".encode()).hexdigest()[:16]
        return self.folder / "done" / self.strategy / f"{self.device}_{self.kernel}-{digest}.npz"


@dataclass(frozen=True)
class Scores:
    """Scores by scoring, space and strategy; the same runs are scored repeatedly, since the package draws samples."""

    strategies: list[str]
    spaces: list[str]
    values: np.ndarray

    def total(self, *, spread: bool = False) -> dict[str, float]:
        """Each strategy's mean over spaces, or how much the draws alone move it."""
        totals = self.values.mean(axis=1)
        chosen = totals.std(axis=0) if spread else totals.mean(axis=0)
        return {name: round(float(value), 4) for name, value in zip(self.strategies, chosen, strict=True)}

    def by_space(self) -> dict[str, dict[str, float]]:
        """Each strategy's score on each space."""
        rows = zip(self.spaces, self.values.mean(axis=0).round(4).tolist(), strict=True)
        return {space: dict(zip(self.strategies, row, strict=True)) for space, row in rows}


def code() -> str:
    """A digest of the source that our strategies are made of."""
    root = Path(tunewright.__file__).parent
    files = sorted(path for part in ("strategies", "spaces", "interop") for path in (root / part).glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def recorded(path: Path) -> ForeignTable:
    """The recording at `path`, with what its table says beyond ours: runs, and what verifying took."""
    from pyarrow import parquet

    recording, about = Recording.read(path), json.loads(path.with_suffix(".json").read_text())
    columns = parquet.read_table(path).to_pydict()
    names = {"n_reps": RUNS, "verification_ms": VERIFY, "framework_ms": FRAMEWORK}
    kept = {figure: columns[column] for column, figure in names.items() if column in columns}
    trials = [
        Trial(
            trial.config, trial.outcome, trial.build_seconds, trial.run_seconds, {f: float(kept[f][row]) for f in kept}
        )
        for row, trial in enumerate(recording.trials.values())
    ]
    sizes = tuple(about.get("problem_size", (1,)))
    return ForeignTable(
        about["kernel"], about["device"], recording.space.knobs, tuple(trials), recording.constraints, sizes
    )


def made_up(device: str) -> ForeignTable:
    """A space that nobody measured: four knobs and a rule, one good region, an uneven floor, some failures."""
    shift = 1 + DEVICES.index(device)
    knobs = (
        Knob("block_size_x", [16, 32, 64, 128, 256]),
        Knob("tile", [1, 2, 4, 8, 16, 32]),
        Knob("unroll", [1, 2, 3, 4, 5, 6, 7, 8]),
        Knob("vector", [1, 2, 4]),
    )
    trials = []
    for values in product(*(knob.values for knob in knobs)):
        config = Config(dict(zip((knob.name for knob in knobs), values, strict=True)))
        block, tile, unroll, vector = (int(value) for value in values)
        if block * tile > 2048:
            continue
        far = abs(math.log2(block * tile) - 6 - shift % 3) + abs(unroll - 3 - shift) / 3 + 1 / vector
        rough = (block * 7 + tile * 13 + unroll * 29 + vector * 31 + shift * 17) % 23 / 100
        took = 1e-3 * (1 + far) * (1 + rough)
        trials.append(Trial(config, Timing((took,), "made up"), 0.8 + rough, 32 * took, {RUNS: 32.0}))
    return ForeignTable("made_up", device, knobs, tuple(trials), ("block_size_x * tile <= 2048",), (1024,))


def gather(folder: Path, *, quick: bool) -> tuple[dict[tuple[str, str], ForeignTable], bool]:
    """The spaces by kernel and device, and whether they are made up."""
    kernels, devices = (KERNELS[:1], DEVICES[:2]) if quick else (KERNELS, DEVICES)
    if all((folder / f"{kernel}-{device}.parquet").is_file() for kernel in kernels for device in devices):
        found = {(k, d): recorded(folder / f"{k}-{d}.parquet") for k in kernels for d in devices}
        return {at: replace(table, kernel=at[0]) for at, table in found.items()}, False
    return {("made_up", device): made_up(device) for device in DEVICES[:2]}, True


def lay_out(work: Path, tables: dict[tuple[str, str], ForeignTable]) -> None:
    """Write the spaces as the hub has them, and the file through which ours are plugged in."""
    for (kernel, device), table in tables.items():
        place = work / "hub" / kernel
        place.mkdir(parents=True, exist_ok=True)
        (place / "empty.cu").write_text("// replayed, never compiled\n")
        t4.write_input(table, work / "hub" / f"{kernel}.json", f"{kernel}/empty.cu")
        kernel_tuner.write(table, place / f"{device}.json")
        t4.write(table, place / f"{device}_T4.json")
    (work / "plug.py").write_text(PLUG)


def experiment(work: Path, folder: Path, jobs: Sequence[Job]) -> Path:
    """An experiment file for `jobs`, whose results go to `folder`; every strategy runs on every space of theirs."""
    said: dict[str, Any] = json.loads(
        resources.files("autotuning_methodology").joinpath("experiments_defaults.json").read_text()
    )
    kernels, devices = (list(dict.fromkeys(getattr(job, part) for job in jobs)) for part in ("kernel", "device"))
    said |= {"name": "tunewright", "parent_folder": str(folder)}
    said["search_strategies"] = [described(work, job) for job in {job.strategy: job for job in jobs}.values()]
    said["experimental_groups_defaults"] |= {
        "applications": [
            {"name": k, "folder": str(work / "hub"), "input_file": f"{k}.json", "objective_performance_keys": ["time"]}
            for k in kernels
        ],
        "gpus": devices,
        "pattern_for_full_search_space_filenames": {"regex": str(work / "hub" / "${applications}" / "${gpus}_T4.json")},
        "repeats": jobs[0].repeats,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "experiment.json"
    path.write_text(json.dumps(said, indent=1))
    return path


def described(work: Path, job: Job) -> dict[str, Any]:
    """A strategy as an experiment file names it."""
    plain = {"name": job.strategy, "display_name": job.strategy, "autotuner": "KernelTuner"}
    if not job.source:
        return plain | {"search_method": job.strategy}
    return plain | {
        "search_method": "Search",
        "custom_search_method_path": str(work / "plug.py"),
        "search_method_hyperparameters": [{"name": "strategy", "value": job.strategy}],
    }


@contextlib.contextmanager
def silent(log: Path) -> Iterator[None]:
    """What the package prints goes to a file; by descriptor, since its progress bars keep the streams they find."""
    kept = [(number, os.dup(number)) for number in (1, 2)]
    with log.open("a") as file:
        try:
            for number, _ in kept:
                os.dup2(file.fileno(), number)
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in kept:
                os.dup2(before, number)
                os.close(before)


def perform(job: Job) -> float:
    """Run one job in this process and keep its result; how many seconds it took."""
    start = time.perf_counter()
    folder = Path(tempfile.mkdtemp(dir=job.folder, prefix="job-"))
    try:
        with silent(job.folder / f"{job.strategy}-{job.kernel}-{job.device}.log"):
            from autotuning_methodology.experiments import execute_experiment

            random.seed(job.seed)
            np.random.seed(job.seed)
            execute_experiment(str(experiment(job.folder, folder, [job])), full_validate_on_load=False)
        made = folder / "run" / job.strategy / f"{job.device}_{job.kernel}.npz"
        job.done.parent.mkdir(parents=True, exist_ok=True)
        os.replace(made, job.done)
    finally:
        shutil.rmtree(folder)
    return time.perf_counter() - start


def perform_all(jobs: Sequence[Job], width: int, report: Report) -> None:
    """Run what is not done yet, `width` processes side by side."""
    waiting = [job for job in reversed(jobs) if not job.done.is_file()]  # the last kernel takes longest: first
    say(f"{len(jobs) - len(waiting)} of {len(jobs)} runs are done; {len(waiting)} to do, {width} at a time")
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with ProcessPoolExecutor(width, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(perform, job): job for job in waiting}
        for number, future in enumerate(as_completed(running), start=1):
            job = running[future]
            if (error := future.exception()) is not None:
                traceback.print_exception(error)
            if report.check(error is None, f"{job.name} failed: {error}"):
                say(f"{number}/{len(waiting)} {job.name}: {future.result():.1f} s")


def score(work: Path, jobs: Sequence[Job]) -> Scores:
    """The package's score of each strategy over all spaces, and space by space."""
    from autotuning_methodology import report_experiments as package
    from autotuning_methodology.experiments import execute_experiment

    with tempfile.TemporaryDirectory(dir=work, prefix="score-") as name, silent(work / "score.log"):
        folder = Path(name)
        for job in jobs:
            place = folder / "run" / job.strategy
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(job.done, place / f"{job.device}_{job.kernel}.npz")
        said, groups, statistics, results = execute_experiment(
            str(experiment(work, folder, jobs)), full_validate_on_load=False
        )
        settings, drawn = said["statistics_settings"], said["visualization_settings"]
        cut = settings["cutoff_percentile"], settings["cutoff_percentile_start"]
        level, steps = drawn["confidence_level"], drawn["resolution"]
        data = package.get_aggregation_data(folder, said, statistics, unique(groups), results, *cut, level, steps)
        np.random.seed(0)
        found = [
            [
                [np.mean(curve) for curve in package.get_strategies_aggregated_performance([space], level)[0]]
                for space in data.values()
            ]
            for _ in range(SCORINGS)
        ]
    return Scores(
        [strategy["name"] for strategy in unique(groups)],
        ["-".join(reversed(at.split("+"))) for at in data],
        np.array(found),
    )


def unique(strategies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The package hands back one for each space."""
    return list({strategy["name"]: strategy for strategy in strategies}.values())


def say(line: str) -> None:
    """Progress, apart from the report."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def measure(given: Any, work: Path, report: Report) -> None:
    """Lay out, run, score."""
    tables, invented = gather(given.spaces, quick=given.quick)
    lay_out(work, tables)
    ours, peers = ([name for name in text.split(",") if name] for text in (given.strategies, given.peers))
    repeats = given.repeats or (3 if given.quick else 100)
    sources = dict.fromkeys(peers, "") | dict.fromkeys(ours, code())
    jobs = [
        Job(work, kernel, device, strategy, source, repeats, given.seed)
        for (kernel, device) in tables
        for strategy, source in sources.items()
    ]
    if invented:
        report.lines.append(f"no recordings of the hub in {given.spaces}; two made-up spaces are searched instead")
    perform_all(jobs, given.jobs, report)
    if report.wrong:
        return
    scores = score(work, jobs)
    total, by_space = scores.total(), scores.by_space()
    best = max(ours, key=lambda name: total[name]) if ours else None
    report.figures |= {"spaces": "made up" if invented else "given", "repeats": repeats}
    report.figures |= {"scores": total, "scoring_sd": scores.total(spread=True), "by_space": by_space}
    if best is not None:
        report.figures |= {"score": total[best], "ahead": all(total[best] > total[peer] for peer in peers)}
    names = sorted(total, key=lambda name: -total[name])
    report.lines.append(f"{repeats} repeats on {len(tables)} spaces; 0 is random search, 1 the optimum at once")
    report.lines += [f"  {name:<26} {total[name]:.3f}" for name in names]
    report.lines.append("  " + " " * 26 + "".join(f"{name[:14]:>16}" for name in names))
    report.lines += [f"  {at:<26}" + "".join(f"{found[n]:>16.3f}" for n in names) for at, found in by_space.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the spaces, let the package run every strategy, report its scores."""
    takes = parser(__doc__)
    takes.add_argument("--spaces", type=Path, default=SHARED, metavar="DIR", help="where the recordings lie")
    takes.add_argument("--repeats", type=int, help="of each strategy on each space; 100, or 3 if quick")
    takes.add_argument("--strategies", default="portfolio", help="ours, by name, with commas between")
    takes.add_argument("--peers", default=",".join(PEERS), help="Kernel Tuner's")
    takes.add_argument("--work", type=Path, metavar="DIR", help="keep what is done here, and go on from it")
    takes.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes side by side")
    takes.add_argument("--seed", type=int, default=0)
    given = takes.parse_args(arguments)
    report = Report()
    try:
        import autotuning_methodology  # noqa: F401
    except ImportError:
        report.lines.append("autotuning_methodology is not installed (dependency group `peers`); nothing is measured")
        report.figures["skipped"] = "autotuning_methodology is not installed"
        return report.finish((), as_json=given.json)
    with contextlib.ExitStack() as stack:
        if given.work is None:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="methodology-")))
        else:
            work = given.work.resolve()
            work.mkdir(parents=True, exist_ok=True)
        measure(given, work, report)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
