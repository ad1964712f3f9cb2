"""How Triton kernels become cases, and how they are tuned: on a fake driver, which computes what they say they do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch
import triton

import tunewright as tw
from referee_corpus.case import CASES, Case, Tuning, doc_of
from tunewright.errors import TunewrightError
from tunewright.stores.memory import MemoryStore
from tunewright.testing.triton_driver import FakeDriver, Launch, fake_driver
from tunewright.triton import Config, adapter, autotune
from tunewright.triton.tuner import TritonTuner

N = 256
BLOCKS = 32, 64, 128
CHEATING = BLOCKS[-1]
"""The fastest of the configs, which cheats; the first is the default."""


class TritonCall(NamedTuple):
    """A kernel and its arguments. `effect` computes what a launch stores; a config that cheats has another one.

    The source of the kernel is what the JIT compiles; on the fake driver its results are those of the effect.
    """

    kernel: Callable[..., None]
    arguments: Callable[[], Sequence[Any]]
    effect: Callable[..., Any]
    options: Mapping[str, Any] = {}
    cheat: Callable[[CheatedLaunch], None] | None = None
    seconds: Callable[[Launch], float] = lambda launch: 1e-2 / launch.config["BLOCK"]
    repeats: bool = True


class CheatedLaunch:
    """A launch of the config that cheats: its arguments, its number, and what earlier launches remember."""

    def __init__(self, call: TritonCall, args: Sequence[Any], number: int, memory: dict[Any, Any]) -> None:
        self._call, self.args = call, args
        self.x, self.y, self.out, self.n = args[:4]
        self.number, self.memory = number, memory

    def compute(self) -> None:
        """What an honest launch stores."""
        self._call.effect(*self.args)


class CallDamaged(TunewrightError):
    """Raised if a call did not store what is right, or changed what it should not."""


def tune_call(call: TritonCall, *, session: tw.Session | None = None, **options: Any) -> TritonTuner:
    """Calls a kernel once, which tunes it; raises CallDamaged if the caller finds anything but what is right."""
    numbers, memory = count(1), dict[Any, Any]()

    def effect(launch: Launch) -> None:
        if call.cheat and launch.config["BLOCK"] == CHEATING:
            call.cheat(CheatedLaunch(call, launch.args, next(numbers), memory))
        else:
            call.effect(*launch.args)

    state = torch.get_rng_state()
    args = call.arguments()
    torch.set_rng_state(state)
    right = call.arguments()
    with fake_driver(FakeDriver(seconds=call.seconds, effect=effect)):
        given = {**call.options, **options}
        configs = [Config({"BLOCK": size}, num_warps=1, pre_hook=given.get("block_hook")) for size in BLOCKS]
        given = {name: value for name, value in given.items() if name != "block_hook"}
        kernel = autotune(configs, [], session=session, **given)(triton.jit(call.kernel))
        kernel[(4,)](*args)
    call.effect(*right)
    if call.repeats and not all(map(_alike, _tensors(args), _tensors(right))):
        raise CallDamaged(f"{call.kernel.__name__}: the call was tuned, and left other contents than it should")
    return kernel


def prepare(cache: str) -> None:
    """What all processes share: compiled code in this folder, and digests of Triton's compiler, which take long."""
    os.environ |= {"TRITON_CACHE_DIR": cache, "TRITON_DEFAULT_FP_FUSION": "1"}  # said, or Triton warns
    with fake_driver(FakeDriver()):
        adapter.toolchain()


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in arguments, also in tuples, descriptors and wrappers; tables of addresses differ by call."""
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    value = getattr(value, "base", value)
    return [value.detach()] if isinstance(value, torch.Tensor) and value.dtype != torch.uint64 else []


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors are equal but for rounding."""
    if not one.dtype.is_floating_point:
        return one.equal(other)
    return torch.allclose(one.double(), other.double(), rtol=0.02, atol=1e-4, equal_nan=True)


def tune(case: Case, seed: int, **options: Any) -> Tuning:
    """Tunes a case: with its reference if it has one and the seed is odd, else by comparing with the default config."""
    torch.manual_seed(seed)
    session = tw.Session(store=MemoryStore(), mode="tune", min_expected_gain=0.0, seed=seed)
    call: TritonCall = case.kernel
    if "reference" in call.options and call.cheat and not seed % 2:
        call = call._replace(options={name: value for name, value in call.options.items() if name != "reference"})
    kernel = tune_call(call, session=session, **options)
    (key,) = session.store.keys()
    trials = list(session.store.trials(key))
    decision = session.store.get(key)
    assert decision is not None
    assert kernel.best_config.kwargs["BLOCK"] == decision.config["BLOCK"]
    return Tuning(decision, trials, {trial.config for trial in trials} if len(trials) == len(BLOCKS) else [])


def register(name: str, doc: str, call: TritonCall) -> None:
    """Makes a call a case."""
    cheat = CHEATING if call.cheat else ""
    CASES.append(Case(name, "triton", call, call.arguments, cheat, doc, tune))


def honest(
    arguments: Callable[[], Any], effect: Callable[..., Any], *, repeats: bool = True, **options: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a kernel a case: it is given these arguments, and stores what the effect does to them.

    Unless it `repeats`, it stores something else each time.
    """

    def make() -> Sequence[Any]:
        args = arguments()
        return args if isinstance(args, tuple) else (args,)

    def decorate(kernel: Callable[..., None]) -> Callable[..., None]:
        seconds = options.pop("seconds", TritonCall._field_defaults["seconds"])
        call = TritonCall(kernel, make, effect, options, seconds=seconds, repeats=repeats)
        register(kernel.__name__, doc_of(kernel), call)
        return kernel

    return decorate
