"""The stages `inventory`, `adapter`, `kernels`, `memory` and `launch`."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch
import triton

from tunewright.model.trial import median
from tunewright.triton import adapter, releases
from tunewright.triton.acceptance.device import DeviceUnderTest
from tunewright.triton.acceptance.kernels import SUITE, SuiteKernel, accept_increment
from tunewright.triton.acceptance.notes import StageNotes
from tunewright.triton.acceptance.timing import interleaved, medians, sampler
from tunewright.triton.decorator import autotune
from tunewright.version import __version__

STOCK_RATIO = 1.1
"""How much slower than the choice of Triton's autotuner ours may be."""

LAUNCH_RATIO = 1.2
"""How many times as long as the plain JIT's the Python of a launch may take."""

MEMORY_SIZE = 1 << 20
COPIES = 20
"""How many times the memory of the arguments the copies may take by which results are judged."""


def take_inventory(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Notes what is installed, and what else uses the card."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES)}  # noqa: TID251
    notes.figures |= {
        "tunewright": __version__,
        "triton": releases.VERSION,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": platform.platform(),
        "rung": device.rung,
        "target": str(adapter.device()),
        "toolchain": dict(adapter.toolchain()),
        "variables": variables,
        **device.describe(),
    }
    states = device.state()
    notes.figures["state"] = [state.describe() for state in states]
    for state in states:
        for complaint in state.complaints():
            notes.expect(False, complaint)


_PREFIXES = ("TRITON_", "CUDA_", "HIP_", "ROCR_", "NVIDIA_", "TORCHINDUCTOR_", "PYTORCH_")


def check_adapter(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Runs the self-test of the adapter, and one kernel from compiling to its result."""
    for difference in releases.self_test():
        notes.expect(False, f"triton {releases.VERSION}: {difference}")
    if not notes.expect(adapter.EventClock.is_available(), "the driver has no events, or no flush of the caches"):
        return
    target = adapter.device()
    for limit in ("shared memory", "processors", "warp"):
        notes.expect(target.limits.get(limit, 0) > 0, f"{target.model} reports no {limit}")
    kernel = SUITE[0]
    _launch_checked(device, kernel, kernel.function, kernel.configs[0].all_kwargs(), notes)


def _launch_checked(
    device: DeviceUnderTest, kernel: SuiteKernel, function: Any, options: dict[str, Any], notes: StageNotes
) -> tuple[Any, ...]:
    """Launches a kernel, and checks its result and that its inputs are unchanged; returns the arguments."""
    arguments = kernel.arguments(device.place)
    device.adopt(*(each for each in arguments if isinstance(each, torch.Tensor)))
    before = [each.clone() if isinstance(each, torch.Tensor) else each for each in arguments]
    function[kernel.grid](*arguments, **options)
    want = kernel.expected(*before)
    have = arguments[kernel.result]
    worst = float((have.float() - want.float()).abs().max())
    tolerance = 2e-2 if have.dtype == torch.float16 else 1e-3
    scale = max(1.0, float(want.float().abs().max()))
    notes.expect(worst <= tolerance * scale, f"{kernel.name}: its result is off by {worst:.3g}")
    for number, (now, then) in enumerate(zip(arguments, before, strict=True)):
        if isinstance(now, torch.Tensor) and number != kernel.result:
            same = bool(torch.equal(now.view(torch.uint8), then.view(torch.uint8)))
            notes.expect(same, f"{kernel.name}: argument {number} was changed, which it only reads")
    return arguments


def check_kernels(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Tunes the five kernels by ours and by Triton's autotuner: results, inputs, and the time of the two choices."""
    clock = adapter.EventClock()
    for kernel in SUITE:
        ours = autotune(kernel.configs, kernel.key)(kernel.function)
        stock = adapter.stock_autotune()(kernel.configs, kernel.key)(kernel.function)
        arguments = _launch_checked(device, kernel, ours, {}, notes)
        _launch_checked(device, kernel, ours, {}, notes)
        _launch_checked(device, kernel, stock, {}, notes)
        samples = interleaved([sampler(clock, _launcher(kernel, each, arguments)) for each in (ours, stock)], 9)
        own, other = medians(samples)
        notes.samples |= {f"{kernel.name} ours": samples[0], f"{kernel.name} stock": samples[1]}
        notes.figures[f"{kernel.name} over stock"] = own / other
        chosen = ours.best_config.all_kwargs()
        slower = f"{kernel.name}: {chosen} takes {own / other:.2f} times as long as the choice of Triton's autotuner"
        notes.expect(own <= STOCK_RATIO * other, slower)
    _check_increment(device, notes)


def _launcher(kernel: SuiteKernel, tuner: Any, arguments: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: tuner[kernel.grid](*arguments)


def _check_increment(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Tunes a kernel that changes its argument in place: one call adds one."""
    x = torch.zeros(4096, device=device.place)
    device.adopt(x)
    configs = [triton.Config({"BLOCK": block}, num_warps=2) for block in (64, 256)]
    autotune(configs, ["n"])(accept_increment)[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, 4096)
    notes.expect(bool((x == 1).all()), f"a call that tunes added {float(x.max()):g}, not 1")


def check_memory(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Tunes a kernel, and checks the peak of the memory and that nothing stays, without the garbage collector."""
    add = SUITE[0].function
    arguments = (*(torch.ones(MEMORY_SIZE, device=device.place) for _ in range(3)), MEMORY_SIZE)
    device.adopt(*arguments[:3])
    size = 3 * 4 * MEMORY_SIZE
    accept_grid = (triton.cdiv(MEMORY_SIZE, 128),)
    add[accept_grid](*arguments, BLOCK=128, num_warps=2)  # what a context takes at its first launch is not ours
    buffer = adapter.EventClock().flush_bytes
    gc.collect()
    gc.disable()
    try:
        device.reset_peak()
        before = device.memory()[0]
        autotune(SUITE[0].configs, ["n"])(add)[SUITE[0].grid](*arguments)
        after, peak = device.memory()
    finally:
        gc.enable()
    notes.figures |= {"arguments": size, "flush buffer": buffer, "peak": peak - before, "left": after - before}
    allowed = buffer + COPIES * size
    notes.expect(peak - before <= allowed, f"tuning took {peak - before:,} bytes, at most {allowed:,} are declared")
    notes.expect(after <= before, f"{after - before:,} bytes are still in use after tuning")


def check_launch(device: DeviceUnderTest, notes: StageNotes) -> None:
    """Measures the Python of a launch: ours and Triton's autotuner over the plain JIT."""
    kernel = SUITE[0]
    arguments = kernel.arguments(device.place)
    device.adopt(*arguments[:3])
    ours = autotune(kernel.configs, kernel.key)(kernel.function)
    stock = adapter.stock_autotune()(kernel.configs, kernel.key)(kernel.function)
    for tuner in (ours, stock):
        tuner[kernel.grid](*arguments)
    spelled = ours.best_config.all_kwargs()
    ways = {
        "ours": lambda: ours[kernel.grid](*arguments),
        "stock": lambda: stock[kernel.grid](*arguments),
        "direct": lambda: kernel.function[kernel.grid](*arguments, **spelled),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(31):
        for name in list(ways)[turn % 3 :] + list(ways)[: turn % 3]:
            times[name].append(_cpu_seconds(ways[name], 100))
        adapter.wait_for_device()
    ratios = {name: [own / base for own, base in zip(times[name], times["direct"], strict=True)] for name in ways}
    notes.samples |= {f"{name} over direct": each for name, each in ratios.items() if name != "direct"}
    notes.figures |= {"launch ratio": median(ratios["ours"]), "stock launch ratio": median(ratios["stock"])}
    notes.figures["launch us"] = {name: 1e6 * median(each) for name, each in times.items()}
    ratio = median(ratios["ours"])
    notes.expect(ratio <= LAUNCH_RATIO, f"a launch takes {ratio:.2f} times the Python of the plain JIT's")


def _cpu_seconds(call: Callable[[], Any], calls: int) -> float:
    began = time.process_time()
    for _ in repeat(None, calls):
        call()
    return (time.process_time() - began) / calls
