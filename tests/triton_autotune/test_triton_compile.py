"""Inside torch.compile: a graph gets the config that is decided for the call, and so does the key of Inductor's cache.

Dynamo, AOTAutograd and Inductor's keys are real, and so is what Triton compiles; launches are recorded (rung 2). Code
that Inductor generates for a GPU is not run here.
"""

import pytest
import torch
import triton

import tunewright as tw
from tunewright.testing.triton_driver import A100, FakeDriver, fake_driver
from tunewright.triton import dynamo

SCALE = """
import triton, triton.language as tl, tunewright as tw
from tunewright.triton import autotune

CONFIGS = [triton.Config({{"BLOCK": b}}, num_warps=1) for b in (32, 64, 128)]
SPACE = tw.Space(tw.Knob("BLOCK", [2**i for i in range(5, 12)]), tw.Knob("num_warps", [1, 2, 4]))

@autotune({options}, key=["n"])
@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, at < n), at < n)
"""
SLOW = pytest.mark.slow  # the import of Dynamo alone takes seconds
LIST, SPACE = "configs=CONFIGS", 'space=SPACE, budget="4"'


def seconds(launch) -> float:
    """Small blocks are best for few elements, large ones for many."""
    block, n = launch.config["BLOCK"], launch.args[2]
    return 1e-3 / block if n > 500 else 1e-5 * block


@pytest.fixture
def device(monkeypatch):
    """A fake device that Dynamo believes in; it forgets all graphs before and after."""
    import torch._dynamo
    import torch.utils._triton

    monkeypatch.setattr(torch.utils._triton, "has_triton", lambda: True)
    torch._dynamo.reset()
    with fake_driver(FakeDriver(A100, seconds=seconds)) as driver:
        yield driver
    torch._dynamo.reset()


class Captured:
    """A backend that keeps graphs, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs = []

    def __call__(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward

    @property
    def kernels(self) -> list:
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_mutation

        nodes = [node for graph in self.graphs for node in graph.graph.nodes]
        return [
            kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
            for node in nodes
            if node.target is triton_kernel_wrapper_mutation
        ]

    @property
    def blocks(self) -> list[list[int]]:
        """The blocks that each kernel of the graphs may have."""
        return [[config.kwargs["BLOCK"] for config in kernel.configs] for kernel in self.kernels]


def doubled(kernel, **options):
    """A compiled function that calls the kernel, and its backend."""
    backend = Captured()

    def double(x):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out

    return torch.compile(double, backend=backend, fullgraph=True, **options), backend


def eager(kernel, n: int) -> None:
    kernel[(4,)](torch.ones(n), torch.ones(n), n)


@SLOW
def test_a_graph_has_the_config_that_is_decided_for_its_sizes(written, device):
    kernel = written(SCALE.format(options=LIST)).scale
    eager(kernel, 100)
    eager(kernel, 1000)
    measured = len(device.launches)
    for n, block in ((100, 32), (1000, 128)):
        compiled, backend = doubled(kernel, dynamic=False)
        compiled(torch.ones(n))
        assert backend.blocks == [[block]]
        assert (device.launches[-1].config["BLOCK"], device.launches[-1].grid[0]) == (block, -(-n // block))
    assert len(device.launches) == measured + 2  # nothing was measured for the graphs


@SLOW
def test_a_space_is_never_shown_whole(written, device):
    kernel = written(SCALE.format(options=SPACE)).scale
    compiled, backend = doubled(kernel, dynamic=False)
    compiled(torch.ones(1000))
    assert backend.blocks == [[32]]  # the default: nothing is decided yet
    assert [miss.key.kernel for miss in tw.current_session().store.misses()] == ["scale"]
    eager(kernel, 1000)
    torch._dynamo.reset()
    compiled(torch.ones(1000))
    assert backend.blocks[1:] == [[kernel.best_config.kwargs["BLOCK"]]] != [[32]]


@SLOW
def test_a_list_of_which_nothing_is_known_is_tuned_by_torch(written, device):
    compiled, backend = doubled(written(SCALE.format(options=LIST)).scale, dynamic=False)
    compiled(torch.ones(100))
    assert backend.blocks == [[32, 64, 128]]


@SLOW
def test_for_sizes_that_are_not_decided_the_likely_configs_are_given(written, device):
    kernel = written(SCALE.format(options=SPACE)).scale
    eager(kernel, 1000)
    compiled, backend = doubled(kernel, dynamic=False)
    compiled(torch.ones(900))
    assert backend.blocks == [[kernel.best_config.kwargs["BLOCK"], 32]]


@SLOW
def test_a_frozen_process_gives_one_config_and_measures_nothing(written, device):
    eager(written(SCALE.format(options=LIST)).scale, 1000)
    measured = len(device.launches)
    tw.configure(mode="frozen")
    compiled, backend = doubled(written(SCALE.format(options=LIST)).scale, dynamic=False)
    compiled(torch.ones(1000))
    compiled(torch.ones(900))
    assert backend.blocks == [[128], [128]]
    assert len(device.launches) == measured + 2


@SLOW
def test_a_strict_process_refuses_to_compile_what_is_not_decided(written, device):
    tw.configure(mode="strict")
    compiled, _ = doubled(written(SCALE.format(options=LIST)).scale, dynamic=False)
    with pytest.raises(Exception, match="NoDecision: scale: nothing is decided for n=100"):
        compiled(torch.ones(100))


@SLOW
def test_a_graph_of_any_size_has_the_config_for_the_size_at_hand(written, device):
    kernel = written(SCALE.format(options=LIST)).scale
    eager(kernel, 1000)
    compiled, backend = doubled(kernel, dynamic=True)
    compiled(torch.ones(1000))
    compiled(torch.ones(700))  # needs no other graph
    assert backend.blocks == [[128]]


def inductor_key(backend) -> list:
    """What the key of Inductor's cache has of the kernels of the latest graph."""
    from torch._inductor.codecache import FxGraphHashDetails

    return FxGraphHashDetails(backend.graphs[-1], [torch.ones(4)], {}, []).user_defined_triton_source


@SLOW
def test_the_decision_is_in_the_key_of_inductors_cache(written, device):
    keys = []
    for best in (32, 128, 128):
        device.seconds = lambda launch, best=best: 1e-4 if launch.config["BLOCK"] == best else 1e-3
        tw.configure(store="memory:")
        torch._dynamo.reset()
        kernel = written(SCALE.format(options=LIST)).scale
        eager(kernel, 1000)
        compiled, backend = doubled(kernel, dynamic=False)
        compiled(torch.ones(1000))
        keys.append(inductor_key(backend))
    assert keys[0] != keys[1] == keys[2]


@SLOW
def test_the_same_config_is_the_same_kernel_of_a_graph(written, device):
    kernel = written(SCALE.format(options=LIST)).scale
    eager(kernel, 1000)
    (one, first), (two, second) = (doubled(kernel, dynamic=False) for _ in range(2))
    one(torch.ones(1000))
    two(torch.ones(1000))
    assert first.kernels[0] is second.kernels[0]


@SLOW
def test_a_traced_operator_gets_the_decided_config(written, device):
    from torch._library.triton import set_wrap_triton_enabled
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.library import wrap_triton

    kernel = written(SCALE.format(options=LIST)).scale
    eager(kernel, 1000)

    def operator(x):
        out = torch.empty_like(x)
        wrap_triton(kernel)[(8,)](x, out, x.numel())
        return out

    with set_wrap_triton_enabled(True):
        graph = make_fx(operator, tracing_mode="fake")(torch.ones(1000))
    backend = Captured()
    backend.graphs.append(graph)
    assert backend.blocks == [[128]]


@SLOW
def test_arguments_to_reset_are_still_reset(written, device):
    options = f'{LIST}, reset_to_zero=["out_ptr"]'
    kernel = written(SCALE.format(options=options)).scale
    eager(kernel, 1000)
    compiled, backend = doubled(kernel, dynamic=False)
    compiled(torch.ones(1000))
    assert [list(one.reset_to_zero) for one in backend.kernels] == [["out_ptr"]]


@pytest.mark.parametrize(
    ("tensor", "contiguous", "address"),
    [
        (torch.zeros(4, 6), True, 0),
        (torch.zeros(4, 6).T, False, 0),
        (torch.zeros(1, 6).T, True, 0),
        (torch.zeros(64)[3:], True, 12),
        (torch.zeros(0, 3), True, 0),
    ],
)
def test_a_tensor_that_does_not_exist_yet_is_described_as_it_will_be(tensor, contiguous, address):
    description = dynamo.describe_argument(tensor)
    assert description.is_contiguous() is contiguous is tensor.is_contiguous()
    assert (description.data_ptr(), description.shape) == (address, tuple(tensor.shape))
    assert description.stride() == tensor.stride()


def test_a_description_makes_the_same_key_as_the_tensor(written, driver):
    kernel = written(SCALE.format(options=LIST)).scale
    for tensor in (torch.ones(100), torch.ones(200)[::2], torch.ones(101)[1:], torch.ones(100, dtype=torch.bfloat16)):
        named = {"x_ptr": tensor, "out_ptr": torch.ones(100), "n": 100}
        described = {name: dynamo.describe_argument(value) for name, value in named.items()}
        assert kernel.key.signature(described) == kernel.key.signature(named)


def test_another_way_of_torch_to_call_kernels_is_left_alone_and_said(monkeypatch, caplog):
    import sys
    import types

    def call_triton_kernel(self, other):
        raise AssertionError

    module = types.ModuleType(dynamo.WRAP_MODULE)
    module.TritonHOPifier = type("TritonHOPifier", (), {"call_triton_kernel": call_triton_kernel})
    monkeypatch.setitem(sys.modules, dynamo.WRAP_MODULE, module)
    dynamo.attach_if_loaded()
    dynamo.attach_if_loaded()
    assert module.TritonHOPifier.call_triton_kernel is call_triton_kernel
    assert caplog.text.count("not known yet") == 1
