"""What a tuner of Triton kernels does on a device that fails: who is blamed, what is published, what runs again.

    python benchmarks/gpu_faults.py [--quick] [--json]

Rung 2: a simulated device, real compiler and autotuner; nothing here is the speed of a GPU. Each fault happens in a
process of its own while a kernel with three configs is tuned. Then a second process tunes the same kernel on the same
device, as after a restart.

- `wrong_published`: decisions for the faulty config, decisions of a search that lost its device, and configs that were
  recorded as failed although they are innocent.
- `culprit_named`: the part of faults whose config was named: in the error that the user sees, or in the store.
- `repeated_crashes`: second processes in which a config ran that had lost the device or ended the process.
- `parent_died`: processes that were ended by a signal, or whose call failed, although the device was still usable.
- `memory_ratio`: peak memory during tuning, over arguments + one buffer + what is declared for copies.
- `storm_searches`: searches of six calls that Triton's own autotuner tunes once.
- `fresh_int_ratio`: CPU time of a launch with an int that is new at every call, over that of Triton's own autotuner.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import triton
import triton.language as tl
from figures import Goal, Report, Series, parser

import tunewright as tw
from tunewright.errors import DeviceLost
from tunewright.model.trial import Failure
from tunewright.testing.hostile_device import (
    ABORT,
    HANG,
    ILLEGAL_ACCESS,
    REFUSED,
    STICKY,
    HostileDriver,
    Misbehavior,
    dying_compiler,
    hostile_device,
)
from tunewright.testing.triton_driver import A100, FakeDriver, Launch, fake_driver
from tunewright.triton import autotune

GOALS = (
    Goal("wrong_published", "==", 0),
    Goal("culprit_named", "==", 1.0),
    Goal("repeated_crashes", "==", 0),
    Goal("parent_died", "==", 0),
    Goal("memory_ratio", "<=", 1.1),
    Goal("storm_searches", "==", 1),
    Goal("fresh_int_ratio", "<=", 1.2),
)
RUNG = "simulated device (rung 2): behavior and Python cost only, no GPU"
BLOCKS = (32, 64, 128)
COMPILER, MEMORY = "compiler", "memory"
GRID, SIZE, LIMIT = (4,), 1 << 22, 120.0
STORM = ((1000, 1, 0, 1), (2000, 2, 0, 1), (3000, 3, 0, 1), (3008, 3, 0, 1), (3001, 3, 1, 1), (3001, 3, 0, 2))
"""A size, a constexpr, the offset and the stride of a tensor: Triton specializes on them, its autotuner does not."""


@triton.jit
def scale(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):  # noqa: N803 - as Triton's are
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, at < n) + seed, at < n)


@triton.jit
def convolve(x_ptr, out_ptr, T, D, NB: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < T), at < T)


def configs(*blocks: int) -> list[Any]:
    return [triton.Config({"BLOCK": block}, num_warps=2 if block == 64 else 1) for block in blocks]


def compute(launch: Launch) -> None:
    """What `scale` does."""
    x, out, n, seed = launch.args[:4]
    torch.add(x[:n], x[:n], out=out[:n])
    out[:n] += seed


def by_block(launch: Launch) -> float:
    return 1e-3 / float(launch.config["BLOCK"])


@dataclass(frozen=True)
class Fault:
    """A fault of one config: what happens, at which block, and how many calls later it surfaces."""

    what: str
    block: int
    delay: int = 0
    devices: int = 1

    @property
    def is_lasting(self) -> bool:
        """Whether the device or the process is lost."""
        return self.what in (*STICKY, ABORT, HANG)

    def of(self, launch: Launch) -> str | None:
        if launch.config["BLOCK"] != self.block:
            return None
        if self.what == MEMORY:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return None if self.what == COMPILER else self.what


def faults(*, quick: bool) -> list[Fault]:
    """The faults; of the default config, of one in the middle, and of the fastest."""
    blocks, delays = ((32, 128), (3,)) if quick else (BLOCKS, (0, 3, 50))
    found = [Fault(what, block, delay) for what in STICKY for block in blocks for delay in delays]
    found += [Fault(what, block) for what in (REFUSED, MEMORY, ABORT, HANG) for block in blocks]
    found += [Fault(COMPILER, 64)]
    return found + [Fault(ILLEGAL_ACCESS, block, 3, devices=2) for block in blocks]


def in_child(work: Callable[[], Any], folder: Path) -> dict[str, Any]:
    """Does `work` in a forked process with a cache in `folder`; returns what it returned, and how it ended."""
    output, hung = folder / f"result {time.monotonic_ns()}", folder / "hung"
    hung.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        os.environ["TUNEWRIGHT_CACHE"] = str(folder)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            tw.configure()
            output.write_text(json.dumps(work()))
        except BaseException:  # noqa: BLE001 - the parent reads it
            traceback.print_exc()
        finally:
            os._exit(0)
    deadline, status = time.monotonic() + LIMIT, 0
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if hung.exists() or time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
        time.sleep(0.005)
    return json.loads(output.read_text()) if output.exists() else {"ended": status or "a signal"}


def tune_with(fault: Fault, folder: Path) -> dict[str, Any]:
    """Tunes on a device with a fault; returns what the user sees, what ran, and what is stored."""
    if fault.what == COMPILER:
        os.environ["TRITON_PTXAS_PATH"] = str(dying_compiler(folder, ".reqntid 64"))
        triton.knobs.cache.dir = str(folder / "triton")
    misbehavior = Misbehavior(fault=fault.of, delay=fault.delay)
    driver = HostileDriver(*(A100,) * fault.devices, misbehavior=misbehavior, effect=compute, seconds=by_block)
    driver.waits_forever = lambda: ((folder / "hung").touch(), signal.pause())
    kernel, error, lost = autotune(configs(*BLOCKS), ["n"])(scale), "", None
    with hostile_device(driver):
        driver.set_current_device(fault.devices - 1)
        try:
            kernel[GRID](torch.ones(100), torch.zeros(100), 100, 3)
        except tw.TunewrightError as failed:
            error, lost = str(failed), isinstance(failed, DeviceLost)
    ran = sorted({launch.config["BLOCK"] for launch in driver.launches})
    return {"error": error, "lost": lost, "ran": ran, **stored()}


def stored() -> dict[str, Any]:
    """The blocks that are decided, and that are recorded as failed."""
    store = tw.configure().store
    trials = [trial for key in list(store.keys()) for trial in store.trials(key)]
    failed = {trial.config["BLOCK"]: str(trial.outcome.kind) for trial in trials if isinstance(trial.outcome, Failure)}
    return {"decided": [decision.config["BLOCK"] for decision in store.decisions()], "failed": failed}


@dataclass
class Verdict:
    """What two processes did about a fault."""

    wrong: int = 0
    named: bool = False
    repeated: int = 0
    died: int = 0


def judge(fault: Fault, first: dict[str, Any], second: dict[str, Any]) -> Verdict:
    bad, verdict = str(fault.block), Verdict()
    for result in (first, second):
        verdict.wrong += sum(str(block) == bad for block in result.get("decided", ()))
        verdict.wrong += sum(block != bad for block in result.get("failed", {}))
        verdict.wrong += bool(result.get("lost") and result["decided"])
    others = [f"BLOCK={block} " for block in BLOCKS if block != fault.block]
    said = str(first.get("error", ""))
    in_error = f"BLOCK={bad} " in said and not any(other in said for other in others)
    verdict.named = in_error or bad in second.get("failed", {}) or bad in first.get("failed", {})
    if fault.is_lasting:
        verdict.repeated += "ended" in second or bool(second["lost"]) or fault.block in second["ran"]
        verdict.died += fault.what in STICKY and "ended" in first
    else:
        verdict.died += any("ended" in result or result["error"] for result in (first, second))
    verdict.wrong += not second.get("decided")  # the second search must come to an end
    return verdict


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Let every fault happen, judge, report."""
    given = parser(__doc__).parse_args(arguments)
    report, verdicts = Report(), []
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # said, or Triton warns
    torch.set_num_threads(1)
    chosen = faults(quick=given.quick)
    with TemporaryDirectory() as root:
        triton.knobs.cache.dir = str(Path(root, "triton"))
        for number, fault in enumerate(chosen):
            folder = Path(root, str(number))
            folder.mkdir()
            first, second = (in_child(lambda: tune_with(fault, folder), folder) for _ in range(2))  # noqa: B023
            verdicts.append(judge(fault, first, second))
            if verdicts[-1] not in (good := Verdict(named=True),):
                report.lines.append(f"  {fault}: {verdicts[-1]}, not {good}: {first} {second}")
        others = Path(root, "others")
        others.mkdir()
        memory = in_child(lambda: {"ratio": memory_ratio()}, others)
        storm = in_child(lambda: {"searches": storm_searches()}, others)
        fresh = in_child(lambda: {"ratios": fresh_int_ratios(40 if given.quick else 200)}, others)
        if missing := [result for result in (memory, storm, fresh) if "ended" in result]:
            report.check(not missing, (others / "log").read_text()[-2000:])
    ratios = Series(fresh.get("ratios", [9.9]))
    report.figures |= {
        "faults": len(chosen),
        "kinds": sorted({fault.what for fault in chosen}),
        "wrong_published": sum(verdict.wrong for verdict in verdicts),
        "culprit_named": sum(verdict.named for verdict in verdicts) / len(verdicts),
        "repeated_crashes": sum(verdict.repeated for verdict in verdicts),
        "parent_died": sum(verdict.died for verdict in verdicts),
        "memory_ratio": round(memory.get("ratio", 9.9), 3),
        "storm_searches": storm.get("searches", 99),
        "fresh_int_ratio": round(ratios.median, 3),
        "rung": RUNG,
    }
    report.lines += [f"  {name}: {value}" for name, value in report.figures.items()]
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
