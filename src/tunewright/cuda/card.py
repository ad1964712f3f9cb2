"""Launches kernels on a card: numpy arrays are copied there and back, and only launches are timed."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tunewright.backends.cuda_timer import EVENTS, GRAPH
from tunewright.cuda.driver import CudaCard, CudaFunction, CudaMemory
from tunewright.cuda.launch import CudaLaunch
from tunewright.cuda.nvcc import CudaBuild
from tunewright.cuda.resources import LaunchShape
from tunewright.errors import SignatureError
from tunewright.model.signature import Parameter

WARM_UPS = 3
"""Launches before a capture."""

GRAPH_LAUNCHES = 64
"""Launches of a graph: so many that replaying the next takes the host less time than they take the card."""

C_TYPES: dict[str, type[Any]] = {
    "u8": ctypes.c_uint8, "s8": ctypes.c_int8, "b8": ctypes.c_uint8, "u16": ctypes.c_uint16, "s16": ctypes.c_int16,
    "u32": ctypes.c_uint32, "s32": ctypes.c_int32, "b32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "s64": ctypes.c_int64, "b64": ctypes.c_uint64, "f32": ctypes.c_float, "f64": ctypes.c_double,
}  # fmt: skip
"""How numbers are passed, by the type of a parameter in the PTX."""


class CardLaunch(CudaLaunch):
    """A kernel that is run on a card."""

    def __init__(self, build: CudaBuild, shape: LaunchShape, parameters: Sequence[Parameter], card: CudaCard) -> None:
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
            self._pass(number, value, parameter.type)
            for number, (value, parameter) in enumerate(zip(launch.arguments(args), launch.taken, strict=True))
        ]

    def _pass(self, number: int, value: Any, kind: str) -> Any:
        """Returns an argument as the driver takes it."""
        if isinstance(value, np.ndarray):
            if not (value.flags.c_contiguous or value.flags.f_contiguous):
                raise SignatureError("a CUDA kernel takes dense arrays; pass np.ascontiguousarray(...)")
            self._memory[number] = CudaMemory(self._launch.card, value.nbytes)
            return ctypes.c_uint64(int(self._memory[number].address))
        if kind not in C_TYPES:
            raise SignatureError(f"a parameter of type {kind} cannot be passed; pass a pointer or a plain number")
        return C_TYPES[kind](value)

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
    """Times launches by events. Many are replayed from a graph, so that the host does not slow them down.

    Arrays are copied to the card before the first event, and back after the last, where results are checked.
    """

    def __init__(self, launch: CardLaunch, args: Sequence[Any]) -> None:
        self.clock = EVENTS
        self._card, self._bound, self._graph = launch.card, CardCall(launch, args), None
        self._start, self._end = launch.card.event(), launch.card.event()

    def __call__(self, count: int) -> float:
        """Returns the seconds of so many launches."""
        card = self._card
        if count >= GRAPH_LAUNCHES and self._graph is None:
            self._capture()
        self._bound.upload()
        graphs, single = divmod(count, GRAPH_LAUNCHES) if self._graph is not None else (0, count)
        card.call("cuEventRecord", self._start, card.stream)
        for _ in range(graphs):
            card.call("cuGraphLaunch", self._graph, card.stream)
        for _ in range(single):
            self._bound.launch()
        card.call("cuEventRecord", self._end, card.stream)
        card.call("cuEventSynchronize", self._end)
        seconds = float(card.call("cuEventElapsedTime", self._start, self._end)) * 1e-3
        self._bound.download()
        return seconds

    def _capture(self) -> None:
        self._bound.upload()
        for _ in range(WARM_UPS):
            self._bound.launch()
        self._graph, self.clock = self._card.capture(self._bound.launch, GRAPH_LAUNCHES), GRAPH

    def flush(self, *, whole: bool) -> None:
        """Flushes L2, or a part of it; L1 does not outlive a launch."""
        self._card.flush(whole=whole)
