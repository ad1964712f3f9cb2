"""What the emulator runs, gets right and finds: Triton kernels of many kinds, and defects planted into some of them.

    python benchmarks/emulator.py [--quick] [--json] [--targets sm_80,sm_89,sm_90]

Each kernel of the corpus is compiled for each target and config, executed in two orders of warps, and compared with its
reference (rung: emulated). Defects are edits of the compiled code.

- runs: configs that were compiled; run: the share of them that was executed to the end; right: the share of those
  whose results are right.
- false_alarms: faults reported in healthy kernels.
- planted, found: defects, and those that a fault or a wrong result gave away; missed names the others.
- matmul_seconds: a whole matrix product of 128 x 128 x 128, checked for data races; sampled_seconds: four blocks of
  one of 1024 x 1024 x 1024. CPU seconds, without compiling.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

from figures import Goal, Report, parser

GOALS = (
    Goal("run", ">=", 0.98),
    Goal("right", "==", 1.0),
    Goal("false_alarms", "==", 0),
    Goal("found_share", ">=", 0.95),
    Goal("matmul_seconds", "<=", 1.0),
    Goal("sampled_seconds", "<=", 10.0),
)
QUICK = ("add", "casts", "integers", "softmax", "cumsum", "matmul_fp16", "matmul_int8", "matmul_split_k", "attention",
         "transpose", "histogram_atomics", "matmul_descriptors")  # fmt: skip
ORDERS = ("ascending", "random")
STEPS = 20_000


def corpus() -> dict[str, Any]:
    """All cases by name; loads Triton and torch."""
    from emulator_corpus import elementwise, matmuls, mixed, reductions  # noqa: F401 - they list their cases
    from emulator_corpus.case import CASES

    return CASES


def call_of(case: Any, number: int) -> Any:
    """A call of the case with one of its configs."""
    from tunewright.emulator.triton_kernels import TritonCall

    return TritonCall(case.function, dict(case.inputs()), case.grid, case.configs[number])


def verdict_of(call: Any, compiled: Any, reference: Any) -> Any:
    from tunewright.emulator import Options
    from tunewright.emulator.triton_kernels import check_call

    return check_call(call, compiled, reference, Options(step_limit=STEPS), orders=ORDERS)


def run_corpus(names: list[str], targets: list[str], numbers: list[int]) -> dict[str, Any]:
    """Runs kernels in all configs and targets."""
    from tunewright.emulator import PtxError
    from tunewright.emulator.triton_kernels import compile_call
    from tunewright.errors import BackendError

    counts: Counter[str] = Counter()
    problems: list[str] = []
    for name in names:
        case = corpus()[name]
        for target in targets:
            for number in numbers:
                call, what = call_of(case, number), f"{name} {number} {target}"
                try:
                    compiled = compile_call(call, target)
                except BackendError as error:
                    problems.append(f"{what}: not compiled: {error}")
                    counts["uncompiled"] += 1
                    continue
                counts["runs"] += 1
                try:
                    verdict = verdict_of(call, compiled, case.reference)
                except PtxError as error:
                    problems.append(f"{what}: {error}")
                    continue
                counts["executed"] += 1
                counts["right"] += not verdict.wrong and not verdict.faults
                counts["false_alarms"] += len(verdict.faults)
                if not verdict.passes:
                    problems.append(f"{what}: {verdict.wrong} {[str(fault) for fault in verdict.faults[:2]]}")
    return {
        "kernels": len(names),
        "runs": counts["runs"],
        "uncompiled": counts["uncompiled"],
        "run": round(counts["executed"] / max(counts["runs"], 1), 4),
        "right": round(counts["right"] / max(counts["executed"], 1), 4),
        "false_alarms": counts["false_alarms"],
        "problems": problems,
    }


def run_defects(*, quick: bool) -> dict[str, Any]:
    """Plants every defect into every host that has a place for it."""
    from emulator_defects import EDITS, HOSTS

    from tunewright.emulator import PtxError
    from tunewright.emulator.triton_kernels import compile_call

    found: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    missed = []
    for name, number, target in HOSTS[1::3] if quick else HOSTS:
        case = corpus()[name]
        call = call_of(case, number)
        healthy = compile_call(call, target)
        for edit in EDITS:
            text = edit(healthy.ptx)
            if text == healthy.ptx:
                continue
            planted[edit.__name__] += 1
            try:
                verdict = verdict_of(call, replace(healthy, ptx=text), case.reference)
            except PtxError as error:
                missed.append(f"{edit.__name__} in {name} {target}: {error}")
                continue
            if verdict.passes:
                missed.append(f"{edit.__name__} in {name} {target}")
            else:
                found[edit.__name__] += 1
    total = sum(planted.values())
    return {
        "planted": total,
        "found": sum(found.values()),
        "found_share": round(sum(found.values()) / max(total, 1), 4),
        "by_kind": {kind: f"{found[kind]} of {count}" for kind, count in planted.items()},
        "missed": missed,
    }


def measure_speed() -> dict[str, float]:
    """CPU seconds of two matrix products."""
    import torch
    from emulator_corpus.matmuls import tf32_kernel

    from tunewright.emulator import Options
    from tunewright.emulator.triton_kernels import TritonCall, compile_call, run_compiled

    seconds = {}
    for figure, size, tile, warps, blocks in (
        ("matmul_seconds", 128, 64, 4, None),
        ("sampled_seconds", 1024, 128, 8, 4),
    ):
        a, b = (torch.randn(size, size, dtype=torch.float16) for _ in "ab")
        arguments = {"a": a, "b": b, "c": torch.empty(size, size), "M": size, "N": size, "K": size}
        settings = {"BM": tile, "BN": tile, "BK": 32, "num_warps": warps, "num_stages": 3}
        call = TritonCall(tf32_kernel, arguments, (size // tile, size // tile), settings)
        compiled = compile_call(call, "sm_80")
        began = time.process_time()
        done, _ = run_compiled(compiled, call, Options(blocks=blocks))
        assert not done.faults, done.faults
        seconds[figure] = round(time.process_time() - began, 3)
    return seconds


def main(words: list[str] | None = None) -> int:
    """Runs all parts and prints their figures."""
    options = parser(__doc__)
    options.add_argument("--targets", default="sm_80,sm_89,sm_90")
    given = options.parse_args(words)
    warnings.simplefilter("ignore")
    targets = given.targets.split(",")
    names = list(QUICK) if given.quick else list(corpus())
    figures = run_corpus(names, targets[::2] if given.quick else targets, [2] if given.quick else [0, 1, 2, 3])
    figures |= run_defects(quick=given.quick) | measure_speed()
    report = Report(figures)
    report.lines += [f"{name:<16} {figures[name]}" for name in ("kernels", "runs", "run", "right", "planted", "found")]
    report.lines += [f"  {line}" for line in [*figures["problems"], *figures["missed"]]]
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
