"""Times launches on a GPU by CUDA events, replayed from graphs where they can be captured.

It has not been run on a GPU yet: its tests run it on a model of one, whose signatures are compared with torch's.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Protocol, cast
from warnings import catch_warnings, filterwarnings

from tunewright.errors import BackendError, PluginError
from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)

EVENTS, GRAPH = "gpu events", "gpu graph"

WARM_UPS = 3
"""Launches before a capture, as torch recommends: what is initialized on first use cannot be captured."""

GRAPH_SIZES = (1, 4, 16, 64, 256)
"""Launches per graph, the smallest first."""

GRAPH_SECONDS = 2e-4
"""Seconds of a graph that leave the host enough time to replay the next; larger graphs are not needed."""

PAUSE_CYCLES = 50_000
"""Cycles that a device idles before a reading, so that the host is ahead of it: some tens of microseconds."""

FLUSH_BYTES = 256 << 20
"""Bytes that flush the caches of a device whose L2 size is not known."""

LaunchFunction = Callable[[], Any]


class CudaStream(Protocol):
    """What is used of `torch.cuda.Stream`."""

    @property
    def device_index(self) -> int: ...
    def wait_stream(self, stream: Any) -> None: ...


class CudaEvent(Protocol):
    """What is used of `torch.cuda.Event`."""

    def record(self, stream: Any) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end_event: Any) -> float: ...


class CudaGraph(Protocol):
    """What is used of `torch.cuda.CUDAGraph`."""

    def replay(self) -> None: ...
    def reset(self) -> None: ...


class DeviceBuffer(Protocol):
    """What is used of a tensor on a device."""

    def __getitem__(self, part: slice, /) -> Any: ...


class CudaModule(Protocol):
    """What is used of `torch.cuda`."""

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


class TorchModule(Protocol):
    """What is used of `torch`."""

    @property
    def cuda(self) -> CudaModule: ...
    @property
    def uint8(self) -> Any: ...
    @property
    def empty(self) -> Callable[..., DeviceBuffer]: ...
    def __hash__(self) -> int: ...


class CudaTimer:
    """Times a call on a GPU by events on one stream; `clock` tells whether launches are replayed from graphs.

    Untimed launches are made only when the timer is created. A reading makes exactly `count` launches, so that what was
    restored or flushed before it still holds.
    """

    def __init__(
        self, call: LaunchFunction, stream: CudaStream | None = None, torch: TorchModule | None = None
    ) -> None:
        self.clock = EVENTS
        self._torch = _import_torch() if torch is None else torch
        self._cuda = cuda = self._torch.cuda
        if not cuda.is_available():
            raise BackendError("torch finds no GPU; check the driver, and that this torch is built for CUDA or ROCm")
        self._stream = cuda.current_stream() if stream is None else stream
        self._start, self._end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self._bursts: list[tuple[int, LaunchFunction]] = [(1, call)]
        with self._use_stream():  # also because torch leaves its own stream selected where a capture fails
            self._prepare(call)

    def __call__(self, count: int) -> float:
        with self._use_stream():
            # An idle device would reach the start at once, and the host's work would be timed.
            self._cuda._sleep(PAUSE_CYCLES)
            self._start.record(self._stream)
            for size, burst in self._bursts:
                times, count = divmod(count, size)
                for _ in range(times):
                    burst()
            self._end.record(self._stream)
            self._end.synchronize()
        return self._start.elapsed_time(self._end) * 1e-3

    def flush(self, *, whole: bool = True) -> None:
        """Flushes L2 by writing twice its size, or an eighth of it; L1 does not outlive a launch."""
        with self._use_stream():
            buffer, size = _flush_buffer(self._torch, self._stream.device_index)
            buffer[: size if whole else size // 16].zero_()

    def _prepare(self, call: LaunchFunction) -> None:
        """Replaces plain launches by graphs, each four times as long, until one hides the host's work.

        Any count is a sum of few of them, so that none has to be captured during a measurement.
        """
        side, pool = self._warm_up(call), self._cuda.graph_pool_handle()
        bursts: list[tuple[int, LaunchFunction]] = []
        for size in GRAPH_SIZES:
            graph = self._capture(call, size, side, pool)
            if graph is None:
                return
            bursts.insert(0, (size, graph.replay))
            self._bursts, self.clock = bursts, GRAPH
            if self(size) >= GRAPH_SECONDS:  # the first replay also uploads the graph
                return

    def _warm_up(self, call: LaunchFunction) -> CudaStream:
        """Returns a side stream on which `call` has run, since libraries initialize by stream."""
        side = self._cuda.Stream()
        side.wait_stream(self._stream)
        with self._cuda.stream(side):
            for _ in range(WARM_UPS):
                call()
        self._stream.wait_stream(side)
        return side

    def _capture(self, call: LaunchFunction, size: int, side: CudaStream, pool: Any) -> CudaGraph | None:
        """Returns a graph of `size` launches; None if they cannot be captured, or are not on the current stream.

        The graphs share a memory pool, since they never run at the same time and their results are not kept.
        """
        graph = self._cuda.CUDAGraph()
        try:
            # Other threads may allocate meanwhile.
            with _capture_guard(), self._cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                for _ in range(size):
                    call()
        except (RuntimeError, UserWarning) as error:
            graph.reset()
            log.info("a graph of %d launches cannot be captured: %s", size, error)
            return None
        return graph

    @contextmanager
    def _use_stream(self) -> Iterator[None]:
        """Makes the timer's stream the current one."""
        self._refuse_capture()
        with self._cuda.stream(self._stream):
            self._refuse_capture()
            yield

    def _refuse_capture(self) -> None:
        if self._cuda.is_current_stream_capturing():
            raise BackendError(
                "cannot tune during graph capture: timed launches would end up in the graph; "
                "tune before the capture, or capture in mode frozen"
            )


@contextmanager
def _capture_guard() -> Iterator[None]:
    """Disables garbage collection, since unloading a kernel breaks a capture; makes an empty graph an error."""
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
def _flush_buffer(torch: TorchModule, device: int) -> tuple[DeviceBuffer, int]:
    """Returns memory twice as large as the L2 of a device, and its size in bytes."""
    l2_size = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
    size = 2 * l2_size or FLUSH_BYTES
    buffer = torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")
    # It may be memory that was just freed, and that pending work on this stream still uses.
    torch.cuda.synchronize(device)
    return buffer, size


def _import_torch() -> TorchModule:
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - an extra, and large
    except ImportError as error:
        raise PluginError("timing on a GPU needs torch; pip install 'tunewright[torch]'") from error
    return cast(TorchModule, torch)
