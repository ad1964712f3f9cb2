"""Record whole spaces of this CPU: every config of kernels of many kinds in C, built, verified and timed.

    python benchmarks/record_spaces.py [--quick] [--json] [--only KERNEL] [--passes N] [--into DIR] [--device NAME]

The kernels are in space_kinds.py: products, convolutions, stencils, sparse matrices, sorting, transforms, counting,
n bodies, transposes, running sums, searching, softmax.

Every config is built once by the C back end, two at a time, and compared with numpy once. Then all are timed in several
passes, each in another order, by CPU time: in each pass the least of three bursts of a millisecond. `time_ms` is the
least over the passes, so that a slow mood of the machine does not stick to the configs it met; `time_std_ms` is the
standard deviation over the passes, which tells how much mood there was. `benchmark_ms` is what one pass spent on it.

What is done is kept in the cache: a run that was cut short goes on where it stopped, and `--passes` adds to those made.
Nearly all of the time is the compiler's. `compile_ms` and `benchmark_ms` are wall time: on cores shared with other
work, several times what idle cores need. `--quick` records a few configs of
each into a temporary folder, to see that it works.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures import Report, parser
from numpy.typing import NDArray
from space_kinds import FLAGS, JOBS, Job

import tunewright as tw
from tunewright.backends.host import cpu
from tunewright.backends.replay import Recording
from tunewright.errors import BackendError
from tunewright.measure.clock import make_sampler
from tunewright.model.signature import Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial

KEPT = Path(__file__).resolve().parent.parent / "spaces"
PASSES, BURSTS = 5, 3
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
        if (before := known.get(str(config))) and (before.refused or Path(before.artifact).is_file()):
            return before
        began = time.perf_counter()
        try:
            artifact, refused = str(job.kernel.backend.build(job.kernel.kernel, config, signature)), ""
        except BackendError as error:
            artifact, refused = "", str(error)
        made = Built(artifact, refused, time.perf_counter() - began)
        file.write(json.dumps({"config": str(config)} | vars(made)) + "\n")
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


def time_all(job: Job, built: Sequence[Built], folder: Path, passes: int) -> Timed:
    """Verify every config and time it in passes of different order; a pass that is kept is not made again."""
    kernel, args = job.kernel, job.args()
    expected = job.reference(*(array.astype(np.float64) for array in args[:-1]))
    poison = np.nan if args[-1].dtype.kind == "f" else np.iinfo(args[-1].dtype).max
    visits, wrong = {}, {}
    for i, one in enumerate(told(iter(built), len(built), "loaded and verified")):
        if one.refused:
            continue
        launch = kernel.backend.load(kernel.kernel, Path(one.artifact))
        args[-1].fill(poison)
        launch(*args)
        if np.allclose(args[-1], expected, rtol=1e-4, atol=1e-3):
            visits[i] = make_sampler(kernel.backend.timer(launch, args, 1), None)
        else:
            wrong[i] = "the result differs from the reference"
    columns = [one_pass(visits, len(built), folder / f"pass-{number}.npy", number) for number in range(passes)]
    seconds, spent = np.stack(columns, axis=-1)
    return Timed(seconds, wrong, spent.mean(axis=-1))


def one_pass(visits: dict[int, Callable[[], float]], count: int, kept: Path, number: int) -> Floats:
    """Seconds a launch, and seconds spent, of every config; the least of some bursts, in random order."""
    if kept.is_file():
        return np.asarray(np.load(kept), dtype=np.float64)
    found = np.full((2, count), np.nan)
    order = np.random.default_rng(number).permutation(list(visits))
    for i in told(iter(order.tolist()), len(order), f"pass {number + 1}: timed"):
        began = time.perf_counter()
        found[0, i] = min(visits[i]() for _ in range(BURSTS))
        found[1, i] = time.perf_counter() - began
    np.save(kept, found)
    return found


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
            outcome = Timing((short(timed.seconds[i].min()),), "thread")
        ran = 0.0 if np.isnan(timed.spent[i]) else short(timed.spent[i])
        made.append(Trial(config, outcome, short(one.seconds), ran))
    return made


def short(number: float) -> float:
    """Five digits: a table of more is twice as large and says nothing more."""
    return float(f"{number:.5g}")


def write(path: Path, job: Job, device: str, trials: Sequence[Trial], timed: Timed) -> None:
    """The recording as the library keeps it, with the spread of each time, and what was recorded how."""
    import pyarrow as pa
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    Recording(job.kernel.name, device, job.kernel.space, {trial.config: trial for trial in trials}).write(path)
    spread = {trial.config: timed.seconds[i].std(ddof=1) * 1e3 for i, trial in enumerate(trials)}
    table = parquet.read_table(path)
    names = job.kernel.space.names
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    spreads = [spread[tw.Config(dict(zip(names, row, strict=True)))] for row in rows]
    column = pa.array([None if np.isnan(value) else short(value) for value in spreads], pa.float32())
    parquet.write_table(table.append_column("time_std_ms", column), path, compression="zstd")
    about = json.loads(path.with_suffix(".json").read_text())
    about |= {
        "constraints": list(job.constraints),
        "shapes": [array.shape for array in job.args()],
        "compiler": job.kernel.backend.compiler[1],
        "flags": FLAGS,
        "passes": timed.seconds.shape[1],
    }
    path.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


def summary(trials: Sequence[Trial], timed: Timed) -> dict[str, Any]:
    """What kind of space it is, and how noisy its times are."""
    seconds = timed.seconds[~np.isnan(timed.seconds[:, 0])]
    ordered = np.sort(seconds, axis=1)
    least = ordered[:, 0]
    return {
        "configs": len(trials),
        "failed": sum(not trial.works for trial in trials),
        "best_ms": short(least.min() * 1e3),
        "median_over_best": round(float(np.median(least) / least.min()), 2),
        "worst_over_best": round(float(least.max() / least.min()), 1),
        "within_1": int((least <= 1.01 * least.min()).sum()),
        "within_5": int((least <= 1.05 * least.min()).sum()),
        "within_10": int((least <= 1.1 * least.min()).sum()),
        # How far the least time is from the next: what is left of the noise in `time_ms`.
        "doubt": round(float(np.median(ordered[:, 1] / least - 1)), 4),
        "spread": round(float(np.median(seconds.std(axis=1, ddof=1) / least)), 4),
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
    timed = time_all(job, built, folder, passes)
    trials = trials_of(configs, built, timed)
    write(into / f"{name}-{device}.parquet", job, device, trials, timed)
    return summary(trials, timed) | {"wall_s": round(time.monotonic() - began)}


def say(line: str) -> None:
    """Progress, apart from the report."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, and say what was recorded."""
    takes = parser(__doc__)
    takes.add_argument("--only", choices=JOBS, help="one kernel instead of all")
    takes.add_argument("--into", type=Path, default=KEPT, metavar="DIR", help="where recordings are kept")
    takes.add_argument("--passes", type=int, default=PASSES, help="over all configs")
    takes.add_argument("--device", default=device_name(), help="what to call this processor")
    given = takes.parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory() as scratch:
        into = Path(scratch) if given.quick else given.into
        for name in [given.only] if given.only else JOBS:
            said = report.figures[name] = record(name, into, given.device, given.passes, quick=given.quick)
            back = Recording.read(into / f"{name}-{given.device}.parquet")
            report.check(len(back.trials) == said["configs"], f"{name}: a recording reads back as another")
            report.lines.append(f"{name}: " + ", ".join(f"{key} {value}" for key, value in said.items()))
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
