"""Real model classes compiled in the way that wins, beside every way that PyTorch offers.

    python benchmarks/torch_models.py [--quick] [--json] [--only bert-float32,vit-float32] [--threads 1,2]
        [--budget 6,4m] [--each 4,60s] [--sittings 2] [--keep FOLDER] [--numerics bfloat16,int8]

Needs `transformers`, and its classes get random weights; without it, `--quick` takes a layer and a small language model
of our own, and says so (`classes`). A row is a model and a number of threads, chosen and judged as in
`torch_compile.py`: one process tunes, others look up what was decided and time all ways in turns. As a row ends, a
line about it is written to stderr; with `--keep`, rows that are done are not done again. With `--numerics`, ours may
compute products in less precision than the others: `error` in each row says what that costs.

- `geomean_vs_default`, `geomean_vs_max_autotune`, `worst_vs_best`: as there.
- `overrun`: the longest time until the first result of the process that tunes, over its budget.
- `second_process_ratio`: CPU seconds until the first result of a second process, over those of torch's default with
  warm caches: medians of starts that take turns; the median of rows.
- `cold_start_ratio`: CPU seconds until the first result of torch's default with empty caches, over those of the model
  loaded from a bundle, both after imports; the median of rows. A model that cannot be shipped is named in its row.
- `background_first_ratio`: seconds until the first result with `tune="background"`, over those of torch's default
  before it in the same process, each with empty caches; of the first row. `background_overrun`: seconds until its
  child was done, over its budget. `background_swapped`: whether the next call ran what it had decided.
- `symbolic_searches`: searches of a new process that is called with another length, `dynamic=True`. The first process
  compiles with an override, so that no time is spent on what is not asked here, and stores that as a decision.
- `doctor_seconds`: the longest diagnosis with `aot_eager`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from figures import Goal, Report, parser

import torch_compile
from torch_compile import kept_folder, run_phase, summary, table
from tunewright.engine.budget import Budget

NAMES = tuple(
    f"{kind}-{dtype}"
    for dtype in ("float32", "bfloat16")
    for kind in ("bert", "llama", "llama-decode", "vit", "resnet", "convnext", "t5")
)
HAS_CLASSES = find_spec("transformers") is not None
QUICK = ("vit-float32",) if HAS_CLASSES else ("layer-1x16-float32",)
DYNAMIC = "bert-float32" if HAS_CLASSES else "gpt-float32"
LENGTHS = (48, 77)
STARTS = 3
"""How often a process is started with warm caches, in turns: with and without us."""

GOALS = (
    Goal("geomean_vs_default", ">=", 1.3),
    Goal("geomean_vs_max_autotune", ">=", 1.08),
    Goal("worst_vs_best", ">=", 0.98),
    Goal("overrun", "<=", 1.1),
    Goal("second_process_ratio", "<=", 1.1),
    Goal("cold_start_ratio", ">=", 100),
    Goal("background_overrun", "<=", 1.1),
    Goal("symbolic_searches", "==", 0),
    Goal("doctor_seconds", "<=", 60),
)


def main() -> int:
    """Run rows in processes of their own, and report."""
    asked = parser(__doc__ or "")
    asked.add_argument("--only", "--models", dest="models", default="", help="names, comma between; default: all")
    asked.add_argument("--threads", default="1", help="1, or 1,2")
    asked.add_argument("--budget", default="", help="trials and time for each graph")
    asked.add_argument("--each", default="4,60s", help="the same for each product in it")
    asked.add_argument("--sittings", type=int, default=0, help="processes that judge a row (2; quick: 1)")
    asked.add_argument("--keep", type=Path, help="a folder for what is decided and measured")
    asked.add_argument("--numerics", default="", help="reduced precisions that ours may have: bfloat16,int8")
    asked.add_argument("--child", nargs=3, metavar=("PHASE", "MODEL", "THREADS"), help="one phase of a row")
    asked.set_defaults(quick_ways=(*torch_compile.QUICK_WAYS, torch_compile.MAX))
    told = asked.parse_args()
    told.budget, told.sittings = told.budget or ("4,90s" if told.quick else "6,4m"), told.sittings or 2 - told.quick
    if told.child:
        phase, model, threads = told.child
        print(json.dumps(PHASES[phase](model, int(threads), told)))
        return 0
    models = told.models.split(",") if told.models else QUICK if told.quick else NAMES
    report = Report()
    with kept_folder(told.keep) as folder:
        rows = []
        for model, threads in ((model, int(count)) for count in told.threads.split(",") for model in models):
            rows.append(row(model, threads, folder, told))
            print(line(rows[-1]), file=sys.stderr, flush=True)
        swapped = attempt("background", models[0], rows[0]["threads"], folder)
        print(f"background: {swapped}", file=sys.stderr, flush=True)
        searches = [run_phase("dynamic" + end, DYNAMIC, 1, folder)["searches"] for end in ("_first", "_second")]
    budget = Budget.parse(told.budget).seconds or 0.0
    shipped = [one["cold"] / one["shipped"] for one in rows if one["shipped"]]
    report.figures |= summary(rows) | {
        "overrun": round(max(one["tuning"] for one in rows) / budget, 3),
        "second_process_ratio": round(median(one["second"] / one["warm_default"] for one in rows), 3),
        **({"cold_start_ratio": round(median(shipped), 1)} if shipped else {}),
        **({f"background_{name}": value for name, value in swapped.items()}),
        "symbolic_searches": searches[-1],
        "doctor_seconds": round(max(one["doctor"] for one in rows), 1),
        "load": os.getloadavg()[0],
        "numerics": told.numerics,
        "classes": "transformers" if HAS_CLASSES else "our own",
        "rows": rows,
    }
    for one in rows:
        report.check(one["measured"] == 0, f"{one['name']}: something was measured after it was decided")
    report.lines += table(rows)
    return report.finish(GOALS, as_json=told.json)


def row(model: str, threads: int, folder: Path, told: Any) -> dict[str, Any]:
    """One model on so many threads: raced as in torch_compile.py, then started again and diagnosed."""
    found = torch_compile.row(model, threads, folder, told.sittings)
    kept = folder / f"{model} x{threads} start.json"
    if not kept.exists():
        started: dict[str, Any] = {"threads": threads}
        ways = ("second", "warm_default")
        turns = [{way: run_phase(way, model, threads, folder)["cpu"] for way in ways} for _ in range(1 + STARTS)]
        started["cold"] = turns[0]["warm_default"]  # the first turn fills the caches of compiled code
        started |= {way: median(turn[way] for turn in turns[1:]) for way in ways}
        started["turns"] = [turn["second"] / turn["warm_default"] for turn in turns[1:]]
        made = attempt("ship", model, threads, folder)
        started["shipped"] = 0.0 if "problem" in made else attempt("shipped", model, threads, folder).get("cpu", 0.0)
        started["problem"] = made.get("problem", "")
        kept.write_text(json.dumps(started | run_phase("doctor", model, threads, folder)))
    return found | json.loads(kept.read_text())


def attempt(phase: str, model: str, threads: int, folder: Path) -> dict[str, Any]:
    """What a phase says, or that it failed: other figures do not depend on it."""
    try:
        return run_phase(phase, model, threads, folder)
    except subprocess.CalledProcessError as error:
        return {"problem": f"{phase} exited with status {error.returncode}"}


def line(one: dict[str, Any]) -> str:
    """A row in a line."""
    ratios = ", ".join(f"{name} {ratio[0]:.2f}" for name, ratio in one["ratios"].items())
    cold = f"{one['cold'] / one['shipped']:.0f}" if one["shipped"] else f"none ({one['problem']})"
    return (
        f"{one['name']}: times ours: {ratios}; tuned in {one['tuning']:.0f} s; second process "
        f"{one['second'] / one['warm_default']:.2f}; cold start {cold}; doctor {one['doctor']:.0f} s"
    )


def ship(model: str, threads: int, _: Any) -> dict[str, Any]:
    """Make a bundle of what was decided."""
    import torch
    from torch_cases import make

    from tunewright.torch import bundle

    torch.set_num_threads(threads)
    made, call = make(model)
    path = bundle_path(model, threads)
    path.with_suffix(".pin").write_text(bundle(path, made, call))
    return {"bytes": path.stat().st_size}


def bundle_path(model: str, threads: int) -> Path:
    """Where the bundle of a row is: beside the store."""
    return Path(os.environ["TUNEWRIGHT_STORE"]).parent / f"{model}-x{threads}.bundle"


def shipped(model: str, threads: int, _: Any) -> dict[str, Any]:
    """CPU seconds until the first result of a bundle, after imports."""
    import torch
    from torch_cases import make

    from tunewright.torch import load

    torch.set_num_threads(threads)
    _, call = make(model)
    path = bundle_path(model, threads)
    began = cpu_seconds()
    call.run(load(path, pin=path.with_suffix(".pin").read_text()))
    return {"cpu": cpu_seconds() - began}


def background(model: str, threads: int, told: Any) -> dict[str, Any]:
    """Tune in the background with a fresh store: the first result, the swap, and whether results agree."""
    import torch
    from torch_cases import make

    from tunewright.session import Session
    from tunewright.stores.memory import MemoryStore
    from tunewright.torch import compile, decisions
    from tunewright.torch.compile_model import TuningBackend
    from tunewright.torch.diagnostics.numerics import relative_error, tensors_in, to_double

    torch.set_num_threads(threads)
    made, call = make(model)
    caches = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    with torch.no_grad():
        torch.compile(lambda x: x + 1)(torch.ones(3))  # headers, and what is loaded once
        with torch_compile.apart(caches / "default", {}):
            began = time.perf_counter()
            call.run(torch.compile(make(model)[0]))
            default = time.perf_counter() - began
        with torch_compile.apart(caches / "ours", {}):
            session = Session(store=MemoryStore(), mode="tune")
            ours = compile(made, session=session, tune="background", budget=told.budget, each=told.each)
            began = time.perf_counter()
            first = tensors_in(call.run(ours))
            seconds = time.perf_counter() - began
            jobs = TuningBackend.of(ours).jobs
            while not all(job.done.wait(0.05) for job in jobs):
                call.run(ours)  # it is served meanwhile
            began = time.perf_counter()
            second = tensors_in(call.run(ours))
            swap = time.perf_counter() - began
        right = [to_double(one) for one in first]
    return {
        "first_ratio": round(seconds / default, 3),
        "first_seconds": round(seconds, 2),
        "swap_seconds": round(swap, 2),
        "overrun": round(max((job.ended - job.started) / job.seconds for job in jobs), 3),
        "swapped": len(decisions(ours)) > 0,
        "difference": relative_error(second, right),
    }


def second(model: str, threads: int, told: Any) -> dict[str, Any]:
    """CPU seconds until the first result of what was decided."""
    from tunewright.torch import compile

    return _first_result(
        model,
        threads,
        lambda made: compile(made, budget=told.budget, each=told.each, numerics=torch_compile.allowed(told)),
    )


def warm_default(model: str, threads: int, _: Any) -> dict[str, Any]:
    """CPU seconds until the first result of torch's default."""
    import torch

    return _first_result(model, threads, torch.compile)


def _first_result(model: str, threads: int, compile: Any) -> dict[str, Any]:
    import torch
    from torch_cases import make

    torch.set_num_threads(threads)
    made, call = make(model)
    began = cpu_seconds()
    with torch.no_grad():
        call.run(compile(made))
    return {"cpu": cpu_seconds() - began}


def cpu_seconds() -> float:
    """CPU seconds of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def doctor(model: str, threads: int, _: Any) -> dict[str, Any]:
    """Seconds of a diagnosis."""
    import torch
    from torch_cases import make

    from tunewright.torch import doctor as diagnose

    torch.set_num_threads(threads)
    made, call = make(model)
    began = time.perf_counter()
    with torch.no_grad():
        diagnose(made, *call.args, **call.kwargs, backend="aot_eager")
    return {"doctor": time.perf_counter() - began}


def dynamic_first(model: str, *_: Any) -> dict[str, Any]:
    """A first process: what an override says about a dynamic graph is stored as its decision."""
    import torch
    from torch_cases import make

    from tunewright.model.decision import Decision
    from tunewright.session import current_session
    from tunewright.torch import compile, decisions

    made, call = make(model, LENGTHS[0])
    with torch.no_grad():
        compiled = compile(made, dynamic=True, overrides={"graph *": "eager"})
        call.run(compiled)
    for decision in decisions(compiled).values():
        current_session().store.put(Decision(decision.key, decision.config))
    return {"searches": len(decisions(compiled))}


def dynamic_second(model: str, *_: Any) -> dict[str, Any]:
    """A second process with another length: how often it searches."""
    import torch
    from torch_cases import make

    from tunewright.session import current_session
    from tunewright.torch import compile

    made, call = make(model, LENGTHS[1])
    with torch.no_grad():
        call.run(compile(made, dynamic=True, budget="1,1s", each="1,1s"))
    return {"searches": current_session().counts["searches"]}


PHASES = {
    "choose": torch_compile.choose,
    "check": torch_compile.check,
    "second": second,
    "warm_default": warm_default,
    "doctor": doctor,
    "ship": ship,
    "shipped": shipped,
    "background": background,
    "dynamic_first": dynamic_first,
    "dynamic_second": dynamic_second,
}

if __name__ == "__main__":
    sys.exit(main())
