"""What a tuner of Triton kernels does on a device that fails: who is blamed, what is published, what runs again.

    python benchmarks/gpu_faults.py [--quick] [--json] [--kind TEXT] [--part N/M] [--worker]

Rung 2: a simulated device, real compiler and autotuner; nothing here is the speed of a GPU. Each fault happens in a
process of its own while a kernel with three configs is tuned. Then a second process tunes the same kernel on the same
device, as after a restart. The faults are in `gpu_fault_cases.py`; some are nobody's, and then nobody may be blamed.
With `--worker`, configs run in a worker (`worker=True`): the first process must go on and decide, whatever happens.

- `wrong_published`: decisions for the faulty config, decisions of a search that lost its device, and configs that were
  recorded as failed although they are innocent.
- `culprit_named`: the part of faults whose config was named: in the error that the user sees, or in the store.
- `repeated_crashes`: second processes in which a config ran that had lost the device or ended the process.
- `parent_died`: processes that were ended by a signal, or whose call failed, although the device was still usable.
- `memory_ratio`: peak memory during tuning, over arguments + one buffer + what is declared for copies.
- `storm_searches`: searches of six calls that Triton's own autotuner tunes once.
- `dynamo_configs`: the most configs that a graph of torch.compile has of a kernel that is decided.
- `launch_ratio`: CPU time of the Python of a launch, over that of the plain JIT (more in `triton_launch.py`).
- `fresh_int_ratio`: CPU time of a launch with an int that is new at every call, over that of Triton's own autotuner.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import triton
import triton.language as tl
import triton_launch
from figures import Goal, Report, Series, parser
from gpu_fault_cases import (
    BLOCKS,
    DECLARED,
    GOOD,
    GRID,
    Fault,
    Verdict,
    by_block,
    compute,
    configs,
    faults,
    finish_child,
    in_child,
    judge,
    scale,
    start_child,
    tune_with,
    warm_up,
)

import tunewright as tw
from tunewright.testing.hostile_device import HostileDriver, Misbehavior, hostile_device
from tunewright.testing.triton_driver import A100, FakeDriver, fake_driver
from tunewright.triton import autotune

GOALS = (
    Goal("faults", ">=", 200),
    Goal("kinds", ">=", 12),
    Goal("wrong_published", "==", 0),
    Goal("culprit_named", "==", 1.0),
    Goal("repeated_crashes", "==", 0),
    Goal("parent_died", "==", 0),
    Goal("memory_ratio", "<=", 1.1),
    Goal("storm_searches", "==", 1),
    Goal("dynamo_configs", "==", 1),
    Goal("launch_ratio", "<=", 1.2),
    Goal("fresh_int_ratio", "<=", 1.2),
)
RUNG = "simulated device (rung 2): behavior and Python cost only, no GPU"
SIZE = 1 << 22
STORM = ((1000, 1, 0, 1), (2000, 2, 0, 1), (3000, 3, 0, 1), (3008, 3, 0, 1), (3001, 3, 1, 1), (3001, 3, 0, 2))
"""A size, a constexpr, the offset and the stride of a tensor: Triton specializes on them, its autotuner does not."""


@triton.jit
def convolve(x_ptr, out_ptr, T, D, NB: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803 - as Triton's are
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < T), at < T)


def memory_ratio() -> float:
    """Tunes with and without results to judge; returns the larger peak over what is allowed."""
    ratios = []
    for effect, spare in ((None, SIZE), (compute, SIZE), (compute, 8 * SIZE)):
        x, out = torch.ones(SIZE // 4), torch.zeros(SIZE // 4)
        misbehavior = Misbehavior(memory=3 * SIZE + spare, flush_bytes=SIZE)
        kernel = autotune(configs(*BLOCKS), ["n"], name=f"{effect} {spare}")(scale)
        driver = HostileDriver(A100, misbehavior=misbehavior, effect=effect, seconds=by_block)
        with hostile_device(driver):
            driver.adopt(x, out)
            kernel[GRID](x, out, SIZE // 4, 3)
            ratios.append(driver.peak / (3 * SIZE + (spare // 2 if effect else 0)))
            assert driver.allocated == 2 * SIZE
    return max(ratios)


def storm_searches() -> int:
    """Searches of six calls."""
    kernel, x = autotune(configs(32, 128), ["D"])(convolve), torch.ones(8192)
    with fake_driver(FakeDriver(A100, seconds=by_block)):
        for size, constant, offset, step in STORM:
            kernel[GRID](x[offset::step], torch.ones(8192), size, 64, constant)
    return tw.current_session().counts["searches"]


def fresh_int_ratios(rounds: int, calls: int = 200) -> list[float]:
    """The CPU time of our launches with new ints over that of Triton's, round by round."""
    x, out, number = torch.ones(100), torch.ones(100), count(1001, 2)
    ways = [autotune(configs(*BLOCKS), ["n"])(scale), triton.autotune(configs(*BLOCKS), ["n"])(scale)]
    with fake_driver(FakeDriver(A100, seconds=by_block)) as driver:
        for kernel in ways:
            kernel[GRID](x, out, 100, 3)
        driver.noted = False
        ratios = []
        for turn in range(rounds + 1):
            times = {}
            for way in (0, 1) if turn % 2 else (1, 0):
                began = time.process_time_ns()
                for _ in range(calls):
                    ways[way][GRID](x, out, 100, next(number))
                times[way] = time.process_time_ns() - began
            ratios.append(times[0] / times[1])
    return ratios[1:]


def dynamo_configs() -> int:
    """The most configs that a graph has of a kernel with a decision: one declared by a list, and one by a space."""
    import torch.utils._triton
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    torch.utils._triton.has_triton = lambda: True  # as on a machine with a GPU
    space = tw.Space(tw.Knob("BLOCK", [2**i for i in range(5, 11)]), tw.Knob("num_warps", [1, 2, 4]))
    shown = []

    def keep(graph: Any, inputs: Any) -> Any:
        numbers = [node.kwargs["kernel_idx"] for node in graph.graph.nodes if "kernel_idx" in node.kwargs]
        shown.extend(len(kernel_side_table.get_kernel(number).configs) for number in numbers)
        return graph.forward

    with fake_driver(FakeDriver(A100, seconds=by_block)):
        for kernel in (
            autotune(configs(*BLOCKS), ["n"])(scale),
            autotune(space=space, key=["n"], budget="4", name="spaced")(scale),
        ):
            x, out = torch.ones(100), torch.ones(100)
            kernel[GRID](x, out, 100, 3)

            def call(x: Any, out: Any, kernel: Any = kernel) -> Any:
                kernel[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100, 3)
                return out

            torch.compile(call, backend=keep, fullgraph=True)(x, out)
    assert len(shown) == 2
    return max(shown)


def launch_ratios(folder: Path, rounds: int) -> list[float]:
    """The CPU time of the Python of our launches over that of the plain JIT, round by round."""
    with fake_driver(FakeDriver(A100)) as driver:
        ways = triton_launch.launches(Report(), str(folder))
        driver.noted = False
        with triton_launch.loaded(triton_launch.matmul):
            times = triton_launch.rounds({name: ways[name] for name in ("ours", "direct")}, rounds)
    return [own / direct for own, direct in zip(times["ours"].values, times["direct"].values, strict=True)]


AT_ONCE = 2
HANG_SECONDS = 8
"""After how long a launch in a worker counts as hung."""


def judged(chosen: Sequence[Fault], root: Path, report: Report, *, in_worker: bool) -> list[Verdict]:
    """Lets faults happen, two at a time, and judges what two processes do about each."""
    verdicts = []
    for begin in range(0, len(chosen), AT_ONCE):
        together = [(fault, root / str(begin + number)) for number, fault in enumerate(chosen[begin : begin + AT_ONCE])]
        for _, folder in together:
            folder.mkdir()
        runs = [tune_together(together, in_worker=in_worker) for _ in range(2)]
        for (fault, _), first, second in zip(together, *runs, strict=True):
            verdicts.append(judge(fault, first, second, in_worker=in_worker))
            if verdicts[-1] != GOOD:
                report.lines.append(f"  {fault}: {verdicts[-1]}, not {GOOD}: {first} {second}")
    return verdicts


def tune_together(together: Sequence[tuple[Fault, Path]], *, in_worker: bool) -> list[dict[str, Any]]:
    """Tunes once for each fault, all at the same time."""
    works = [(partial(tune_with, fault, folder, in_worker=in_worker), folder) for fault, folder in together]
    children = [start_child(work, folder) for work, folder in works]
    return [finish_child(*child, folder) for child, (_, folder) in zip(children, together, strict=True)]


def fault_figures(chosen: Sequence[Fault], root: Path, report: Report, *, in_worker: bool) -> dict[str, Any]:
    """Figures of faults, which are let happen."""
    verdicts = judged(chosen, root, report, in_worker=in_worker)
    kinds = Counter(fault.kind for fault in chosen)
    return {
        "faults": len(chosen),
        "kinds": len(kinds),
        "faults_by_kind": dict(kinds),
        "wrong_published": sum(verdict.wrong for verdict in verdicts),
        "culprit_named": sum(verdict.named for verdict in verdicts) / max(1, len(verdicts)),
        "repeated_crashes": sum(verdict.repeated for verdict in verdicts),
        "parent_died": sum(verdict.died for verdict in verdicts),
    }


def other_figures(folder: Path, rounds: int, report: Report) -> dict[str, Any]:
    """Figures of memory, storms, graphs and launches."""
    folder.mkdir()
    parts = {
        "memory": in_child(lambda: {"ratio": memory_ratio()}, folder),
        "storm": in_child(lambda: {"searches": storm_searches()}, folder),
        "dynamo": in_child(lambda: {"configs": dynamo_configs()}, folder),
        "launch": in_child(lambda: {"ratios": launch_ratios(folder / "launch", rounds)}, folder),
        "fresh": in_child(lambda: {"ratios": fresh_int_ratios(rounds)}, folder),
    }
    missing = [name for name, result in parts.items() if "ended" in result]
    report.check(not missing, f"{missing}: {(folder / 'log').read_text()[-2000:]}")
    return {
        "memory_ratio": round(parts["memory"].get("ratio", 9.9), 3),
        "storm_searches": parts["storm"].get("searches", 99),
        "dynamo_configs": parts["dynamo"].get("configs", 99),
        "launch_ratio": round(Series(parts["launch"].get("ratios", [9.9])).median, 3),
        "fresh_int_ratio": round(Series(parts["fresh"].get("ratios", [9.9])).median, 3),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Let every fault happen, judge, report."""
    options = parser(__doc__)
    options.add_argument("--kind", help="only faults of kinds with this text, and no other figures")
    options.add_argument("--part", help="as 2/3: the second third of the faults, and no other figures")
    options.add_argument("--worker", action="store_true", help="configs run in a worker; no other figures")
    given = options.parse_args(arguments)
    report, rounds = Report(), 40 if given.quick else 200
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # said, or Triton warns
    torch.set_num_threads(1)
    chosen = [fault for fault in faults(quick=given.quick) if (given.kind or "") in fault.kind]
    if given.part:
        number, parts = map(int, given.part.split("/"))
        chosen = chosen[number - 1 :: parts]
    if given.worker:  # a kernel that waits for peers is never tuned in one
        chosen = [fault for fault in chosen if fault.how != DECLARED]
        os.environ["TUNEWRIGHT_RUN_SECONDS"] = str(HANG_SECONDS)
    warm_up()
    with TemporaryDirectory() as root:
        triton.knobs.cache.dir = str(Path(root, "triton"))
        report.figures |= fault_figures(chosen, Path(root), report, in_worker=given.worker)
        if not (given.kind or given.part or given.worker):
            report.figures |= other_figures(Path(root, "others"), rounds, report)
    report.figures |= {"triton": triton.__version__, "rung": RUNG}
    report.lines += [f"  {name}: {value}" for name, value in report.figures.items()]
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
