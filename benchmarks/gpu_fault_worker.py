"""The kernels and the device of `gpu_faults.py --worker`: faults happen in a worker, the caller's own device works."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from gpu_fault_cases import BLOCKS, COMPILER, EARLIER, WRONG, Device, Fault, abort_if, configs

from tunewright.pools.worker_process import WorkerProcess
from tunewright.testing.hostile_device import hostile_device
from tunewright.triton import autotune, worker_attempt, worker_main


@autotune(configs(*BLOCKS), ["n"], worker=True)
@triton.jit
def worker_scale(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):  # noqa: N803 - as Triton's are
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, at < n) + seed, at < n)


@autotune(configs(*BLOCKS), ["n"], worker=True, reference=lambda x_ptr, n, seed: 2 * x_ptr + seed)
@triton.jit
def checked_scale(x_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, at < n) + seed, at < n)


def kernel_of(fault: Fault) -> Any:
    """The kernel to tune. Without a reference the default is right by definition, whatever it computes."""
    return checked_scale if fault.what == WRONG else worker_scale


def callers_device(fault: Fault, folder: Path) -> Device:
    """The device of the caller, which works unless the fault is of its own earlier work."""
    device = Device(fault if fault.what == EARLIER else Fault("nothing", 0, how=fault.how), folder)
    fields = (fault.what, fault.block, fault.delay, fault.after, fault.how, folder)
    device.driver.installer = (f"{__name__}:install", *map(str, fields))
    return device


def install(*fields: str) -> AbstractContextManager[Any]:
    """Makes the device of a worker, which has the fault."""
    what, block, delay, after, how, folder = fields
    fault = Fault(what, int(block), int(delay), int(after), how)
    device = Device(fault, Path(folder))
    device.driver.waits_forever = signal.pause
    if what == COMPILER:
        triton.knobs.runtime.jit_cache_hook = lambda **event: abort_if(event, fault.block)
    return hostile_device(device.driver)


def fork_workers() -> None:
    """Forks workers from this process, which has imported all: their own server would import torch for each fault."""
    worker_attempt.start_worker = lambda module: WorkerProcess.fork(worker_main.serve_call)
