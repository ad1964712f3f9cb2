"""Record whole spaces of this CPU: every config of kernels of many kinds in C, built, verified and timed.

    python benchmarks/record_spaces.py [--quick] [--json] [--only KERNEL] [--passes N] [--into DIR] [--device NAME]

The kernels are in space_kinds.py: products, convolutions, stencils, sparse matrices, sorting, transforms, counting,
n bodies, transposes, running sums, searching, softmax, look-ups, medians.

Every config is built once by the C back end, two at a time, and compared with numpy once; tile sizes and orders of
loops are variables in some kernels, so that one build serves many configs. Then all are timed in several
passes, each in another order, by CPU time: a few bursts of a millisecond, each beside a burst of one and the same
config, because on a busy machine the same code takes 1.0 or 1.5 times as long from one moment to the next. A pass keeps
the median of the ratios; the fastest tenth is timed in twelve more passes. `time_ms` is the median over the passes
times the least time of that config in a pass, `time_std_ms` the standard deviation over the passes, `benchmark_ms` what
one pass spent on it.

What is done is kept in the cache: a run that was cut short goes on where it stopped, and `--passes` adds to those made.
Nearly all of the time is the compiler's. `compile_ms` and `benchmark_ms` are wall time: on cores shared with other
work, several times what idle cores need. `--quick` records a few configs of each into a temporary folder, to see that
it works.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, c_int, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures import Report, parser
from numpy.typing import NDArray
from space_kinds import FLAGS, JOBS, Job

import tunewright as tw
from tunewright.backends.host import cpu, digest
from tunewright.backends.replay import Recording
from tunewright.errors import BackendError
from tunewright.measure.clock import make_sampler
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.stores.artifacts import read_artifact

KEPT = Path(__file__).resolve().parent.parent / "spaces"
PASSES, PAIRS = 3, 4
FASTEST, MORE = 0.1, 12
"""The share of configs that is timed in more passes, and how many: which is the best must not be luck."""

FEW = 24
"""Configs of a quick recording."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Built:
    """What came of building one config: where it is, or why not; and how long it took."""

    artifact: str
    refused: str
    seconds: float


def build_all(job: Job, configs: Sequence[tw.Config], notes: Path) -> list[Built]:
    """Build every config, two at a time; what the notes say is built already is not built again."""
    signature = Signature.of(job.kernel.parameters, job.args())
    known: dict[str, Built] = {}
    if notes.is_file():
        lines = (json.loads(line) for line in notes.read_text().splitlines())
        known = {line.pop("config"): Built(**line) for line in lines}

    def build(config: tw.Config) -> Built:
        config = job.compiled(config)
        if (before := known.get(str(config))) and (before.refused or Path(before.artifact).is_file()):
            return before
        began = time.perf_counter()
        try:
            artifact, refused = str(job.kernel.backend.build(job.kernel.kernel, config, signature)), ""
        except BackendError as error:
            artifact, refused = "", str(error)
        made = Built(artifact, refused, time.perf_counter() - began)
        file.write(json.dumps({"config": str(config)} | vars(made)) + "\n")
        known[str(config)] = made
        return made

    with (
        notes.open("a", buffering=1) as file,
        ThreadPoolExecutor(2) as pool,
    ):  # each waits for a compiler, a process of its own
        return list(told(pool.map(build, configs), len(configs), "built"))


def told(items: Iterator[Any], count: int, done: str) -> Iterator[Any]:
    """The items, with a line of progress now and then."""
    began, last = time.monotonic(), time.monotonic()
    for number, item in enumerate(items, 1):
        if time.monotonic() - last > 20 or number == count:
            last = time.monotonic()
            say(f"{done} {number:,} of {count:,} in {last - began:.0f} s")
        yield item


@dataclass(frozen=True)
class Timed:
    """What came of timing: a row a config, a column a pass; NaN where it failed; why; and seconds spent on a pass."""

    seconds: Floats
    wrong: dict[int, str]
    spent: Floats


def time_all(job: Job, configs: Sequence[tw.Config], built: Sequence[Built], folder: Path, passes: int) -> Timed:
    """Verify every config and time it in passes of different order; a pass that is kept is not made again."""
    kernel, args = job.kernel, job.args()
    expected = job.reference(*(array.astype(np.float64) for array in args[:-1]))
    poison = np.nan if args[-1].dtype.kind == "f" else np.iinfo(args[-1].dtype).max
    visits, wrong, libraries = {}, {}, {}
    for i, one in enumerate(told(iter(built), len(built), "loaded and verified")):
        if one.refused:
            continue
        launch = load(job, configs[i], Path(one.artifact), libraries)
        args[-1].fill(poison)
        launch(*args)
        if np.allclose(args[-1], expected, rtol=1e-4, atol=1e-3):
            visits[i] = make_sampler(kernel.backend.timer(launch, args, 1), None)
        else:
            wrong[i] = "the result differs from the reference"
    seconds, spent = all_passes(visits, len(built), folder, passes)
    return Timed(seconds, wrong, spent)


def load(job: Job, config: tw.Config, artifact: Path, libraries: dict[Path, CDLL]) -> Callable[..., Any]:
    """What runs a config; knobs of run time are set before each launch."""
    if not job.at_run_time:
        return job.kernel.backend.load(job.kernel.kernel, artifact)
    if artifact not in libraries:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(read_artifact(artifact)[0])
            file.flush()
            libraries[artifact] = CDLL(file.name)
    library = libraries[artifact]
    knobs = [(c_int.in_dll(library, f"knob_{name}"), int(config[name])) for name in job.at_run_time]
    function = library[job.kernel.name]
    function.restype = None

    def launch(*args: NDArray[Any]) -> None:
        for knob, value in knobs:
            knob.value = value
        function(*(c_void_p(array.ctypes.data) for array in args))

    return launch


def one_pass(visits: dict[int, Callable[[], float]], count: int, kept: Path, number: int) -> Floats:
    """Times of every config as ratios to the first, seconds spent, and seconds of the first; in random order."""
    if kept.is_file():
        return np.asarray(np.load(kept), dtype=np.float64)
    found, firsts = np.full((3, count), np.nan), []
    first = visits[min(visits)]
    order = np.random.default_rng(number).permutation(list(visits))
    for i in told(iter(order.tolist()), len(order), f"pass {number + 1}: timed"):
        began = time.perf_counter()
        pairs = np.array([(visits[i](), first()) for _ in range(PAIRS)])
        found[0, i] = np.median(pairs[:, 0] / pairs[:, 1])
        found[1, i] = time.perf_counter() - began
        firsts.append(np.median(pairs[:, 1]))
    found[2] = np.median(firsts)
    np.save(kept, found)
    return found


def all_passes(visits: dict[int, Callable[[], float]], count: int, folder: Path, passes: int) -> tuple[Floats, Floats]:
    """Seconds of every config, a column a pass, and seconds spent on it in a pass."""
    made = [one_pass(visits, count, folder / f"pairs-{number}.npy", number) for number in range(passes)]
    ratios, spent, firsts = np.stack(made, axis=-1)
    best = np.argsort(np.median(ratios, axis=-1))[: max(2, int(FASTEST * len(visits)))]
    fastest = {int(i): visits[int(i)] for i in sorted({*best.tolist(), min(visits)})}
    mark = digest(*map(str, fastest))[:8]
    more = [
        one_pass(fastest, count, folder / f"fastest-{mark}-{number}.npy", passes + number) for number in range(MORE)
    ]
    return np.column_stack([ratios, *(one[0] for one in more)]) * firsts.min(), spent.mean(axis=-1)


def trials_of(configs: Sequence[tw.Config], built: Sequence[Built], timed: Timed) -> list[Trial]:
    """What was measured, as the library's trials."""
    made = []
    for i, (config, one) in enumerate(zip(configs, built, strict=True)):
        outcome: Timing | Failure
        if one.refused:
            outcome = Failure(Stage.BUILD, Kind.REFUSED, one.refused)
        elif i in timed.wrong:
            outcome = Failure(Stage.VERIFY, Kind.WRONG, timed.wrong[i])
        else:
            outcome = Timing((short(np.nanmedian(timed.seconds[i])),), "thread")
        ran = 0.0 if np.isnan(timed.spent[i]) else short(timed.spent[i])
        made.append(Trial(config, outcome, short(one.seconds), ran))
    return made


def short(number: float) -> float:
    """Five digits: a table of more is twice as large and says nothing more."""
    return float(f"{number:.5g}")


def write(path: Path, job: Job, device: str, trials: Sequence[Trial], timed: Timed) -> None:
    """The recording as the library keeps it, with the spread of each time, and what was recorded how."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spreads = {t.config: np.nanstd(timed.seconds[i], ddof=1) for i, t in enumerate(trials) if t.works}
    by_config = {trial.config: trial for trial in trials}
    Recording(job.kernel.name, device, job.kernel.space, by_config, job.constraints, spreads).write(path)
    about = json.loads(path.with_suffix(".json").read_text())
    about |= {
        "shapes": [array.shape for array in job.args()],
        "compiler": "; ".join(one.version for one in job.kernel.backend.compilers.values()),
        "flags": FLAGS,
        "at_run_time": list(job.at_run_time),
        "passes": timed.seconds.shape[1] - MORE,
        "passes_of_the_fastest": timed.seconds.shape[1],
    }
    path.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


def summary(trials: Sequence[Trial], timed: Timed) -> dict[str, Any]:
    """What kind of space it is, and how noisy its times are."""
    seconds = timed.seconds[~np.isnan(timed.seconds[:, 0])]
    middle = np.nanmedian(seconds, axis=1)
    return {
        "configs": len(trials),
        "failed": sum(not trial.works for trial in trials),
        "best_ms": short(middle.min() * 1e3),
        "median_over_best": round(float(np.median(middle) / middle.min()), 2),
        "worst_over_best": round(float(middle.max() / middle.min()), 1),
        "within_1": int((middle <= 1.01 * middle.min()).sum()),
        "within_5": int((middle <= 1.05 * middle.min()).sum()),
        "within_10": int((middle <= 1.1 * middle.min()).sum()),
        "spread": round(float(np.median(np.nanstd(seconds, axis=1, ddof=1) / middle)), 4),
        "build_s": round(float(np.mean([trial.build_seconds for trial in trials])), 3),
    }


def device_name() -> str:
    """A short name for this kind of processor: by its widest vectors."""
    features = set(cpu().features)
    return next((f"cpu-{name}" for name, flag in (("avx512", "avx512f"), ("avx2", "avx2")) if flag in features), "cpu")


def record(name: str, into: Path, device: str, passes: int, *, quick: bool) -> dict[str, Any]:
    """Record one kernel, or a few configs of it; its summary."""
    job = JOBS[name]
    configs = list(job.kernel.space)
    if quick:
        configs = list(dict.fromkeys(job.kernel.space.sample(np.random.default_rng(0), FEW)))
    folder = (into if quick else job.kernel.kernel.cache) / "recording" / f"{name}-{job.mark}"
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{name}: {len(configs):,} configs")
    began = time.monotonic()
    built = build_all(job, configs, folder / "builds.jsonl")
    timed = time_all(job, configs, built, folder, passes)
    trials = trials_of(configs, built, timed)
    write(into / f"{name}-{device}.parquet", job, device, trials, timed)
    return summary(trials, timed) | {"wall_s": round(time.monotonic() - began)}


def say(line: str) -> None:
    """Progress, apart from the report."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def add_options(takes: ArgumentParser, jobs: Collection[str]) -> None:
    """Let a recorder take what all of them take."""
    takes.add_argument("--only", choices=jobs, help="one instead of all")
    takes.add_argument("--into", type=Path, default=KEPT, metavar="DIR", help="where recordings are kept")
    takes.add_argument("--passes", type=int, default=PASSES, help="over all configs")
    takes.add_argument("--device", default=device_name(), help="what to call this processor")


def record_all(given: Namespace, jobs: Collection[str], record_one: Callable[..., dict[str, Any]]) -> int:
    """Record the jobs that are asked for, and say what was recorded."""
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        into = Path(scratch) if given.quick else given.into
        for name in [given.only] if given.only else jobs:
            said = report.figures[name] = record_one(name, into, given.device, given.passes, quick=given.quick)
            back = Recording.read(into / f"{name}-{given.device}.parquet")
            report.check(len(back.trials) == said["configs"], f"{name}: a recording reads back as another")
            report.lines.append(f"{name}: " + ", ".join(f"{key} {value}" for key, value in said.items()))
    return report.finish((), as_json=given.json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record kernels, and say what was recorded."""
    takes = parser(__doc__)
    add_options(takes, JOBS)
    return record_all(takes.parse_args(arguments), JOBS, record)


if __name__ == "__main__":
    sys.exit(main())
