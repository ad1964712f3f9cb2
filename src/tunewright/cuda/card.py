"""Launches kernels on a card: numpy arrays are copied there and back, and only launches are timed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tunewright.backends.cuda_timer import GRAPH
from tunewright.backends.grid_launch import GridLaunch
from tunewright.cuda.driver import CudaCard, CudaFunction, CudaMemory, LaunchGraph
from tunewright.cuda.launch import CudaLaunch
from tunewright.cuda.nvcc import CudaBuild
from tunewright.errors import SignatureError
from tunewright.model.signature import Parameter

GRAPH_LAUNCHES = 64
"""Most launches of a graph."""

C_TYPES: dict[str, type[Any]] = {
    "u8": ctypes.c_uint8, "s8": ctypes.c_int8, "b8": ctypes.c_uint8, "u16": ctypes.c_uint16, "s16": ctypes.c_int16,
    "u32": ctypes.c_uint32, "s32": ctypes.c_int32, "b32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "s64": ctypes.c_int64, "b64": ctypes.c_uint64, "f32": ctypes.c_float, "f64": ctypes.c_double,
}  # fmt: skip
"""How numbers are passed, by the type of a parameter in the PTX."""


class CardLaunch(CudaLaunch):
    """A kernel that is run on a card."""

    def __init__(self, build: CudaBuild, shape: GridLaunch, parameters: Sequence[Parameter], card: CudaCard) -> None:
        super().__init__(build, shape, parameters)
        self.card, self.function = card, CudaFunction(card, build.cubin, build.entry, shape)

    def __call__(self, *args: Any) -> None:
        """Copies arrays to the card, launches, and copies what may be written back."""
        bound = CardCall(self, args)
        bound.upload()
        bound.launch()
        bound.download()


class CardCall:
    """A launch with its arguments: arrays have memory on the card, which has nothing in it before `upload`."""

    def __init__(self, launch: CardLaunch, args: Sequence[Any]) -> None:
        self._launch, self._args = launch, args
        launch.card.make_current()
        self._memory: dict[int, CudaMemory] = {}
        self._values = [
            self._pass(number, value, parameter)
            for number, (value, parameter) in enumerate(zip(launch.arguments(args), launch.taken, strict=True))
        ]

    def _pass(self, number: int, value: Any, taken: Any) -> Any:
        """Returns an argument as the driver takes it."""
        if isinstance(value, np.ndarray):
            if not (value.flags.c_contiguous or value.flags.f_contiguous):
                raise SignatureError("a CUDA kernel takes dense arrays; pass np.ascontiguousarray(...)")
            self._memory[number] = CudaMemory(self._launch.card, value.nbytes)
            return ctypes.c_uint64(int(self._memory[number].address))
        kind = C_TYPES.get(taken.type)
        if kind is None or ctypes.sizeof(kind) != taken.size:  # a struct or a half is an array of bytes
            text = f"{taken.type}, {taken.size} bytes"
            raise SignatureError(f"a parameter of type {text} cannot be passed; pass a pointer or a plain number")
        return kind(value.item() if isinstance(value, np.generic) else value)

    def upload(self) -> None:
        """Copies the arrays to the card."""
        self._launch.card.make_current()
        for number, memory in self._memory.items():
            memory.upload(self._args[number].ctypes.data, self._args[number].nbytes)

    def launch(self) -> None:
        """Launches once, and does not wait."""
        self._launch.function.launch(self._values)

    def download(self) -> None:
        """Waits, and copies the arrays that may be written back."""
        for number, memory in self._memory.items():
            if self._launch.is_written(number):
                memory.download(self._args[number].ctypes.data, self._args[number].nbytes)
        self._launch.card.call("cuStreamSynchronize", self._launch.card.stream)  # raises what no copy waited for


class CardTimer:
    """Times launches by events, replayed from graphs with these events.

    Arrays are copied to the card before the first event, and back after the last, where results are checked.
    """

    def __init__(self, launch: CardLaunch, args: Sequence[Any]) -> None:
        self.clock = GRAPH
        self._card, self._bound = launch.card, CardCall(launch, args)
        self._graphs: dict[int, LaunchGraph] = {}
        self._flushed: bool | None = None

    def __call__(self, count: int) -> float:
        """Returns the seconds of so many launches; more than fit into a graph are rounded up, and scaled."""
        size = min(count, GRAPH_LAUNCHES)
        rounds, graph = -(-count // size), self._graph(size)
        self._bound.upload()
        if self._flushed is not None:  # now, since what was copied is in the caches
            self._card.flush(whole=self._flushed)
            self._flushed = None
        seconds = sum(graph.run() for _ in range(rounds)) * count / (rounds * size)
        self._bound.download()
        return seconds

    def _graph(self, size: int) -> LaunchGraph:
        if not self._graphs:  # the driver loads a kernel when it is first launched, which no capture may contain
            self._bound.upload()
            self._bound.launch()
            self._bound.download()
        if size not in self._graphs:
            self._graphs[size] = LaunchGraph(self._card, self._bound.launch, size)
        return self._graphs[size]

    def flush(self, *, whole: bool) -> None:
        """Flushes L2 before the next launch, or a part of it; L1 does not outlive a launch."""
        self._flushed = whole
