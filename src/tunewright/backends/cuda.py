"""CUDA: the clock of a GPU, by events around launches that are replayed from graphs where they can be captured.

It has not been run on a GPU yet: its tests run it on a model of one, whose signatures are held to those of torch.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Protocol, cast
from warnings import catch_warnings, filterwarnings

from tunewright.errors import BackendError, PluginError
from tunewright.remarks import Remarks

log = Remarks(__name__)

EVENTS, GRAPH = "gpu events", "gpu graph"

WARM_UPS = 3
"""Launches before a capture, as torch asks for: what is made on first use cannot be made inside it."""

SIZES = (1, 4, 16, 64, 256)
"""Launches in a graph, the smallest first."""

HIDES_HOST = 2e-4
"""Seconds a graph lasts that leave the host all the time it needs to replay another: none need be larger."""

PAUSE = 50_000
"""Cycles a device idles before a reading, so that the host is ahead of it: some tens of microseconds."""

FLUSHED = 256 << 20
"""Bytes to pass through the caches of a device that does not say how large its L2 is."""

Call = Callable[[], Any]


class CudaStream(Protocol):
    """Work that a device does in order."""

    @property
    def device_index(self) -> int: ...
    def wait_stream(self, stream: Any) -> None: ...


class CudaEvent(Protocol):
    """A mark in a stream, with the time at which the device came to it."""

    def record(self, stream: Any) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end_event: Any) -> float: ...


class CudaGraph(Protocol):
    """Launches that a device was told of once, to be made again by one word of the host."""

    def replay(self) -> None: ...
    def reset(self) -> None: ...


class Buffer(Protocol):
    """Memory of a device."""

    def __getitem__(self, part: slice, /) -> Any: ...


class Cuda(Protocol):
    """What we use of `torch.cuda`."""

    @property
    def Event(self) -> Callable[..., CudaEvent]: ...  # noqa: N802 - the names are torch's
    @property
    def Stream(self) -> Callable[..., CudaStream]: ...  # noqa: N802
    @property
    def CUDAGraph(self) -> Callable[..., CudaGraph]: ...  # noqa: N802
    @property
    def graph(self) -> Callable[..., AbstractContextManager[None]]: ...
    def graph_pool_handle(self) -> Any: ...
    def stream(self, stream: Any) -> AbstractContextManager[Any]: ...
    def current_stream(self) -> CudaStream: ...
    def is_available(self) -> bool: ...
    def is_current_stream_capturing(self) -> bool: ...
    def get_device_properties(self, device: int) -> Any: ...
    def synchronize(self, device: int) -> None: ...
    def _sleep(self, cycles: int) -> None: ...


class Torch(Protocol):
    """What we use of `torch`."""

    @property
    def cuda(self) -> Cuda: ...
    @property
    def uint8(self) -> Any: ...
    @property
    def empty(self) -> Callable[..., Buffer]: ...
    def __hash__(self) -> int: ...


class CudaTimer:
    """Times a call on a GPU by events on one stream; `clock` says whether the launches between them are replayed.

    Whatever launches without being timed does so when the timer is made. A reading makes `count` launches and no more,
    so that what was restored or flushed before it still holds.
    """

    def __init__(self, call: Call, stream: CudaStream | None = None, torch: Torch | None = None) -> None:
        self.clock = EVENTS
        self._torch = _imported() if torch is None else torch
        self._cuda = cuda = self._torch.cuda
        if not cuda.is_available():
            raise BackendError("torch finds no GPU; check the driver, and that this torch is built for CUDA or ROCm")
        self._stream = cuda.current_stream() if stream is None else stream
        self._start, self._end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self._bursts: list[tuple[int, Call]] = [(1, call)]
        with self._selected():  # also because torch leaves its own stream selected where a capture fails
            self._prepare(call)

    def __call__(self, count: int) -> float:
        with self._selected():
            # An idle device would reach the start at once, and wait there, on the clock, for the host to go on.
            self._cuda._sleep(PAUSE)
            self._start.record(self._stream)
            for size, burst in self._bursts:
                times, count = divmod(count, size)
                for _ in range(times):
                    burst()
            self._end.record(self._stream)
            self._end.synchronize()
        return self._start.elapsed_time(self._end) * 1e-3

    def flush(self, *, whole: bool = True) -> None:
        """Let other work pass through L2: twice what it holds, or an eighth. L1 does not outlive a launch anyway."""
        with self._selected():
            buffer, size = _buffer(self._torch, self._stream.device_index)
            buffer[: size if whole else size // 16].zero_()

    def _prepare(self, call: Call) -> None:
        """Put graphs in the place of plain launches, each of four times as many, until one hides the host's work.

        Any count is made up of few of them, so that none has to be captured in the middle of a measurement.
        """
        side, pool = self._warmed(call), self._cuda.graph_pool_handle()
        bursts: list[tuple[int, Call]] = []
        for size in SIZES:
            graph = self._captured(call, size, side, pool)
            if graph is None:
                return
            bursts.insert(0, (size, graph.replay))
            self._bursts, self.clock = bursts, GRAPH
            if self(size) >= HIDES_HOST:  # the first replay also brings the graph to the device
                return

    def _warmed(self, call: Call) -> CudaStream:
        """A side stream, where `call` has run: libraries keep what they make on first use by stream."""
        side = self._cuda.Stream()
        side.wait_stream(self._stream)
        with self._cuda.stream(side):
            for _ in range(WARM_UPS):
                call()
        self._stream.wait_stream(side)
        return side

    def _captured(self, call: Call, size: int, side: CudaStream, pool: Any) -> CudaGraph | None:
        """A graph of `size` launches; None where they cannot be captured, or are not made on the current stream.

        The graphs share a pool of memory, since they never run at once and nothing they compute is kept.
        """
        graph = self._cuda.CUDAGraph()
        try:
            # Other threads may go on allocating meanwhile.
            with _capturing(), self._cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                for _ in range(size):
                    call()
        except (RuntimeError, UserWarning) as error:
            graph.reset()
            log.info("a graph of %d launches cannot be captured: %s", size, error)
            return None
        return graph

    @contextmanager
    def _selected(self) -> Iterator[None]:
        """Our stream as the current one."""
        self._refuse_capture()
        with self._cuda.stream(self._stream):
            self._refuse_capture()
            yield

    def _refuse_capture(self) -> None:
        if self._cuda.is_current_stream_capturing():
            raise BackendError(
                "tuning under graph capture is refused: what is timed would end up in the graph; "
                "tune before the capture, or capture in mode frozen"
            )


@contextmanager
def _capturing() -> Iterator[None]:
    """No collection of garbage, since unloading a dead kernel spoils a capture; an empty graph is an error."""
    collects = gc.isenabled()
    gc.disable()
    try:
        with catch_warnings():
            filterwarnings("error", message="The CUDA Graph is empty", category=UserWarning)
            yield
    finally:
        if collects:
            gc.enable()


@cache
def _buffer(torch: Torch, device: int) -> tuple[Buffer, int]:
    """Memory twice as large as the L2 of a device, and its size in bytes."""
    known = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
    size = 2 * known or FLUSHED
    buffer = torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")
    # It may be memory that was freed a moment ago, and that work under way on this stream alone still uses.
    torch.cuda.synchronize(device)
    return buffer, size


def _imported() -> Torch:
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra, and large
    except ImportError as error:
        raise PluginError("timing on a GPU needs torch; pip install 'tunewright[torch]'") from error
    return cast(Torch, torch)
