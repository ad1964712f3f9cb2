"""Sets of arguments: private copies of a call's tensors, each at its own address, with contents that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from random import Random
from typing import Any, NamedTuple

import torch

from tunewright.cases.arguments import Outputs
from tunewright.measure.clock import Restore

MIN_FACTOR = 0.25
"""The least factor by which contents are scaled; the largest is 1."""

GUARD_BYTES = 64
"""Bytes past the end of each copy. No launch may write them, nor bytes between elements: all their bits are set."""

OLD_NUMBER = 0.5
"""What outputs contain if they have numbers before a launch."""

_CHANGEABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class CallArguments(NamedTuple):
    """The arguments of a call.

    Those in `constant` are weights: candidates get the same objects and may keep what they compute from them. A call
    changes those in `written`, and only writes those in `outputs`. If contents are `structured`, they may be sorted or
    have sums that matter; others are random numbers.
    """

    values: tuple[Any, ...]
    constant: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    structured: bool = True


Change = Callable[[Any, Random], Any]
"""Returns other contents for a tensor, of values that are as good as its own."""


def scale(tensor: Any, random: Random) -> Any:
    """Returns a tensor times a factor, which keeps most structures."""
    return tensor * random.uniform(MIN_FACTOR, 1.0)


def scale_by_size(tensor: Any, random: Random) -> Any:
    """Returns a tensor whose large elements are multiplied by a larger factor than its small ones.

    Order, signs, zeros and equal elements stay. A result that is merely scaled with the input is wrong then.
    """
    size = tensor[tuple(map(random.randrange, tensor.shape))].abs()
    low, high = sorted(random.uniform(MIN_FACTOR, 1.0) for _ in range(2))
    return torch.where(tensor.abs() >= size, tensor * high, tensor * low)


def roll(tensor: Any, random: Random) -> Any:
    """Returns the elements of a tensor, each at another place."""
    return tensor.roll(random.randrange(1, tensor.numel())) if tensor.numel() > 1 else tensor


class TensorContents:
    """The contents of the arguments of a call. Equal draws with an equal `seed` give equal contents.

    With seed 0, draw 0 has the original ones. Other contents differ from them by a `change` of floating-point tensors.
    Integers stay, since they may be indices; so do tensors with infinities, which are masks, and single numbers, for
    which Dynamo may have compiled the graph.
    """

    def __init__(self, call: CallArguments) -> None:
        self.call, self.seed = call, 0
        self.change: Change | None = None
        self.copied = [i for i, value in enumerate(call.values) if i not in call.constant and can_be_copied(value)]
        self._changed = [i for i in self.copied if i not in call.outputs and _may_change(call.values[i])]

    @property
    def can_change(self) -> bool:
        """Whether draws differ."""
        return self.change is not None and bool(self._changed)

    @property
    def nbytes(self) -> int:
        """Bytes of one set of copies."""
        return sum(self.call.values[i].nbytes for i in self.copied)

    def make(self, draw: int) -> tuple[Any, ...]:
        """Returns new arguments with the contents of a draw; those that are not copied are the original objects."""
        values = list(self.call.values)
        for i, tensor in self._tensors(draw):
            values[i] = _guarded(self.call.values[i]).copy_(tensor)  # a changed tensor may have lost its strides
        return tuple(values)

    def write(self, targets: Sequence[Any], draw: int, found: Outputs = Outputs.POISONED) -> None:
        """Writes the contents of a draw to copies; `found` is what a launch finds in its outputs."""
        for i, tensor in self._tensors(draw):
            if i not in self.call.outputs:
                targets[i].copy_(tensor)
            elif tensor.dtype.is_floating_point and found is not Outputs.KEPT:
                targets[i].fill_(torch.nan if found is Outputs.POISONED else OLD_NUMBER)

    def perturb(self, values: Sequence[Any], seed: int) -> tuple[Any, ...]:
        """Returns arguments whose floating-point contents differ by as much as rounding may change them."""
        others, generator = list(values), torch.Generator().manual_seed(seed)
        for i in self._changed:
            signs = torch.randint(0, 2, values[i].shape, generator=generator).to(values[i].device) * 2 - 1
            others[i] = values[i] * (1 + torch.finfo(values[i].dtype).eps * signs).to(values[i].dtype)
        return tuple(others)

    def find_difference(self, values: Sequence[Any], draw: int) -> int | None:
        """Returns the first input that has not the contents of a draw, bit for bit, among those that no call writes."""
        may_differ = self.call.written | self.call.outputs
        unequal = (i for i, own in self._tensors(draw) if i not in may_differ and not same_bits(values[i], own))
        return next(unequal, None)

    def _tensors(self, draw: int) -> Iterator[tuple[int, Any]]:
        """Yields the contents of every copy, by number."""
        random, change = Random(self.seed << 32 ^ draw), self.change if self.seed or draw else None
        for i in self.copied:
            tensor = self.call.values[i].detach()
            yield i, change(tensor, random) if change is not None and i in self._changed else tensor


class TensorSet:
    """Arguments to launch on: private copies of what is not constant, whose contents change."""

    def __init__(self, contents: TensorContents) -> None:
        self._contents, self._draw = contents, 0
        self.values = contents.make(0)
        call = contents.call
        self._written = [i for i in contents.copied if i in call.written]
        self._before = {i: self.values[i].clone() for i in self._written}
        self._shared = [i for i, value in enumerate(self.values) if value is call.values[i]]
        self._versions: list[int] = []
        # Each in turn, so that a launch can rely on none of them.
        self._found = cycle((Outputs.POISONED, Outputs.NUMBERS, Outputs.KEPT))

    @property
    def written(self) -> list[Any]:
        """The arguments that a launch changes."""
        return [self.values[i] for i in self._written]

    @property
    def has_outputs(self) -> bool:
        """Whether there are arguments that a launch only writes."""
        return bool(self._contents.call.outputs)

    def refresh(self, draw: int, found: Outputs | None = None) -> None:
        """Gives all copies the contents of a draw, whatever launches did to them.

        `found` is what the next launch finds in its outputs, if it is not left to turns.
        """
        self._contents.write(self.values, draw, found or next(self._found))
        for i, before in self._before.items():
            before.copy_(self.values[i])
        self._draw = draw
        self._versions = self._shared_versions()

    @property
    def restore(self) -> Restore | None:
        """Puts back what a launch changes; None if it changes nothing."""
        if not self._written:
            return None

        def restore() -> None:
            for i, before in self._before.items():
                self.values[i].copy_(before)

        return restore

    def damage(self) -> str | None:
        """Returns what launches since `refresh` wrote where they must not; None if all is well.

        Writes to shared tensors are seen as far as PyTorch counts them.
        """
        number = self._contents.find_difference(self.values, self._draw)
        if number is None:
            pairs = zip(self._shared, self._shared_versions(), self._versions, strict=True)
            number = next((i for i, now, before in pairs if now != before), None)
        if number is not None:
            return f"it wrote to its input {number}"
        number = next((i for i in self._contents.copied if not _has_guards(self.values[i])), None)
        return None if number is None else f"it wrote past the end of its argument {number}, or between its elements"

    def _shared_versions(self) -> list[int]:
        return [version_of(self.values[i]) for i in self._shared]


def _guarded(like: Any) -> Any:
    """Returns a tensor of the same sizes and strides, not yet filled, in memory that has guards."""
    memory = _guard_pattern(_reach(like) * like.element_size() + GUARD_BYTES)
    return _lay_over(memory, like)


def _guard_pattern(size: int) -> Any:
    """Returns bytes that are numbers and NaN by turns: what is computed from NaN leaves NaN as it was."""
    pattern = torch.tensor([0x3C] * 8 + [0xFF] * 8, dtype=torch.uint8)
    return pattern.repeat(-(-size // len(pattern)))[:size].clone()


def _lay_over(memory: Any, like: Any) -> Any:
    """Returns a tensor of the same sizes and strides over the beginning of memory."""
    return torch.empty(0, dtype=like.dtype).set_(memory.untyped_storage(), 0, like.shape, like.stride())


def _has_guards(tensor: Any) -> bool:
    """Whether the guards past the end of a copy, and between its elements, are as they were."""
    storage, end = tensor.untyped_storage(), _reach(tensor) * tensor.element_size()
    memory = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    pattern = _guard_pattern(len(memory))
    if not torch.equal(memory[end:], pattern[end:]):
        return False
    if tensor.numel() == _reach(tensor):
        return True
    memory = memory.clone()
    bits_of(_lay_over(memory, tensor)).copy_(bits_of(_lay_over(pattern, tensor)))
    return bool(torch.equal(memory, pattern))


def _reach(tensor: Any) -> int:
    """Returns how many elements lie from the first to the last one, both counted."""
    if not tensor.numel():
        return 0
    return int(1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)))


def version_of(value: Any) -> int:
    """Returns how often a tensor was written to; 0 for tensors of inference mode, which have no version."""
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else 0


def same_bits(first: Any, second: Any) -> bool:
    """Whether two tensors are equal bit for bit: NaNs are equal, 0 and -0 are not."""
    return first.dtype == second.dtype and bool(torch.equal(bits_of(first), bits_of(second)))


def bits_of(tensor: Any) -> Any:
    """Returns a tensor as integers with the same bits."""
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return tensor.view(_BITS[tensor.element_size()])


def can_be_copied(value: Any) -> bool:
    """Whether a copy can have the same sizes and strides: elements lie at different places, in plain memory."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
        return False
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(value.stride(), value.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return False
            reach += (size - 1) * stride
    return True


def _may_change(tensor: Any) -> bool:
    """Whether a tensor has floating-point numbers, is no mask, and is no single number."""
    return tensor.dtype in _CHANGEABLE and tensor.dim() > 0 and tensor.numel() > 0 and bool(tensor.isfinite().all())
