"""Simulated cards for tests of workers: the card of the caller works, that of a worker has a fault."""

import os
from contextlib import AbstractContextManager

import torch
import triton

from tunewright.testing.hostile_device import HostileDriver, Misbehavior, hostile_device
from tunewright.testing.triton_driver import A30, A100, FakeDriver, Launch, fake_driver

OUT_OF_MEMORY, WRONG, COMPILER = "out of memory", "wrong", "the compiler aborts"
HOST_MEMORY = "takes memory of the host"


def scale(launch: Launch) -> None:
    """What the kernel `scale` does."""
    x, out, n, seed = launch.args[:4]
    out[:n] = 2 * x[:n] + seed


def update(launch: Launch) -> None:
    """What the kernel `update` does: it adds elements of x, chosen by an index, to y in place."""
    y, x, index, n = launch.args[:4]
    y[:n] += x[index[:n]]


def make_driver(what: str = "", block: str = "0", after: str = "", device: str = "0") -> HostileDriver:
    """A driver with two cards, one of which has a fault with one block, once the block `after` was launched."""
    seen, taken = {""}, []

    def is_bad(launch: Launch) -> bool:
        seen.add(str(launch.config["BLOCK"]))
        return launch.config["BLOCK"] == int(block) and launch.device == int(device) and after in seen

    def fault(launch: Launch) -> str | None:
        if not is_bad(launch) or what in (WRONG, COMPILER):
            return None
        if what == OUT_OF_MEMORY:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        if what == HOST_MEMORY:
            taken.append(bytearray(1 << 31))
            return None
        return what

    def effect(launch: Launch) -> None:
        {"scale": scale, "update": update}[launch.kernel](launch)
        if what == WRONG and is_bad(launch):
            launch.args[1][:50] += 1

    driver = HostileDriver(
        *(A100, A30),
        misbehavior=Misbehavior(fault=fault if what else lambda launch: None),
        effect=effect,
        seconds=lambda launch: 1e-3 / launch.config["BLOCK"],
    )
    driver.installer = (f"{__name__}:install", what, block, after, device)
    return driver


def install(what: str, block: str, after: str, device: str) -> AbstractContextManager[HostileDriver]:
    """Makes the cards of a worker."""
    if what == COMPILER:
        triton.knobs.runtime.jit_cache_hook = lambda **event: _abort_if(event, block)
    return hostile_device(make_driver(what, block, after, device))


def _abort_if(event: dict, block: str) -> None:
    """Aborts while a block is compiled, as an assertion in LLVM does."""
    if f": {block}" in str(event["compile"]["constants"]):
        os.abort()


def install_fake() -> AbstractContextManager[FakeDriver]:
    """Makes a card without faults and results."""
    return fake_driver(make_fake())


def make_fake() -> FakeDriver:
    driver = FakeDriver()
    driver.installer = (f"{__name__}:install_fake",)
    return driver
