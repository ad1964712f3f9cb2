"""The arguments of a call as data for another process: plain values as they are, tensors by their memory.

Integers, which may be indices, are always copied, through a file in memory. Floats are copied too; if all of it is too
much, the largest are made anew from random numbers. What the kernel only stores to is zero there. No code is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tunewright.errors import TunewrightError
from tunewright.measure.evaluator import Limits
from tunewright.pools.worker_process import make_shared_file, remove_shared_file
from tunewright.spaces.config import Config
from tunewright.triton import adapter
from tunewright.triton.argument_sets import pure_outputs
from tunewright.triton.launching import LaunchCall
from tunewright.triton.mutated_args import all_tensors, pointer_use
from tunewright.triton.tensors import CHUNK, Memories, copy_to_host, is_copyable, is_float, plain

COPIED_BYTES = 1 << 30
"""Bytes that are copied at most."""

LARGEST_INT = (1 << 63) - 1


class CannotSend(TunewrightError):
    """Raised when a call cannot be made in another process."""


class SentMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Memory behind tensors: copied from a place in the file, or random floats of a dtype, else zeros."""

    nbytes: int
    place: int | None = None
    random: str = ""


class SentTensor(msgspec.Struct, frozen=True, tag="tensor"):
    """A view of memory, which is given by its number."""

    memory: int
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class SentFloat(msgspec.Struct, frozen=True, tag="float"):
    """A number, in a notation that loses nothing and also has infinity and NaN."""

    text: str


class SentDtype(msgspec.Struct, frozen=True, tag="dtype"):
    """A dtype of Triton's, by its name."""

    name: str


class SentTuple(msgspec.Struct, frozen=True, tag="tuple"):
    """Several values: a tuple, or a list."""

    parts: tuple[SentValue, ...]
    is_list: bool = False


class AskedGrid(msgspec.Struct, frozen=True, tag="grid"):
    """A grid that is a function of the caller: it is asked for that of each launch."""


SentValue = None | bool | int | str | SentFloat | SentDtype | SentTuple | SentTensor | AskedGrid


class SentCall(msgspec.Struct, frozen=True):
    """A call: its arguments, the memory behind its tensors, and the file that has what is copied."""

    args: tuple[SentValue, ...]
    kwargs: dict[str, SentValue]
    memories: tuple[SentMemory, ...]
    file: str

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        return sum(memory.nbytes for memory in self.memories)


class CallSetup(msgspec.Struct, frozen=True):
    """The first message to a worker: where the kernel is, the call, and how its configs are evaluated.

    `key` is the digest of the call's key and `listed` are Triton's configs, if they are a list: the worker must come to
    the same. `driver` installs a simulated driver, `blamed` configs must not run, `parent` is the caller's process.
    """

    parent: int
    path: list[str]
    environ: dict[str, str]
    target: str
    driver: tuple[str, ...]
    device: int
    triton_cache: str
    key: str
    listed: tuple[str, ...]
    call: SentCall
    default: Config
    blamed: tuple[Config, ...]
    limits: Limits
    lock: str
    judged: bool
    fingerprints: bool


class CallSender:
    """Describes a call, and writes what is copied into a file, which stays until this is gone."""

    def __init__(self, fn: Any, call: LaunchCall) -> None:
        tensors = all_tensors(fn, call.all_named)
        self._memories = Memories(tensors)
        self._numbers = {id(tensor): self._memories.of.get(name) for name, tensor in tensors.items()}
        self._place = str(adapter.use_device(adapter.current_device()))
        args = tuple(map(self._describe, call.args))
        kwargs = {name: self._describe(value) for name, value in call.kwargs.items() if name != "grid"}
        grid = call.kwargs["grid"]
        kwargs["grid"] = AskedGrid() if callable(grid) else self._describe(grid)
        if self._memories.overlaps or not all(map(is_copyable, self._memories.all)):
            raise CannotSend("its tensors overlap, or their memory is not aligned")
        outputs = {self._memories.of[name] for name in pure_outputs(tensors, pointer_use(fn), self._memories)}
        memories = _choose_sources(self._memories, tensors, outputs)
        self._file = make_shared_file()
        self.call = SentCall(args, kwargs, tuple(memories), str(self._file))
        self._write()

    def _describe(self, value: Any) -> SentValue:
        if isinstance(value, float):
            return SentFloat(float(value).hex())
        if value is None or type(value) in (bool, str) or (type(value) is int and abs(value) <= LARGEST_INT):
            return value  # type: ignore[no-any-return]
        if type(value) in (tuple, list):
            return SentTuple(tuple(map(self._describe, value)), isinstance(value, list))
        if type(value) is adapter.Dtype:
            return SentDtype(value.name)
        number = self._numbers.get(id(value))
        own = plain(value)
        if number is None or type(own).__module__ != "torch" or str(own.device) != self._place:
            raise CannotSend(f"an argument is of a kind that is not sent: {type(value).__name__}")
        dtype = str(own.dtype).removeprefix("torch.")
        return SentTensor(number, dtype, own.storage_offset(), tuple(own.shape), tuple(own.stride()))

    def _write(self) -> None:
        with self._file.open("wb") as file:
            for memory, sent in zip(self._memories.all, self.call.memories, strict=True):
                if sent.place is not None:
                    for part in memory.split(CHUNK):
                        file.write(copy_to_host(part).numpy().data)

    def close(self) -> None:
        """Lets go of the file."""
        remove_shared_file(self._file)


def _choose_sources(memories: Memories, tensors: Mapping[str, Any], outputs: set[int]) -> Sequence[SentMemory]:
    """Returns how each memory is made: copied as far as there is room for copies, floats else at random."""
    sizes = {number: int(memory.nbytes) for number, memory in enumerate(memories.all) if number not in outputs}
    floats: dict[int, str] = {}
    for number in sizes:
        views = [plain(tensors[name]) for name, other in memories.of.items() if other == number]
        if len({view.dtype for view in views}) == 1 and is_float(views[0]):
            floats[number] = str(views[0].dtype).removeprefix("torch.")
    copied = set(sizes)
    for number in sorted(floats, key=lambda number: sizes[number], reverse=True):
        if sum(sizes[other] for other in copied) > COPIED_BYTES:
            copied.remove(number)
    if (total := sum(sizes[number] for number in copied)) > COPIED_BYTES:
        raise CannotSend(f"its tensors of integers have {total >> 20:,} MiB, too much to copy")
    sources, place = [], 0
    for number, memory in enumerate(memories.all):
        nbytes = int(memory.nbytes)
        if number in copied:
            sources.append(SentMemory(nbytes, place))
            place += nbytes
        else:
            sources.append(SentMemory(nbytes, random=floats[number] if number in sizes else ""))
    return sources
