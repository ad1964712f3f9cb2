"""The device under test: what stages need of it beside Triton's active driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch

from tunewright.backends.gpu_state import GpuState, read_gpu_state
from tunewright.errors import BackendError


class ReplayableGraph(Protocol):
    """Launches that were captured."""

    def replay(self) -> None: ...


class DeviceUnderTest(Protocol):
    """A card, or a simulation of one. `rung` says which: 5 is a real GPU, 2 a simulated driver.

    `place` is what torch calls the device, `patience` the seconds that a child of a stage may take. Another process
    makes the same device of its `source`: the `module:name` of a function, and the arguments of that.
    """

    source: tuple[str, ...]

    rung: int
    place: str
    patience: float
    compile_backend: Any

    def open(self) -> AbstractContextManager[None]:
        """Makes the device ready within a `with` block, in the process of a stage."""
        ...

    def describe(self) -> dict[str, Any]:
        """Returns what the report says of the device."""
        ...

    def state(self) -> list[GpuState]:
        """Returns what the cards are doing."""
        ...

    def count(self) -> int: ...
    def use(self, number: int) -> None: ...
    def wall(self) -> float:
        """Returns seconds by a clock that is not the device's."""
        ...

    def adopt(self, *tensors: Any) -> None:
        """Takes note of tensors that a stage made."""
        ...

    def memory(self) -> tuple[int, int]:
        """Returns the bytes that are in use, and the most since `reset_peak`."""
        ...

    def reset_peak(self) -> None: ...
    def compiling(self) -> AbstractContextManager[Any]:
        """Lets torch compile within a `with` block."""
        ...

    def side_stream(self) -> AbstractContextManager[Any]: ...
    def capture(self) -> AbstractContextManager[ReplayableGraph]: ...


class TorchDevice:
    """The GPU of this machine, by torch."""

    source: tuple[str, ...] = (f"{__name__}:TorchDevice",)
    rung, place, compile_backend = 5, "cuda", "inductor"
    patience = 300.0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Checks that there is a GPU."""
        if not torch.cuda.is_available():
            raise BackendError("torch finds no GPU; check the driver, and that this torch is built for CUDA or ROCm")
        torch.cuda.init()
        yield

    def describe(self) -> dict[str, Any]:
        """Returns the properties of all cards."""
        cards = []
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            names = ("name", "major", "minor", "total_memory", "multi_processor_count", "L2_cache_size", "gcnArchName")
            cards.append({name: getattr(properties, name, None) for name in names})
        return {"cards": cards, "cuda": torch.version.cuda, "hip": getattr(torch.version, "hip", None)}

    def state(self) -> list[GpuState]:
        """Returns what NVML or amdsmi reports."""
        return read_gpu_state()

    def count(self) -> int:
        """Returns how many cards there are."""
        return int(torch.cuda.device_count())

    def use(self, number: int) -> None:
        """Makes a card the current one."""
        torch.cuda.set_device(number)

    def wall(self) -> float:
        """Returns seconds by the host's clock."""
        return time.perf_counter()

    def adopt(self, *tensors: Any) -> None:
        """Does nothing: torch knows them."""

    def memory(self) -> tuple[int, int]:
        """Returns what torch has allocated."""
        return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()

    def reset_peak(self) -> None:
        """Begins to look for the peak anew."""
        torch.cuda.reset_peak_memory_stats()

    def compiling(self) -> AbstractContextManager[None]:
        """Does nothing."""
        return nullcontext()

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Makes another stream the current one."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield

    @contextmanager
    def capture(self) -> Iterator[ReplayableGraph]:
        """Captures launches into a graph."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            yield graph
