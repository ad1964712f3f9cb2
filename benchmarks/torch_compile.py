"""Models compiled in the way that wins, beside every way that PyTorch offers: one run, in turns.

    python benchmarks/torch_compile.py [--quick] [--json] [--models layer-1x1-float32,mlp-float32] [--threads 1,2]
        [--budget 7,20m] [--each 6,5m] [--sittings 3] [--keep FOLDER]

A row is a model and a number of threads. A process chooses (`tunewright.torch.compile` with a fresh store) and ends;
others then load what was decided, without measuring, and time all of them in turns: eager, torch.compile's default,
max-autotune with freezing, freezing with library products, freezing with C++ products, ours. So nothing is judged by
the samples that chose it. A visit lasts 40 ms, of which the first half does not count: each is timed as if it ran
alone, with its weights in the caches as far as they fit. One thread is timed by its CPU time, two by the wall clock.
Ratios are those of neighbours.
Two copies of the same compiled model in one process differ by a few percent, for as long as it lives, by where their
weights lie; so there are several sittings, each a process, in an order drawn anew: a ratio is the median of theirs, in
brackets the least and the largest.

`compile` and `first` are the wall time until a first result, with empty caches of compiled code (headers are compiled
before), and of a second call, in the first sitting. `error` is the distance from the same model in double precision,
as a share of its size.

`worst_vs_best` is the least ratio, over rows and rivals, of a rival's time to ours: 0.98 says that nobody beats us by
more than 2 %. With `--keep`, rows that are done are not done again, and decisions stay.
"""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from figures import Goal, Report, parser
from torch_cases import NAMES, TINY

GOALS = (
    Goal("geomean_vs_default", ">=", 1.25),
    Goal("geomean_vs_max_autotune", ">=", 1.10),
    Goal("worst_vs_best", ">=", 0.98),
)
FREEZE = {"freezing": True}
STOCK: dict[str, dict[str, Any]] = {
    "default": {},
    "max-autotune": {**FREEZE, "max_autotune": True},
    "freeze+library": FREEZE,
    "freeze+C++": {**FREEZE, "max_autotune": True, "max_autotune_gemm_backends": "CPP"},
}
OURS, EAGER, MAX = "ours", "eager", "max-autotune"
QUICK_WAYS = ("default", "freeze+library")


def main() -> int:
    """Run rows in processes of their own, and report."""
    asked = parser(__doc__ or "")
    asked.add_argument("--models", default="", help="names, comma between; default: all")
    asked.add_argument("--threads", default="", help="default: 1,2")
    asked.add_argument("--budget", default="", help="trials and time for each graph")
    asked.add_argument("--each", default="6,5m", help="the same for each product in it")
    asked.add_argument("--sittings", type=int, default=0, help="processes that judge a row (3; quick: 1)")
    asked.add_argument("--keep", type=Path, help="a folder for what is decided and measured")
    asked.add_argument("--child", nargs=3, metavar=("PHASE", "MODEL", "THREADS"), help="one phase of a row")
    told = asked.parse_args()
    told.budget = told.budget or ("3,40s" if told.quick else "7,20m")
    told.sittings = told.sittings or (1 if told.quick else 3)
    if told.child:
        phase, model, threads = told.child
        print(json.dumps({"choose": choose, "check": check}[phase](model, int(threads), told)))
        return 0
    models = told.models.split(",") if told.models else [TINY] if told.quick else list(NAMES)
    counts = told.threads.split(",") if told.threads else ["1"] if told.quick else ["1", "2"]
    report = Report()
    with kept_folder(told.keep) as folder:
        rows = [row(model, int(threads), folder, told.sittings) for threads in counts for model in models]
    for one in rows:
        report.check(one["measured"] == 0, f"{one['name']}: something was measured after it was decided")
        report.check(one["errors"][OURS] <= 4 * max(one["errors"][EAGER], 1e-6), f"{one['name']}: ours is wrong")
    report.figures |= summary(rows) | {"load": os.getloadavg()[0], "rows": rows}
    report.lines += table(rows)
    return report.finish(GOALS, as_json=told.json)


@contextmanager
def kept_folder(kept: Path | None) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)
        return
    kept.mkdir(parents=True, exist_ok=True)
    yield kept.resolve()


def row(model: str, threads: int, folder: Path, sittings: int) -> dict[str, Any]:
    """One model on so many threads: chosen in one process, checked in others."""
    name = f"{model} x{threads}"
    done = folder / f"{name}.json"
    if done.exists():
        return json.loads(done.read_text())
    made = []
    for phase in ("choose", *["check"] * sittings):
        began = time.perf_counter()
        made.append(run_phase(phase, model, threads, folder))
        print(f"{name}: {phase} took {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    found = {"name": name, **made[0], **together(made[1:])}
    done.write_text(json.dumps(found))
    return found


def together(sittings: list[dict[str, Any]]) -> dict[str, Any]:
    """What several sittings say: medians, and of ratios how far they lie apart."""
    found = dict(sittings[0])
    if len(sittings) > 1:
        for name in found["ratios"]:
            each = sorted(one["ratios"][name][0] for one in sittings)
            found["ratios"][name] = (median(each), each[0], each[-1])
        found["steady"] = {name: median(one["steady"][name] for one in sittings) for name in found["steady"]}
        found["measured"] = sum(one["measured"] for one in sittings)
    return found | {"sittings": len(sittings)}


def run_phase(phase: str, model: str, threads: int, folder: Path) -> dict[str, Any]:
    argv = [*(word for word in sys.argv if word != "--json"), "--child", phase, model, str(threads)]
    caches = str(folder / f"{model}-x{threads}-{phase}")  # no spaces: PyTorch does not quote them
    single = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "KMP_BLOCKTIME": "0"}
    home = {"TUNEWRIGHT_CACHE": str(folder / "cache"), "TUNEWRIGHT_STORE": str(folder / f"{model} x{threads}.sqlite")}
    environ = {**os.environ, **single, **home, "TORCHINDUCTOR_CACHE_DIR": caches}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process would parse torch's sources anew
    ran = subprocess.run([sys.executable, *argv], env=environ, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout.splitlines()[-1])


def choose(model: str, threads: int, told: Any) -> dict[str, Any]:
    """Tune, and keep what was decided."""
    import torch
    from torch_cases import make

    from tunewright.session import Session
    from tunewright.torch import compile, decisions

    torch.set_num_threads(threads)
    made, call = make(model)
    began = time.perf_counter()
    with torch.no_grad():
        session = Session(mode="tune")
        ours = compile(made, session=session, budget=told.budget, each=told.each, numerics=allowed(told))
        call.run(ours)
    return {"tuning": time.perf_counter() - began, "chosen": {n: str(d.config) for n, d in decisions(ours).items()}}


def check(model: str, threads: int, told: Any) -> dict[str, Any]:
    """Time everyone in turns; nothing is measured to choose."""
    import torch
    from torch_cases import make

    from tunewright.measure import race
    from tunewright.measure.clock import HostTimer, make_sampler, use_same_clock
    from tunewright.session import Session
    from tunewright.torch import compile
    from tunewright.torch.candidate import sustained_sampler
    from tunewright.torch.compile_model import SAMPLE_SECONDS
    from tunewright.torch.diagnostics.numerics import relative_error, tensors_in, to_double

    torch.set_num_threads(threads)
    session = Session(mode="frozen")
    made, call = make(model)
    doubled = call.with_tensors(to_double)
    with torch.no_grad():
        right = tensors_in(doubled.run(copy.deepcopy(made).double()))
        torch.compile(lambda x: x + 1)(torch.ones(3))  # headers, and what is loaded once
        calls: dict[str, Callable[[], Any]] = {EAGER: lambda: call.run(made)}
        first, second = {EAGER: 0.0}, {EAGER: 0.0}
        wanted = {name: STOCK[name] for name in (getattr(told, "quick_ways", QUICK_WAYS) if told.quick else STOCK)}
        caches = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        ways = list({OURS: None, **wanted}.items())
        random.shuffle(ways)  # who comes first gets other memory
        for name, options in ways:
            fn = copy.deepcopy(made)
            with apart(caches / name, options or {}):
                compiled = (
                    compile(fn, session=session, numerics=allowed(told))
                    if options is None
                    else torch.compile(fn, options=options)
                )
                calls[name] = lambda compiled=compiled: call.run(compiled)
                first[name], second[name] = (_seconds(calls[name]) for _ in range(2))
        errors = {name: relative_error(tensors_in(run()), right) for name, run in calls.items()}
        timers = [HostTimer(run, threads) for run in calls.values()]
        visits = [sustained_sampler(make_sampler(timer, None), SAMPLE_SECONDS) for timer in timers]
        clock = use_same_clock(timers)
        raced = race.run_race(visits, race.RaceOptions(rounds=15 if told.quick else 40, seconds=90.0, fixed=True))
    names = list(calls)
    steady = {
        name: sorted(one.samples)[len(one.samples) // 2] for name, one in zip(names, raced.standings, strict=True)
    }
    ratios = {name: raced.ratio(i, names.index(OURS)) for i, name in enumerate(names) if name != OURS}
    return {
        "clock": clock, "rounds": len(raced.standings[0].samples), "steady": steady, "ratios": ratios, "errors": errors,
        "compile": first, "first": second, "measured": session.counts["measurements"],
        "tiers": {name: session.counts[name] for name in ("exact", "default")},
    }  # fmt: skip


def allowed(told: Any) -> list[str]:
    """The reduced precisions that ours may have."""
    return [name for name in getattr(told, "numerics", "").split(",") if name]


@contextmanager
def apart(caches: Path, settings: dict[str, Any]) -> Iterator[None]:
    """Settings of the whole process, and caches of compiled code of its own."""
    import torch._inductor.config as inductor
    from torch._inductor.utils import clear_caches

    clear_caches()
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(caches)
    with inductor.patch(settings):
        yield


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios of others' times to ours, over all rows."""
    found: dict[str, Any] = {}
    for figure, rival in (("geomean_vs_default", "default"), ("geomean_vs_max_autotune", MAX)):
        if all(rival in one["ratios"] for one in rows):
            found[figure] = round(exp(sum(log(one["ratios"][rival][0]) for one in rows) / len(rows)), 3)
    worst = min((ratio[0], one["name"], name) for one in rows for name, ratio in one["ratios"].items())
    return found | {"worst_vs_best": round(worst[0], 3), "worst_row": f"{worst[1]}: {worst[2]}"}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A line for each row and each way: time, ratio to ours with its interval, compile, first call, error."""
    lines = []
    for one in rows:
        took = f"tuned in {one['tuning']:.0f} s, {one['sittings']} x {one['rounds']} rounds, {one['clock']} clock"
        lines.append(f"{one['name']}  ({took}) {one['chosen']}")
        for name, seconds in one["steady"].items():
            ratio, low, high = one["ratios"].get(name, (1.0, 1.0, 1.0))
            lines.append(
                f"  {name:<15} {1e3 * seconds:9.3f} ms   {ratio:5.2f} x ours ({low:.2f} - {high:.2f})   "
                f"compile {one['compile'][name]:6.1f} s   second call {1e3 * one['first'][name]:7.1f} ms   "
                f"error {one['errors'][name]:.1e}"
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
