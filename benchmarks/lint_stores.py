"""Stores whose keys are known to be right or wrong, filled by tuning on a simulated machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log2
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tunewright.cases.inputs import Inputs
from tunewright.keylint import findings
from tunewright.measure.evaluator import Evaluator
from tunewright.measure.kernel_workload import KernelWorkload
from tunewright.model.decision import Problem
from tunewright.model.device import Device
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Kernel
from tunewright.session import Session
from tunewright.settings import Settings
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space
from tunewright.stores.memory import MemoryStore
from tunewright.testing.torture import disturbances as weather
from tunewright.testing.torture.disturbances import Disturbance
from tunewright.testing.torture.machine import SimulatedMachine, Truth

SPACE = Space(Knob("tile", [8, 16, 32, 64, 128, 256]), Knob("unroll", [1, 2, 4, 8]))
CONFIGS = list(SPACE)
DEFAULT = SPACE.first

KEY = Key(
    "simulated",
    "0123abcd",
    Signature(("float32[M,N]",), {"M": 256, "N": 256}),
    Device("cpu", "Some CPU", "x86_64", ("avx2",), {"cores": 8, "l2": 1 << 20, "l3": 32 << 20}),
    {"compiler": "gcc 12.2.0", "flags": "-O3", "numpy": "2.1.0"},
    {"threads": "1", "regime": "hot", "check": "0123abcd4567"},
)


def turned(key: Key, name: str, value: Any) -> Key:
    """The key with one field changed, by the name that `Key.differences` gives it."""
    part, _, rest = name.partition(".")
    if part == "signature" and rest.startswith("dims."):
        dims = {**key.signature.dims, rest[5:]: int(value)}
        return msgspec.structs.replace(key, signature=Signature(key.signature.args, dims))
    if part == "signature":
        return msgspec.structs.replace(key, signature=Signature((str(value),), key.signature.dims))
    if part in ("toolchain", "mode"):
        return msgspec.structs.replace(key, **{part: {**getattr(key, part), rest: str(value)}})
    device = key.device
    if rest.startswith("limits."):
        changed = msgspec.structs.replace(device, limits={**device.limits, rest[7:]: int(value)})
    elif rest.startswith("features"):
        changed = msgspec.structs.replace(device, features=("avx2", *([str(value)] if value else [])))
    else:
        changed = msgspec.structs.replace(device, model=str(value))
    return msgspec.structs.replace(key, device=changed)


@dataclass(frozen=True)
class Stored:
    """A store to be filled: fields and their values, how far each shifts the best config, and what is needless.

    `shift` says for each field how many steps of the tile the best config moves from value to value: 0 for a field that
    only makes everything slower, or does nothing.
    """

    name: str
    fields: dict[str, Sequence[Any]]
    shift: dict[str, Sequence[float]]
    planted: set[str] = field(default_factory=set)
    weather: Disturbance = weather.QUIET
    trials: int = 0


def truth(stored: Stored, places: Mapping[str, int]) -> Truth:
    """Seconds of every config under one key: a valley whose bottom the fields that matter move, and a rough ground."""
    bottom = 2.0 + sum(stored.shift[name][place] for name, place in places.items() if name in stored.shift)
    slower = 1 + sum(0.4 * place for name, place in places.items())
    rough = np.random.default_rng(7).uniform(0, 0.03, len(CONFIGS))
    seconds = []
    for config, ground in zip(CONFIGS, rough, strict=True):
        tile, unroll = log2(config["tile"]) - 3, log2(config["unroll"])
        seconds.append(1e-4 * slower * (1 + 0.18 * abs(tile - bottom) + 0.08 * abs(unroll - 1) + ground))
    return Truth(tuple(float(one) for one in seconds), 0)


class Simulated:
    """A backend whose kernels run on a simulated machine."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine

    def signature(self, kernel: Kernel) -> CallSignature:
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        return KEY

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> int:
        return CONFIGS.index(config)

    def load(self, kernel: Kernel, artifact: int) -> Launched:
        return Launched(self._machine, artifact)

    def timer(self, launch: Launched, args: Sequence[Any], threads: int) -> Clock:
        return Clock(launch)


@dataclass(frozen=True)
class Launched:
    """A candidate of a simulated machine."""

    machine: SimulatedMachine
    candidate: int

    def __call__(self) -> None:
        self.machine.run(self.candidate)


class Clock:
    """Reads the simulated clock."""

    clock = "simulated"

    def __init__(self, launched: Launched) -> None:
        self._launched = launched

    def __call__(self, count: int) -> float:
        return self._launched.machine.run(self._launched.candidate, count)

    def flush(self, *, whole: bool) -> None: ...


def tune(session: Session, key: Key, machine: SimulatedMachine, *, fresh: bool = False) -> None:
    """One key, as a user would."""
    kernel = Kernel("simulated", lambda: None, (), Path())
    bench = Evaluator(KernelWorkload(Simulated(machine), kernel, (Inputs(),), DEFAULT))
    session.tune(Problem(key, SPACE, DEFAULT), bench, fresh=fresh)


def opened(trials: int, seed: int) -> Session:
    how = {"strategy": "random", "trials": trials} if trials else {"strategy": "exhaustive", "trials": 0}
    return Session(Settings(pool="serial", seed=seed, min_expected_gain=0.0, **how), store=MemoryStore())


def reported(stored: Stored, seed: int) -> set[str]:
    """What the linter calls needless, after every key was tuned."""
    session = opened(stored.trials, seed)
    for number, values in enumerate(product(*(range(len(values)) for values in stored.fields.values()))):
        places = dict(zip(stored.fields, values, strict=True))
        key = KEY
        for name, place in places.items():
            key = turned(key, name, stored.fields[name][place])
        tune(session, key, SimulatedMachine(truth(stored, places), stored.weather, (seed, number)))
    found = findings.check_fields(session.store.decisions(), session.store.trials)
    return {" + ".join(one.names) for one in found if one.needless}


@dataclass(frozen=True)
class Again:
    """A key that is tuned twice; in between, something that the key does not hold moves the best config, or not."""

    name: str
    shift: float
    weather: Disturbance

    @property
    def planted(self) -> set[str]:
        return {"contradiction"} if self.shift else set()


def contradicted(again: Again, seed: int) -> set[str]:
    """What the linter makes of the generations of the key."""
    session = opened(0, seed)
    for number, shift in enumerate((0.0, again.shift)):
        hidden = Stored("", {}, {"hidden": [shift]})
        machine = SimulatedMachine(truth(hidden, {"hidden": 0}), again.weather, (seed, number))
        tune(session, KEY, machine, fresh=True)
    store: Any = session.store
    found = findings.find_contradictions(KEY, store.history(KEY), list(store.trials(KEY)))
    return {"contradiction"} if found else set()


M = "signature.dims.M"
MATTERS = {M: (0.0, 1.5, 3.0, 1.0, 2.5)}
"""Every store varies M, which moves the best config."""

SIZES = (64, 256, 1024, 2048, 4096)

FIELDS: dict[str, Sequence[Any]] = {
    "signature.dims.N": (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
    "signature.args.0": ("float32[M,N]", "float16[M,N]", "float64[M,N]", "int32[M,N]"),
    "device.limits.l3": (16 << 20, 32 << 20, 64 << 20, 96 << 20),
    "device.model": ("Some CPU", "Some CPU v2", "Some CPU v3", "Some CPU v4"),
    "device.features.avx512f": ("", "avx512f"),
    "toolchain.numpy": ("2.1.0", "2.1.1", "2.1.2", "2.2.0"),
    "toolchain.flags": ("-O3", "-O3 -g", "-O3 -fPIC", "-O2"),
    "toolchain.compiler": ("gcc 12.2.0", "gcc 12.3.0", "gcc 13.1.0", "gcc 13.2.0"),
    "mode.threads": ("1", "2", "4", "8"),
    "mode.check": ("0123abcd4567", "89ab01234567", "cdef01234567", "the default config"),
}


def _stored(number: int, name: str, shift: Sequence[float], sizes: int, trials: int = 0) -> Stored:
    """A store that varies one field over as many values as there are shifts, and M over so many sizes."""
    fields = {M: SIZES[:sizes], name: FIELDS[name][: len(shift)]}
    moved = {M: MATTERS[M], name: tuple(shift)}
    enough = sizes * (len(shift) - 1) >= 8
    planted = {name} if enough and not any(shift) else set()
    above = weather.NATURAL[number % len(weather.NATURAL)]
    label = f"{name} {'moves it' if any(shift) else 'does nothing'}, {sizes}x{len(shift)}, {above.name}"
    return Stored(label, fields, moved, planted, above, trials)


def _stores() -> list[Stored]:
    names = list(FIELDS)
    varied = [name for name in names if len(FIELDS[name]) > 2]  # two values make too few pairs with five sizes
    made = []
    for number in range(20):  # needless: nothing moves; every other one searched only in part
        name = varied[number % len(varied)]
        values = min(len(FIELDS[name]), 4)
        sizes = 3 + number % 3
        if name == "signature.dims.N" and number >= len(varied):
            values, sizes = 10, 1
        fields = [0.0] * values
        made.append(_stored(number, name, fields, sizes, 18 if number % 2 else 0))
    for number in range(10):  # healthy: the field moves the best config, from clearly to hardly
        name = names[number]
        by = (2.0, 1.5, 1.0, 0.8, 0.6)[number % 5]
        values = min(len(FIELDS[name]), 4)
        made.append(_stored(number + 3, name, [by * (i % 3) for i in range(values)], 3, 18 if number % 2 else 0))
    for number, name in enumerate(("signature.dims.N", "toolchain.numpy", "mode.threads", "device.limits.l3")):
        made.append(_stored(number + 5, name, [0.0, 0.0, 0.0, 2.0], 3))  # healthy: one value of four matters
    for number, (name, sizes, values) in enumerate(
        (("signature.dims.N", 1, 5), ("toolchain.flags", 2, 3), ("device.model", 3, 3), ("mode.check", 3, 2))
    ):
        made.append(_stored(number + 1, name, [0.0] * values, sizes))  # needless perhaps, but too little to say so
    for number, name in enumerate(("signature.args.0", "toolchain.compiler")):
        made.append(_stored(number, name, [0.0], 5))  # only one value seen
    return made


OVER = _stores()
AGAIN = [
    Again(f"tuned again, {'something' if shift else 'nothing'} changed, {above.name}", shift, above)
    for above, by in zip(weather.NATURAL, (1.0, 1.5, 2.0, 3.0, 1.2, 2.5, 1.8), strict=True)
    for shift in (by, 0.0)
]
