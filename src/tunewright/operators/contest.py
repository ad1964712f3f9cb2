"""Contest: the implementations that take a call's arguments, as one tuned kernel whose config names one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tunewright.backends.host import digest
from tunewright.backends.python import Python
from tunewright.backends.variants import VariantArtifact, Variants
from tunewright.errors import TunewrightError
from tunewright.fronts.tuned import Tuned
from tunewright.measure.clock import HostTimer
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.operators.operator import NARROW, Implementation, Template
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import VARIANT, Config
from tunewright.spaces.space import Space, Variant

WITHIN = "/"
"""Between the name of an implementation and that of a variant of its own."""


class Contest(Tuned):
    """A tuned kernel that other processes find by its operator's name."""

    known_as: str | None = None
    chosen: str = ""

    def launcher(self, args: Sequence[Any]) -> Launch:
        """What is launched for such arguments: decided as for any tuned kernel; then `chosen` is whose it is."""
        return self._prepare(None, tuple(args))

    def decide(self, *args: Any) -> Decision:
        """Who is to be launched."""
        decision = super().decide(*args)
        self.chosen = str(decision.config[VARIANT])
        return decision

    def target(self) -> str | None:
        """Where another process finds it: under the operator's name, for any arguments."""
        return self.known_as


class Entrant(NamedTuple):
    """An implementation that takes the arguments, made ready for them."""

    implementation: Implementation
    template: Template

    def variants(self) -> list[Variant]:
        """What the contest's space offers of it: one variant, or one for each of its own."""
        name, space = self.implementation.name, self.template.space
        if space is None:
            return [Variant(name)]
        if not space.variants:
            return [Variant(name, *space.knobs, rules=space.rules)]
        return [
            Variant(f"{name}{WITHIN}{one.name}", *space.knobs, *one.knobs, rules=(*space.rules, *one.rules))
            for one in space.variants
        ]

    def starts(self) -> list[dict[str, Any]]:
        """The configs of it that are tried first, one for each variant."""
        name, space, start = self.implementation.name, self.template.space, self.template.start
        if space is None or start or not space.variants:
            return [{VARIANT: name, **(start or (space.first if space else {}))}]
        firsts = [Space(*space.knobs, rules=space.rules, variants=[one]).first for one in space.variants]
        return [{**first, VARIANT: f"{name}{WITHIN}{first[VARIANT]}"} for first in firsts]


class Function(Python):
    """An implementation that is a plain function, with the versions its speed rests on."""

    def __init__(self, implementation: Implementation, signature: Signature) -> None:
        narrow = implementation.narrow is not None and any(text.startswith(NARROW) for text in signature.args)
        super().__init__(implementation.narrow if narrow else implementation.run)
        self._versions = dict(implementation.versions)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """As of any Python kernel, and those versions."""
        key = super().key(kernel, signature, mode)
        return Key(key.kernel, key.source, signature, key.device, key.toolchain | self._versions, mode)


class Field(Variants):
    """Chooses the backend by the config's variant. All are timed alike, as calls by the host's clock: what a launch
    costs beside its kernel counts too, or those who are called and those who are launched could not be compared.
    """

    def __init__(self, entrants: Sequence[Entrant]) -> None:
        super().__init__({one.implementation.name: one.template.backend for one in entrants})
        self._alignments = {one.implementation.name: one.implementation.support.alignment for one in entrants}

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """All sources, toolchains and devices together."""
        key = super().key(kernel, signature, mode)
        devices = {name: one.key(kernel, signature, mode).device for name, one in self._backends.items()}
        others = {
            f"{name}.device": f"{one} {digest(repr(one))[:8]}" for name, one in devices.items() if one != key.device
        }
        return Key(key.kernel, key.source, signature, key.device, key.toolchain | others, mode)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Any:
        """What the chosen backend builds; a variant of its own is handed to it."""
        name, _, own = str(config[VARIANT]).partition(WITHIN)
        if not own:
            return super().build(kernel, config, signature)
        inner = Config({**config, VARIANT: own})
        return VariantArtifact(name, self._of(name).build(kernel, inner, signature))

    def load(self, kernel: Kernel, artifact: Any) -> Launch:
        """What the chosen backend loads, bare."""
        launch = self._of(artifact.variant).load(kernel, artifact.inner)
        alignment = self._alignments[artifact.variant]
        return launch if alignment <= 1 else partial(_aligned, launch, alignment)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """A call as the user makes it, by a clock that is the same for all."""
        return HostTimer(partial(launch, *args), threads)


def _aligned(launch: Launch, alignment: int, *args: Any) -> Any:
    """Launch on arrays that lie at a multiple of `alignment`; the last is the result."""
    moved = [_moved(arg, alignment) for arg in args]
    returned = launch(*moved)
    if moved[-1] is not args[-1]:
        np.copyto(args[-1], moved[-1])
    return returned


def _moved(array: Any, alignment: int) -> Any:
    if not isinstance(array, np.ndarray) or array.ctypes.data % alignment == 0:
        return array
    memory = np.empty(array.nbytes + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def entrants(
    implementations: Sequence[Implementation], signature: Signature, threads: int
) -> tuple[list[Entrant], dict[str, str]]:
    """Those that take such arguments, made ready; and why the others do not."""
    ready, refused = [], {}
    for one in implementations:
        if said := one.support.objections(signature):
            refused[one.name] = "; ".join(said)
            continue
        try:
            template = one.template(signature, threads) if one.template else Template(Function(one, signature))
        except TunewrightError as error:  # sizes that no config of it fits
            refused[one.name] = str(error)
            continue
        ready.append(Entrant(one, template))
    return ready, refused
