"""Schedules searched on real MLIR against OpenBLAS: products with relu, structure and sizes found from scratch.

    python benchmarks/mlir.py [--quick] [--json] [--trials 150] [--peers DIR]

fp32 matmul + relu, one thread, at 512^3 and 1024^3: the search starts from nothing (a fresh store, no seeds) and may
try 150 schedules. The winner is then timed beside numpy (matmul, then relu in place, OpenBLAS on as many threads) and
beside a small loop in C that does nothing but multiply and add, which is the peak of this processor in this very run.
All are visited in turn, by the CPU time of the thread; ratios are those of neighbours, their median is told.

`worst_other_shape` is the least ratio to numpy over three shapes that are no squares. `threads_speedup` is wall time
on one thread over that on two, which needs an idle machine to mean anything: `load` says how busy it was, and
`threads.possible` what two threads gain at that moment where they share nothing.

`seeded_1024` is the ratio to numpy after six trials at 1024^3 that start from what was found at 512^3, and from the
structures that a model predicts, which was fitted on products of other sizes.

`shipped` is the winner at 1024^3 in a process that has its machine code from a bundle and no MLIR, beside the same in
this one. `--peers DIR` also tunes with TVM (MetaSchedule, 64 trials) and compiles with IREE, in environments that are
made under DIR; that takes some minutes more. `tuning_time_vs_tvm` is TVM's tuning time over ours until a trial was as
fast as what TVM ended with; over our whole search it is `whole_search_vs_tvm`.

It takes about 15 minutes. Each shape is printed to stderr as it ends.
"""

from __future__ import annotations

import os

# One thread for BLAS as for us: numpy reads these when it is imported. OpenMP's threads must not spin beside others.
os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
os.environ.setdefault("KMP_BLOCKTIME", "0")

import ctypes
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from figures import Goal, Report, Series, parser
from mlir_peers import Peer, interpreter

import tunewright as tw
from tunewright.engine.budget import Budget
from tunewright.mlir import Mlir, payloads
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.seeds import predict_configs
from tunewright.mlir.structure_model import shipped_tables
from tunewright.model.decision import Decision
from tunewright.model.trial import Timing

SQUARES = {"512": (512, 512, 512), "1024": (1024, 1024, 1024)}
OTHERS = {"504x64x256": (504, 64, 256), "1000x333x777": (1000, 333, 777), "1x4096x4096": (1, 4096, 4096)}
GOALS = (
    Goal("vs_openblas_512", ">=", 1.05),
    Goal("vs_openblas_1024", ">=", 1.05),
    Goal("of_peak_1024", ">=", 0.85),
    Goal("threads_speedup", ">=", 1.85),
    Goal("worst_other_shape", ">=", 0.8),
    Goal("shipped", "<=", 1.05),
)
PEER_GOALS = (Goal("vs_tvm", ">=", 1.0), Goal("tuning_time_vs_tvm", ">=", 10.0))
TVM_TRIALS, FEW = 64, 6
PEAK = r"""
typedef float v __attribute__((vector_size(64)));
void peak(float *out, long n) {
    v s[14], x = (v){} + 0.999f, y = (v){} + 0.001f;
    for (int i = 0; i < 14; i++) s[i] = (v){} + (float)i;
    for (long j = 0; j < n; j++)
        for (int i = 0; i < 14; i++) s[i] = s[i] * x + y;
    for (int i = 0; i < 14; i++) out[i] = s[i][0];
}
"""
PEAK_LOOPS, PEAK_FLOPS = 200_000, 200_000 * 14 * 16 * 2


def declared(name: str, shape: tuple[int, int, int], threads: int = 1) -> tw.Tuned:
    """A product with relu of that shape, under the name by which workers find it in this file."""

    def product(a: tw.In("M", "K"), b: tw.In("K", "N"), c: tw.Out("M", "N")): ...

    product.__name__ = product.__qualname__ = name
    payload = payloads.matmul(*shape, after="relu")
    plan = gemm_plan(payload, threads=threads)
    backend = Mlir(payload, plan, threads=threads)
    return tw.tune(plan.space, backend=backend, reference=payload.reference, threads=threads)(product)


product_512 = declared("product_512", SQUARES["512"])
product_1024 = declared("product_1024", SQUARES["1024"])
product_504x64x256 = declared("product_504x64x256", OTHERS["504x64x256"])
product_1000x333x777 = declared("product_1000x333x777", OTHERS["1000x333x777"])
product_1x4096x4096 = declared("product_1x4096x4096", OTHERS["1x4096x4096"])
product_seeded = declared("product_seeded", SQUARES["1024"])
product_threads = declared("product_threads", SQUARES["1024"], threads=2)


def arrays(shape: tuple[int, int, int]) -> list[Any]:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(size, dtype=np.float32) for size in ((m, k), (k, n)))
    return [a, b, np.zeros((m, n), np.float32)]


def searched(kernel: tw.Tuned, args: list[Any], folder: Path, trials: int, seeds: Sequence[Any] = ()) -> Decision:
    """The best schedule found from scratch; `seeds` are for the threaded kernel alone, which inherits a winner."""
    kernel.using(tw.Session(cache=str(folder), resolution=1.0))
    kernel.declaration = msgspec.structs.replace(kernel.declaration, seeds=list(seeds))
    return kernel.tune(*args, budget=Budget(trials))


def by_numpy(a: Any, b: Any) -> Callable[[], Any]:
    out = np.empty((a.shape[0], b.shape[1]), np.float32)

    def call() -> None:
        np.matmul(a, b, out=out)
        np.maximum(out, 0, out=out)

    return call


def by_peak(folder: Path) -> Callable[[], Any]:
    """Multiplications and additions in registers, as fast as they go."""
    source, library = folder / "peak.c", folder / "peak.so"
    source.write_text(PEAK)
    flags = ["-O3", "-march=native", "-funroll-loops", "-mprefer-vector-width=512", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    function, out = ctypes.CDLL(str(library)).peak, np.zeros(14, np.float32)
    return lambda: function(ctypes.c_void_p(out.ctypes.data), ctypes.c_long(PEAK_LOOPS))


def in_turn(calls: dict[str, Callable[[], Any]], rounds: int, clock: Callable[[], float]) -> dict[str, np.ndarray]:
    """Seconds of each call in each round; the first visit of all is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            call()  # another ran before it
            start = clock()
            call()
            if number:
                seconds[name].append(clock() - start)
    return {name: np.array(values) for name, values in seconds.items()}


def compared(kernel: tw.Tuned, shape: tuple[int, int, int], folder: Path, rounds: int) -> dict[str, Any]:
    """The tuned kernel beside numpy and the peak."""
    args = arrays(shape)
    kernel(*args)
    peer = by_numpy(*args[:2])
    calls = {"ours": lambda: kernel(*args), "numpy": peer, "peak": by_peak(folder)}
    found = in_turn(calls, rounds, time.thread_time)
    flops = 2 * np.prod(np.array(shape, dtype=float))
    ratios = found["numpy"] / found["ours"]
    peak = PEAK_FLOPS / found["peak"]
    return {
        "ms": round(1e3 * float(np.median(found["ours"])), 4),
        "numpy_ms": round(1e3 * float(np.median(found["numpy"])), 4),
        "ratio": round(float(np.median(ratios)), 3),
        "ratios": Series(ratios[:5].tolist()).plain() | {"of": len(ratios)},
        "best_ratio": round(float(found["numpy"].min() / found["ours"].min()), 3),
        "peak_gflops": round(float(np.median(peak)) / 1e9, 1),
        "of_peak": round(float(np.median(flops / found["ours"] / peak)), 3),
    }


def one(name: str, shape: tuple[int, int, int], folder: Path, given: tuple[int, int]) -> dict[str, Any]:
    """Search, then compare; what was found and how long the search took."""
    kernel, (trials, rounds) = globals()[f"product_{name}"], given
    start, began = time.perf_counter(), time.time()
    decision = searched(kernel, arrays(shape), folder, trials)
    spent = time.perf_counter() - start
    tried = list(kernel.session.store.trials(decision.key))
    best, trace = float("inf"), []
    for number, trial in enumerate(tried, 1):
        if isinstance(trial.outcome, Timing) and trial.seconds < best:
            best = trial.seconds
            # What a trial is said to take is a chain of ratios to the best before it, which drifts; samples do not.
            measured = float(np.median(trial.outcome.samples))
            trace.append([number, str(trial.config["variant"]), round(1e3 * measured, 4), round(trial.at - began, 1)])
    said = {"config": str(decision.config), "trials": len(tried), "search_s": round(spent, 1), "trace": trace}
    return said | compared(kernel, shape, folder, rounds)


def seeded(found: Mapping[str, Any], folder: Path, rounds: int) -> dict[str, Any]:
    """A few trials at 1024^3 that start from what was found at 512^3, in a store of their own."""
    shape = SQUARES["1024"]
    tables = [one for one in shipped_tables() if (one.rows, one.columns, one.terms) != shape]
    seeds = predict_configs(gemm_plan(payloads.matmul(*shape, after="relu")), [found], tables=tables)
    start = time.perf_counter()
    decision = searched(product_seeded, arrays(shape), folder / "seeded", FEW, seeds)
    spent = time.perf_counter() - start
    said = {"config": str(decision.config), "trials": FEW, "search_s": round(spent, 1)}
    return said | compared(product_seeded, shape, folder, rounds)


def possible(folder: Path) -> float:
    """How much faster two threads are now at what shares nothing: the most that anything may gain from them."""
    loop = by_peak(folder)

    def work(times: int) -> None:
        for _ in range(times):
            loop()

    def wall(threads: Sequence[threading.Thread]) -> float:
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    alone = wall([threading.Thread(target=work, args=(400,))])
    return round(alone / wall([threading.Thread(target=work, args=(200,)) for _ in range(2)]), 2)


def threaded(folder: Path, trials: int, rounds: int) -> dict[str, Any]:
    """Two threads beside one, by the wall clock; the search for two starts from what was found for one."""
    args = arrays(SQUARES["1024"])
    single = product_1024.decide(*args).config
    seeds = [single] if single in product_threads.space else []
    decision = searched(product_threads, args, folder, trials, seeds)
    product_threads(*args)
    calls = {"one": lambda: product_1024(*args), "two": lambda: product_threads(*args)}
    found = in_turn(calls, rounds, time.perf_counter)
    return {
        "config": str(decision.config),
        "possible": possible(folder),
        "speedup": round(float(np.median(found["one"] / found["two"])), 3),
        "best_speedup": round(float(found["one"].min() / found["two"].min()), 3),
    }


def beside(call: Callable[[], Any], peers: dict[str, Peer], rounds: int) -> dict[str, Any]:
    """A call here and those of other processes, in turn; how many times as long as ours each of these takes."""
    seconds: dict[str, list[float]] = {name: [] for name in ("ours", *peers)}
    for _ in range(rounds):
        call()
        start = time.thread_time()
        call()
        seconds["ours"].append(time.thread_time() - start)
        for name, peer in peers.items():
            seconds[name].append(peer.seconds())
    found: dict[str, Any] = {}
    for name, peer in peers.items():
        peer.close()
        ratios = np.array(seconds[name]) / np.array(seconds["ours"])
        found[name] = peer.said | {
            "ms": round(1e3 * float(np.median(seconds[name])), 3),
            "ratio": round(float(np.median(ratios)), 3),
            "spread": [round(float(one), 3) for one in np.percentile(ratios, (10, 90))],
        }
    return found


def arrived(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    """The winner from a bundle, in a process without MLIR, beside the same in this one."""
    kernel, args = globals()[f"product_{name}"], arrays(SQUARES[name])
    kernel(*args)
    command = [sys.executable, "-m", "tunewright", "bundle", "build", str(folder / "products.bundle"), "--json"]
    environ = {**os.environ, "TUNEWRIGHT_CACHE": str(folder)}
    made = subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout
    place = f"bundle:{folder}/products.bundle?pin={msgspec.json.decode(made)['digest']}"
    other = Peer(Path(sys.executable), "mlir_shipped.py", name, place, folder / "elsewhere")
    found: dict[str, Any] = beside(lambda: kernel(*args), {"shipped": other}, rounds)["shipped"]
    return found


def against(folder: Path, shapes: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Ours beside TVM and IREE at 512^3, each in its own process, called in turn."""
    shape = SQUARES["512"]
    args = arrays(shape)
    product_512(*args)
    peers = {name: Peer(interpreter(name, folder), f"mlir_{name}.py", *shape, TVM_TRIALS) for name in ("tvm", "iree")}
    found: dict[str, Any] = beside(lambda: product_512(*args), peers, rounds)
    ours = shapes["512"]
    level = next((at for *_, ms, at in ours["trace"] if ms <= found["tvm"]["ms"]), ours["search_s"])
    found["as_fast_as_tvm_s"] = level
    found["tuning_time_vs_tvm"] = round(found["tvm"]["tuning_s"] / level, 1)
    found["whole_search_vs_tvm"] = round(found["tvm"]["tuning_s"] / ours["search_s"], 1)
    return found


def shape_line(name: str, said: dict[str, Any]) -> str:
    """A row of the report."""
    return (
        f"{name:>13}  {said['ms']:8.3f} ms  {said['ratio']:.3f}x numpy ({said['numpy_ms']:.3f} ms; best of each "
        f"{said['best_ratio']:.3f}x)  {said['of_peak']:.2f} of {said['peak_gflops']} GF/s  "
        f"{said['trials']} trials in {said['search_s']:.0f} s  {said['config']}"
    )


def chosen(quick: bool, only: Sequence[str] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The square shapes and the others that are asked for."""
    if only:
        squares, others = ({n: s for n, s in every.items() if n in only} for every in (SQUARES, OTHERS))
        return squares, others
    return ({"512": SQUARES["512"]}, {"504x64x256": OTHERS["504x64x256"]}) if quick else (SQUARES, OTHERS)


def told(report: Report, shapes: dict[str, Any], more: dict[str, Any]) -> None:
    """Add figures and lines to the report; `more` has what was measured besides the shapes, or None."""
    squares, others = ({n: one for n, one in shapes.items() if n in every} for every in (SQUARES, OTHERS))
    few, threads, peers, shipped = (more[name] for name in ("seeded", "threads", "peers", "shipped"))
    report.figures |= {f"vs_openblas_{name}": one["ratio"] for name, one in squares.items()}
    if "1024" in squares:
        report.figures["of_peak_1024"] = squares["1024"]["of_peak"]
    if others:
        report.figures["worst_other_shape"] = min(one["ratio"] for one in others.values())
    if few:
        report.figures |= {"seeded_1024": few["ratio"], "seeded": few}
        report.lines.append(shape_line("1024, seeded", few))
    if shipped:
        report.figures["shipped"] = shipped["ratio"]
        report.lines.append(f"      shipped  {shipped['ratio']:.3f} of the time here ({shipped['spread']})")
    if threads:
        report.figures |= {"threads_speedup": threads["speedup"], "threads": threads}
        report.lines.append(
            f"  two threads  {threads['speedup']:.2f}x one, by the wall clock, of {threads['possible']} "
            f"possible now  {threads['config']}"
        )
    if peers:
        report.figures |= {"vs_tvm": peers["tvm"]["ratio"], "tuning_time_vs_tvm": peers["tuning_time_vs_tvm"]}
        report.figures["peers"] = peers
        for name in ("tvm", "iree"):
            peer = peers[name]
            report.lines.append(f"{name:>13}  {peer['ms']:8.3f} ms at 512^3, ours {peer['ratio']:.2f}x as fast; {peer}")
    report.figures["shapes"] = shapes


def main(arguments: Sequence[str] | None = None) -> int:
    """Search, compare, report."""
    takes = parser(__doc__)
    takes.add_argument("--trials", type=int, help="of each search for a square product: 150, or 4 if quick")
    takes.add_argument("--peers", type=Path, metavar="DIR", help="where environments of TVM and IREE are, or are made")
    takes.add_argument(
        "--only", action="append", choices=[*SQUARES, *OTHERS], metavar="SHAPE", help="this shape alone; repeatable"
    )
    given = takes.parse_args(arguments)
    trials, rounds = given.trials or (4 if given.quick else 150), 8 if given.quick else 60
    squares, others = chosen(given.quick, given.only)
    report, load, more = Report(), os.getloadavg()[0], dict[str, Any]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        fewer = max(2, trials * 2 // 5)
        shapes = {}
        for name, shape in (squares | others).items():
            shapes[name] = one(name, shape, folder, (trials if name in squares else fewer, rounds))
            report.lines.append(shape_line(name, shapes[name]))
            print(report.lines[-1], file=sys.stderr, flush=True)
        found = product_512.decide(*arrays(SQUARES["512"])).config if squares.keys() == SQUARES.keys() else None
        more["seeded"] = seeded(found, folder, rounds) if found else None
        more["threads"] = threaded(folder, max(2, trials // 5), rounds) if "1024" in squares else None
        more["peers"] = against(given.peers, shapes, rounds) if given.peers and "512" in squares else None
        more["shipped"] = arrived(max(squares, key=int), folder, rounds) if squares else None
    told(report, shapes, more)
    report.figures |= {"load": round(load, 2), "quick": given.quick}
    report.lines.append(f"load {load:.1f} on {os.cpu_count()} processors before it began")
    return report.finish((*GOALS, *(PEER_GOALS if more["peers"] else ())), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
