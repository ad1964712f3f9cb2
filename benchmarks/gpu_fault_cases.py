"""The faults of `gpu_faults.py`: what goes wrong on a simulated device, what a process then does, and what is right."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from math import nan, sin
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime.cache import triton_key

import tunewright as tw
from tunewright.errors import DeviceLost
from tunewright.model.trial import Failure
from tunewright.stores import singleflight
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
from tunewright.testing.triton_driver import A30, A100, Launch
from tunewright.triton import autotune

BLOCKS = (32, 64, 128)
FASTEST = 128
GRID, LIMIT = (4,), 120.0

ASSEMBLER, COMPILER, MEMORY = "the assembler dies", "the compiler aborts", "out of memory"
WRONG, DAMAGE, NO_TIME = "wrong results", "changes an input", "no valid time"
CAPTURE, STREAM, EARLIER, DRIFT = "graph capture", "another stream", "an error of earlier work", "a drifting clock"
TWO_CARDS = "one of two cards is lost"
PEERS, DECLARED = "waits for peers that do not come", "declared"

LEASE_SECONDS = 1.0
"""How long a process that died keeps others from tuning: shorter than usual, since many die here."""

WARM_MODULES = (
    "triton.experimental.gluon.nvidia.hopper", "tunewright.stores.sqlite",
    "tunewright.stores.transcripts", "tunewright.strategies.exhaustive", "tunewright.pools.serial",
)  # fmt: skip

ENDS_PROCESS = (ABORT, HANG, COMPILER, PEERS)
NOBODY = (CAPTURE, STREAM, EARLIER, DRIFT)
"""What is no config's fault: nobody may be blamed."""

DRIFTS: dict[str, Callable[[float], float]] = {
    "slows down": lambda now: 1 + 0.5 * min(1.0, now / 2),
    "speeds up": lambda now: 1.5 - 0.5 * min(1.0, now / 2),
    "throttles": lambda now: 1.0 if now < 0.5 else 1.4,
    "swings": lambda now: 1 + 0.3 * sin(3 * now),
}


@triton.jit
def scale(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):  # noqa: N803 - as Triton's are
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, at < n) + seed, at < n)


def configs(*blocks: int) -> list[Any]:
    return [triton.Config({"BLOCK": block}, num_warps=2 if block == 64 else 1) for block in blocks]


def compute(launch: Launch) -> None:
    """What `scale` does."""
    x, out, n, seed = launch.args[:4]
    torch.add(x[:n], x[:n], out=out[:n])
    out[:n] += seed


def by_block(launch: Launch) -> float:
    """So long that each launch is a sample of its own, which takes few of them."""
    return 2 / float(launch.config["BLOCK"])


@dataclass(frozen=True)
class Fault:
    """What goes wrong: at the launches of a block from number `after` on, surfacing `delay` calls later.

    `how` tells variants apart. If it is nobody's fault, `block` is the one that should be decided.
    """

    what: str
    block: int
    delay: int = 0
    after: int = 0
    how: str = ""

    @property
    def kind(self) -> str:
        return TWO_CARDS if self.how == TWO_CARDS else self.what

    @property
    def is_lasting(self) -> bool:
        """Whether the device or the process is lost."""
        return self.what in (*STICKY, *ENDS_PROCESS) and self.how != DECLARED

    @property
    def best(self) -> int:
        """The block that should be decided in the end."""
        if self.what in NOBODY:
            return self.block
        return FASTEST if self.block != FASTEST else 64


def faults(*, quick: bool) -> list[Fault]:
    """The faults: of the default config, of one in the middle, and of the fastest; early and late in their trials."""
    delays, moments = ((0, 3, 50), (0, 2, 9)) if quick else ((0, 1, 3, 10, 50), (0, 1, 2, 4, 9, 20))
    found = [
        Fault(what, block, delay, after) for what in STICKY for block in BLOCKS for delay in delays for after in moments
    ]
    found += [
        Fault(what, block, 0, after)
        for what in (REFUSED, MEMORY, WRONG, DAMAGE, NO_TIME, ABORT)
        for block in BLOCKS
        for after in moments
    ]
    found += [Fault(what, block, 0, after) for what in (HANG, PEERS) for block in BLOCKS for after in moments[:2]]
    found += [Fault(ASSEMBLER, 64), *(Fault(COMPILER, block) for block in BLOCKS)]
    found += [Fault(ILLEGAL_ACCESS, block, delay, how=TWO_CARDS) for block in BLOCKS for delay in delays]
    found += [Fault(EARLIER, FASTEST, delay, how=what) for what in STICKY for delay in delays]
    found += [Fault(DRIFT, block, how=how) for how in DRIFTS for block in BLOCKS]
    found += [Fault(STREAM, FASTEST, how=str(number)) for number in (1, 7)]
    found += [Fault(PEERS, BLOCKS[0], how=DECLARED)]
    return found + [Fault(CAPTURE, FASTEST, how=how) for how in ("first call", "on another stream")]


class Device:
    """The simulated device of a fault; the faults of a config begin at its launch number `after`."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        self.fault, self.folder, self.counts = fault, folder, Counter[int]()
        two = fault.how == TWO_CARDS
        drift = DRIFTS.get(fault.how, lambda now: 1.0)
        misbehavior = Misbehavior(fault=self.fault_of, delay=fault.delay, drift=drift)
        cards = (A30, A100) if two else (A100,)
        self.driver = HostileDriver(*cards, misbehavior=misbehavior, effect=self.effect, seconds=self.seconds)
        self.driver.waits_forever = lambda: ((folder / "hung").touch(), signal.pause())
        self.is_at_fault = False

    def fault_of(self, launch: Launch) -> str | None:
        fault, block = self.fault, launch.config["BLOCK"]
        if fault.what == EARLIER:
            return fault.how if block == 16 else None
        self.counts[block] += 1
        only_here = fault.how != TWO_CARDS or launch.device == 1
        self.is_at_fault = fault.how == DECLARED or (
            only_here and block == fault.block and self.counts[block] > fault.after
        )
        if not self.is_at_fault or fault.what in NOBODY:
            return None
        if fault.what == MEMORY:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        if fault.what == PEERS:
            return HANG if fault.how != DECLARED or self.counts.total() > 1 else None
        return fault.what if fault.what in (*STICKY, REFUSED, ABORT, HANG) else None

    def effect(self, launch: Launch) -> None:
        compute(launch)
        if self.is_at_fault and self.fault.what == WRONG:
            launch.args[1][:50] += 1
        if self.is_at_fault and self.fault.what == DAMAGE:
            launch.args[0][:50] += 1

    def seconds(self, launch: Launch) -> float:
        if self.fault.what == DRIFT:
            return 2e-2 if launch.config["BLOCK"] == self.fault.block else 2.3e-2
        return nan if self.is_at_fault and self.fault.what == NO_TIME else by_block(launch)


def tune_with(fault: Fault, folder: Path, *, in_worker: bool = False) -> dict[str, Any]:
    """Tunes on a device with a fault; returns what the user sees, what ran, and what is stored."""
    if fault.what == ASSEMBLER:
        os.environ["TRITON_PTXAS_PATH"] = str(dying_compiler(folder, ".reqntid 64"))
        triton.knobs.cache.dir = str(folder / "triton")
    if fault.what == COMPILER and not in_worker:
        triton.knobs.runtime.jit_cache_hook = lambda **event: abort_if(event, fault.block)
    kernel, device = _in_worker(fault, folder) if in_worker else _in_this_process(fault, folder)
    driver, error, lost, notes = device.driver, "", None, []
    with hostile_device(driver):
        driver.set_current_device(len(driver.cards) - 1)
        try:
            notes = _call(kernel, driver, fault)
        except tw.TunewrightError as failed:
            error, lost = str(failed), isinstance(failed, DeviceLost)
        ran = sorted({launch.config["BLOCK"] for launch in driver.launches})
        if fault.how == TWO_CARDS and (lost or in_worker):
            notes += _use_other_card(kernel, driver)
    return {"error": error, "lost": lost, "ran": ran, "notes": notes, **stored()}


def _in_this_process(fault: Fault, folder: Path) -> tuple[Any, Device]:
    # Without a reference the default is right by definition, whatever it computes.
    reference = (lambda x_ptr, n, seed: 2 * x_ptr + seed) if fault.what == WRONG else None
    kernel = autotune(configs(*BLOCKS), ["n"], peers=fault.how == DECLARED, reference=reference)(scale)
    return kernel, Device(fault, folder)


def _in_worker(fault: Fault, folder: Path) -> tuple[Any, Device]:
    worker = import_module("gpu_fault_worker")
    worker.fork_workers()
    return worker.kernel_of(fault), worker.callers_device(fault, folder)


def abort_if(event: dict[str, Any], block: int) -> None:
    """Aborts while a block is compiled, as an assertion in LLVM does."""
    if (
        f"BLOCK={block}" in str(event["repr"])
        or f"'BLOCK', {block}" in str(event)
        or f": {block}" in str(event["compile"]["constants"])
    ):
        os.abort()


def _call(kernel: Any, driver: HostileDriver, fault: Fault) -> list[str]:
    """Calls the kernel in the circumstances of a fault; returns what was wrong with them."""
    x, out = torch.ones(100), torch.zeros(100)
    if fault.what == CAPTURE:
        return _call_in_capture(kernel, driver, fault, x, out)
    if fault.what == STREAM:
        with driver.stream(int(fault.how)):
            kernel[GRID](x, out, 100, 3)
        return ["it launched on another stream"] if set(driver.launch_streams) != {int(fault.how)} else []
    if fault.what == EARLIER and not (marker := _marker(fault)).exists():
        marker.touch()
        scale[GRID](x, out, 100, 3, BLOCK=16)
    kernel[GRID](x, out, 100, 3)
    return []


def _marker(fault: Fault) -> Path:
    """Exists once earlier work has failed: after a restart it does not."""
    return Path(os.environ["TUNEWRIGHT_CACHE"], "failed earlier")


def _call_in_capture(kernel: Any, driver: HostileDriver, fault: Fault, x: Any, out: Any) -> list[str]:
    notes = []
    try:
        if fault.how == "first call":
            with driver.capture() as graph:
                kernel[GRID](x, out, 100, 3)
        else:
            with driver.stream(3), driver.capture() as graph:
                kernel[GRID](x, out, 100, 3)
        notes += [] if len(graph.launches) == 1 else [f"{len(graph.launches)} launches were captured"]
    except RuntimeError as error:
        notes.append(f"the capture failed: {error}")
    kernel[GRID](x, out, 100, 3)
    return notes


def _use_other_card(kernel: Any, driver: HostileDriver) -> list[str]:
    """Tunes on the card that works; returns what is wrong."""
    driver.set_current_device(0)
    try:
        kernel[GRID](torch.ones(100), torch.zeros(100), 100, 3)
    except (tw.TunewrightError, RuntimeError) as error:
        return [f"the other card: {error}"]
    block = kernel.best_config.kwargs["BLOCK"]
    return [] if block == FASTEST else [f"the other card got {block}"]


def stored() -> dict[str, Any]:
    """The blocks that are decided on the card in question, and that are recorded as failed."""
    store = tw.configure().store
    trials = [trial for key in list(store.keys()) for trial in store.trials(key)]
    failed = {trial.config["BLOCK"]: str(trial.outcome.kind) for trial in trials if isinstance(trial.outcome, Failure)}
    decided = [decision.config["BLOCK"] for decision in store.decisions() if "A30" not in str(decision.key.device)]
    return {"decided": decided, "failed": failed}


@dataclass
class Verdict:
    """What two processes did about a fault."""

    wrong: int = 0
    named: bool = False
    repeated: int = 0
    died: int = 0


GOOD = Verdict(named=True)


def judge(fault: Fault, first: dict[str, Any], second: dict[str, Any], *, in_worker: bool = False) -> Verdict:
    """Judges what two processes did; if faults happened in a worker, the first must have gone on and decided."""
    bad, verdict = str(fault.block), Verdict()
    guilty = set() if fault.what in NOBODY or fault.how == DECLARED else {bad}
    for result in (first, second):
        verdict.wrong += sum(block != fault.best for block in result.get("decided", ()))
        verdict.wrong += len(set(result.get("failed", {})) - guilty)
        verdict.wrong += bool(result.get("lost") and result["decided"]) + len(result.get("notes", ()))
    message = str(first.get("error", ""))
    mentioned = {str(block) for block in BLOCKS if f"BLOCK={block} " in message}
    recorded = {*first.get("failed", {}), *second.get("failed", {})}
    verdict.named = (mentioned or recorded) == guilty and (fault.what != EARLIER or first.get("lost") is True)
    if fault.is_lasting:
        verdict.repeated += "ended" in second or bool(second["lost"]) or fault.block in second["ran"]
        verdict.died += fault.what in STICKY and "ended" in first
    else:
        errors = [result.get("error") for result in (first, second)]
        expected = fault.what == EARLIER
        verdict.died += any("ended" in result for result in (first, second)) or any(errors[expected:])
    if in_worker and fault.what != EARLIER:
        verdict.died += "ended" in first or bool(first["error"])
        verdict.wrong += not first.get("decided")
    if fault.how == DECLARED:  # without its peers it must not be tuned
        verdict.wrong += second.get("decided") != [] or second["ran"] != [fault.block]
    else:
        verdict.wrong += not second.get("decided")  # the second search must come to an end
    return verdict


def warm_up() -> None:
    """Does once what every process would do: hashes Triton's library, and imports what a search imports."""
    triton_key()
    for name in WARM_MODULES:
        import_module(name)
    singleflight.LEASE = LEASE_SECONDS


def start_child(work: Callable[[], Any], folder: Path) -> tuple[int, Path]:
    """Does `work` in a forked process with a cache in `folder`; returns its number, and where its result will be."""
    output = folder / f"result {time.monotonic_ns()}"
    (folder / "hung").unlink(missing_ok=True)
    child = os.fork()
    if child:
        return child, output
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


def finish_child(child: int, output: Path, folder: Path) -> dict[str, Any]:
    """Waits for a child, and ends one that hangs; returns what it returned, or how it ended."""
    deadline, status = time.monotonic() + LIMIT, 0
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if (folder / "hung").exists() or time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
        time.sleep(0.005)
    return json.loads(output.read_text()) if output.exists() else {"ended": status or "a signal"}


def in_child(work: Callable[[], Any], folder: Path) -> dict[str, Any]:
    """Does `work` in a forked process, and returns what it returned."""
    return finish_child(*start_child(work, folder), folder)
