import ast
import gc
import inspect
import logging
import sys
import warnings
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tunewright.backends import cuda_timer
from tunewright.backends.cuda_timer import CudaTimer
from tunewright.errors import BackendError, PluginError

MICRO = 1e-6
WORD, LAUNCH = 5 * MICRO, 20 * MICRO
"""What the host of the model needs to say one thing to the driver, and to launch a kernel from Python."""

L2 = 50 << 20


class Stream:
    def __init__(self, gpu, index=0):
        self.gpu, self.device_index, self.free = gpu, index, 0.0

    def wait_stream(self, stream):
        self.free = max(self.free, stream.free)


class Event:
    def __init__(self, gpu, enable_timing=False):
        self.gpu, self.timed, self.at = gpu, enable_timing, None

    def record(self, stream=None):
        stream = stream or self.gpu.current
        self.at = self.gpu.reached(stream)
        self.gpu.said.append(("event", stream))

    def synchronize(self):
        self.gpu.wait(self.at)

    def elapsed_time(self, end_event):
        assert self.timed
        assert end_event.timed
        assert end_event.at <= self.gpu.now, "the device has not come there yet"
        return (end_event.at - self.at) * 1e3


class CUDAGraph:
    def __init__(self, gpu):
        self.gpu, self.works, self.ended = gpu, [], False
        gpu.graphs.append(self)

    def replay(self):
        assert self.ended, "a graph that was not captured"
        self.gpu.now += WORD
        for work in self.works:
            self.gpu.execute(work)

    def reset(self):
        self.works, self.ended = [], False


class Tensor:
    def __init__(self, gpu, size):
        self.gpu, self.size = gpu, size

    def __getitem__(self, part):
        return Tensor(self.gpu, len(range(*part.indices(self.size))))

    def zero_(self):
        self.gpu.zeroed.append((self.size, self.gpu.current))
        self.gpu.launch(lambda: self.size / 1e12)
        self.gpu.cached = 0


class Gpu:
    """A device with a clock of its own behind a host that talks to it: what `torch.cuda` is to the timer."""

    def __init__(self, l2=L2, most=10**6):
        self.now, self.l2, self.most = 0.0, l2, most
        self.default = self.current = Stream(self)
        self.capture, self.spoiled = None, False
        self.cached = 0
        self.said, self.zeroed, self.graphs, self.waits = [], [], [], 0
        self.Event, self.Stream, self.CUDAGraph = partial(Event, self), partial(Stream, self), partial(CUDAGraph, self)

    def reached(self, stream):
        return max(stream.free, self.now)

    def launch(self, work):
        """`work` runs on the device and returns its seconds; under capture, it is only noted."""
        self.now += LAUNCH
        if self.is_current_stream_capturing():
            if self.spoiled or len(self.capture.works) >= self.most:
                self.spoil()
            self.capture.works.append(work)
        else:
            self.execute(work)

    def execute(self, work):
        self.current.free = self.reached(self.current) + work()

    def wait(self, until):
        if self.capture:
            self.spoil()
        self.waits += 1
        self.now = max(self.now, until)

    def spoil(self):
        self.spoiled = True
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def synchronize(self, device=None):
        self.wait(self.current.free)

    def is_available(self):
        return True

    def is_current_stream_capturing(self):
        return bool(self.capture) and self.current is self.capturing

    def current_stream(self, device=None):
        return self.current

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def graph_pool_handle(self):
        return (0, 1)

    @contextmanager
    def graph(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        """As torch does it: where the end of a capture fails, the stream of the capture stays selected."""
        self.synchronize()
        before, self.current = self.current, stream
        assert stream is not self.default, "CUDA graphs must be captured on a non-default stream"
        self.capture, self.capturing, self.spoiled = cuda_graph, stream, False
        try:
            yield
        finally:
            self.capture = None
            if self.spoiled:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
            cuda_graph.ended = True
            if not cuda_graph.works:
                warnings.warn("The CUDA Graph is empty. This usually means ...", UserWarning, stacklevel=2)
            self.current = before

    def get_device_properties(self, device=None):
        return SimpleNamespace(L2_cache_size=self.l2) if self.l2 is not None else SimpleNamespace()

    def _sleep(self, cycles):
        self.now += WORD
        self.execute(lambda: cycles / 1.5e9)


class Torch:
    uint8 = "uint8"

    def __init__(self, **about):
        self.cuda, self.made = Gpu(**about), []

    def empty(self, *size, dtype=None, device=None):
        assert dtype == self.uint8
        self.made.append((*size, device))
        return Tensor(self.cuda, *size)


class Kernel:
    """A kernel of the model; `cold` is what a launch takes that finds nothing in the cache."""

    def __init__(self, gpu, seconds, cold=None):
        self.gpu, self.seconds, self.cold = gpu, seconds, cold or seconds
        self.known, self.ran, self.began = set(), [], []

    def __call__(self):
        if self.gpu.is_current_stream_capturing() and self.gpu.current not in self.known:
            self.gpu.spoil()  # a library that makes its workspace on first use
        self.known.add(self.gpu.current)
        self.gpu.launch(self.work)

    def work(self):
        self.ran.append(self.gpu.current)
        self.began.append(self.gpu.reached(self.gpu.current))
        seconds = self.seconds if self.gpu.cached else self.cold
        self.gpu.cached = 1
        return seconds


class WaitingKernel(Kernel):
    """A kernel that waits for its own end, which no capture allows."""

    def __call__(self):
        super().__call__()
        self.gpu.synchronize()


def timed(kind=Kernel, seconds=2 * MICRO, **about):
    torch = Torch(**about)
    kernel = kind(torch.cuda, seconds)
    return CudaTimer(kernel, torch=torch), kernel, torch.cuda


def clean(gpu):
    return gpu.capture is None and gpu.current is gpu.default and gc.isenabled()


def test_readings_are_seconds() -> None:
    timer, _, _ = timed(seconds=3e-3)
    assert timer(1) == pytest.approx(3e-3)
    assert timer(2) == pytest.approx(6e-3)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 15, 17, 63, 100, 437, 2048])
def test_what_the_host_does_is_not_timed_where_launches_are_replayed(count) -> None:
    timer, _, _ = timed(seconds=2 * MICRO)
    assert timer.clock == "gpu graph"
    assert timer(count) == pytest.approx(count * 2 * MICRO)


def test_a_kernel_that_cannot_be_captured_is_launched_plainly_and_the_clock_says_so(caplog) -> None:
    with caplog.at_level(logging.INFO):
        timer, _, gpu = timed(WaitingKernel, seconds=2 * MICRO)
    assert timer.clock == "gpu events"
    assert "cannot be captured" in caplog.text
    assert clean(gpu)
    assert [graph.works for graph in gpu.graphs] == [[]]
    assert timer(100) > 99 * LAUNCH


def test_a_capture_that_failed_does_not_hinder_the_next() -> None:
    torch = Torch()
    assert CudaTimer(WaitingKernel(torch.cuda, 1e-4), torch=torch).clock == "gpu events"
    timer = CudaTimer(Kernel(torch.cuda, 1e-4), torch=torch)
    assert timer.clock == "gpu graph"
    assert timer(7) == pytest.approx(7e-4)


@pytest.mark.filterwarnings("ignore")  # as it is outside of tests
def test_a_kernel_on_a_stream_of_its_own_leaves_the_graph_empty_and_is_launched_plainly() -> None:
    torch = Torch()
    gpu = torch.cuda
    kernel = Kernel(gpu, 100 * MICRO)

    def astray():
        with gpu.stream(gpu.default):
            kernel()

    timer = CudaTimer(astray, torch=torch)
    assert timer.clock == "gpu events"
    assert clean(gpu)
    assert timer(4) == pytest.approx(4 * 100 * MICRO)


def test_graphs_that_would_be_too_large_are_done_without() -> None:
    timer, _, gpu = timed(seconds=2 * MICRO, most=20)
    assert timer.clock == "gpu graph"
    assert clean(gpu)
    assert [len(graph.works) for graph in gpu.graphs] == [1, 4, 16, 0]
    assert timer(1000) == pytest.approx(1000 * 2 * MICRO)


@pytest.mark.parametrize(("seconds", "sizes"), [(1e-3, [1]), (6e-5, [1, 4]), (2e-6, [1, 4, 16, 64, 256])])
def test_graphs_are_no_larger_than_it_takes_to_keep_the_device_busy(seconds, sizes) -> None:
    _, _, gpu = timed(seconds=seconds)
    assert [len(graph.works) for graph in gpu.graphs] == sizes


@pytest.mark.parametrize("kind", [Kernel, WaitingKernel])
@pytest.mark.parametrize("count", [1, 3, 100, 437])
def test_a_reading_launches_what_it_times_and_captures_nothing(kind, count) -> None:
    timer, kernel, gpu = timed(kind)
    before, graphs = len(kernel.ran), len(gpu.graphs)
    timer(count)
    assert len(kernel.ran) - before == count
    assert len(gpu.graphs) == graphs


def test_a_kernel_that_fails_by_itself_fails_and_is_not_taken_for_one_that_cannot_be_captured() -> None:
    def broken():
        raise RuntimeError("out of resource: shared memory")

    torch = Torch()
    with pytest.raises(RuntimeError, match="shared memory"):
        CudaTimer(broken, torch=torch)
    assert clean(torch.cuda)


def test_what_is_no_matter_of_capture_is_raised_and_leaves_nothing_behind() -> None:
    torch = Torch()

    def odd():
        torch.cuda.launch(lambda: 1e-3)
        if torch.cuda.capture:
            raise LookupError("only now")

    with pytest.raises(LookupError, match="only now"):
        CudaTimer(odd, torch=torch)
    assert clean(torch.cuda)


def test_launches_on_the_side_wait_for_work_before_and_are_waited_for() -> None:
    torch = Torch(most=0)
    torch.cuda.launch(lambda: 1.0)
    kernel = Kernel(torch.cuda, 1e-3)
    CudaTimer(kernel, torch=torch)
    assert min(kernel.began) >= 1.0
    assert torch.cuda.default.free >= 1.0 + cuda_timer.WARM_UPS * 1e-3


@pytest.mark.parametrize("enabled", [True, False])
def test_nothing_is_collected_during_a_capture(enabled) -> None:
    torch, seen = Torch(), set()
    kernel = Kernel(torch.cuda, 1e-3)

    def call():
        seen.add((torch.cuda.capture is not None, gc.isenabled()))
        kernel()

    try:
        (gc.enable if enabled else gc.disable)()
        CudaTimer(call, torch=torch)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert seen == {(True, False), (False, enabled)}


@pytest.mark.parametrize("given", [True, False])
def test_everything_happens_on_one_stream(given) -> None:
    torch = Torch()
    gpu = torch.cuda
    own = Stream(gpu)
    kernel = Kernel(gpu, 2 * MICRO)
    with nullcontext() if given else gpu.stream(own):
        timer = CudaTimer(kernel, own if given else None, torch)
    del kernel.ran[:], gpu.said[:]
    timer.flush()
    timer(50)
    assert set(kernel.ran) == {own}
    assert gpu.said == [("event", own), ("event", own)]
    assert {stream for _, stream in gpu.zeroed} == {own}
    assert clean(gpu)


@pytest.mark.parametrize(("current", "own"), [("captured", "captured"), ("captured", "free"), ("free", "captured")])
def test_under_a_capture_nothing_is_timed_flushed_or_made(current, own) -> None:
    torch = Torch()
    gpu = torch.cuda
    streams = {"captured": Stream(gpu), "free": Stream(gpu)}
    timer = CudaTimer(Kernel(gpu, 1e-3), streams[own], torch)
    outer = gpu.CUDAGraph()
    with gpu.graph(outer, stream=streams["captured"]):
        gpu.launch(lambda: 1e-3)
        with gpu.stream(streams[current]):
            for refused in (lambda: timer(1), timer.flush, lambda: CudaTimer(Kernel(gpu, 1e-3), streams[own], torch)):
                with pytest.raises(BackendError, match="cannot tune during graph capture"):
                    refused()
    assert len(outer.works) == 1
    assert clean(gpu)


def test_a_flush_touches_twice_the_second_level_cache_and_its_memory_is_shared() -> None:
    torch = Torch()
    one, two = (CudaTimer(Kernel(torch.cuda, 1e-3), torch=torch) for _ in range(2))
    for timer in (one, two, one):
        timer.flush()
    assert [size for size, _ in torch.cuda.zeroed] == [2 * L2] * 3
    assert torch.made == [(2 * L2, "cuda:0")]
    elsewhere = CudaTimer(Kernel(torch.cuda, 1e-3), Stream(torch.cuda, 1), torch)
    elsewhere.flush()
    assert torch.made[1:] == [(2 * L2, "cuda:1")]


def test_memory_to_flush_with_is_taken_when_no_work_can_still_use_it() -> None:
    timer, _, gpu = timed()
    gpu.launch(lambda: 1.0)
    timer.flush()
    assert gpu.now >= 1.0


def test_a_partial_flush_leaves_most_of_the_cache_alone() -> None:
    timer, _, gpu = timed()
    timer.flush(whole=False)
    assert [size for size, _ in gpu.zeroed] == [L2 // 8]


@pytest.mark.parametrize("l2", [None, 0])
def test_a_device_that_does_not_say_how_large_its_cache_is_gets_a_large_flush(l2) -> None:
    timer, _, gpu = timed(l2=l2)
    timer.flush()
    assert gpu.zeroed[0][0] == 256 << 20


@pytest.mark.parametrize("kind", [Kernel, WaitingKernel])
def test_the_launch_after_a_flush_is_cold_and_the_flush_is_not_timed(kind) -> None:
    torch = Torch()
    timer = CudaTimer(kind(torch.cuda, 200 * MICRO, cold=700 * MICRO), torch=torch)
    for _ in range(2):
        timer.flush()
        assert timer(1) == pytest.approx(700 * MICRO)
        assert timer(1) == pytest.approx(200 * MICRO)


def test_a_missing_torch_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(PluginError, match=r"tunewright\[torch\]"):
        CudaTimer(lambda: None)


USED = [
    ("Event", (), {"enable_timing": True}),
    ("Event.record", (None, None), {}),
    ("Event.synchronize", (None,), {}),
    ("Event.elapsed_time", (None, None), {}),
    ("Stream", (), {}),
    ("Stream.wait_stream", (None, None), {}),
    ("CUDAGraph", (), {}),
    ("CUDAGraph.replay", (None,), {}),
    ("CUDAGraph.reset", (None,), {}),
    ("graph", (None,), {"pool": None, "stream": None, "capture_error_mode": "thread_local"}),
    ("graph_pool_handle", (), {}),
    ("stream", (None,), {}),
    ("current_stream", (), {}),
    ("is_available", (), {}),
    ("is_current_stream_capturing", (), {}),
    ("get_device_properties", (0,), {}),
    ("synchronize", (0,), {}),
    ("_sleep", (1,), {}),
]
"""Everything the timer uses of `torch.cuda`, as it calls it."""


def signature(where, path):
    for name in path.split("."):
        where = getattr(getattr(where, "func", where), name)
    # The classes of a torch without CUDA stand on dummies, which hide how they are made.
    made = isinstance(where, type) and "__new__" in vars(where)
    return inspect.signature(partial(where.__new__, where) if made else where)


@pytest.mark.parametrize(("path", "given", "named"), USED)
def test_torch_and_the_model_of_it_take_the_same_calls(path, given, named) -> None:
    torch = pytest.importorskip("torch")
    signature(torch.cuda, path).bind(*given, **named)
    signature(Gpu(), path).bind(*given, **named)


def test_nothing_is_used_of_torch_that_is_not_checked() -> None:
    members = ((name, part) for name, part in vars(cuda_timer.CudaModule).items() if not name.startswith("__"))
    declared = {name for name, part in members if inspect.isfunction(part) or isinstance(part, property)}
    assert declared == {path.partition(".")[0] for path, _, _ in USED}


def test_what_the_driver_adds_to_torch_is_named_as_we_name_it() -> None:
    torch = pytest.importorskip("torch")
    stub = ast.parse((Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text())
    for name, attribute in [("_CudaDeviceProperties", "L2_cache_size"), ("_CudaStreamBase", "device_index")]:
        (body,) = (node.body for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name)
        assert attribute in {ast.unparse(node.target) for node in body if isinstance(node, ast.AnnAssign)}


def test_the_errors_of_a_failed_capture_are_those_we_catch() -> None:
    torch = pytest.importorskip("torch")
    assert issubclass(torch.AcceleratorError, RuntimeError)
    assert issubclass(torch.OutOfMemoryError, RuntimeError)


def test_where_there_is_no_gpu_that_is_said() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(BackendError, match="no GPU"):
        CudaTimer(lambda: None)
