"""A model is followed from Python to machine code: what the compiler writes of it is read, timed and drawn."""

import json

import pytest
import torch
from click.testing import CliRunner
from sample_store import small

from tunewright.cli.main import command
from tunewright.errors import BackendError
from tunewright.report.roofline import Roofline
from tunewright.torch import compile_report, compiler_output, roofline
from tunewright.torch.inductor import adapter, tracing
from tunewright.torch.report import compile_report as report
from tunewright.torch.report.compile_report import BufferLifetime, GraphOperation
from tunewright.torch.report.diagnosis import CodeLocation
from tunewright.torch.report.page import render_page

GRAPH = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[64][1]cpu", arg1_1: "f32[8, 64][64, 1]cpu", arg2_1: "f32[96, 64][64, 1]cpu"):
        # File: model.py:10 in forward, code: return self.a(x) * 2
        permute: "f32[64, 96][1, 64]cpu" = torch.ops.aten.permute.default(arg2_1, [1, 0]);  arg2_1 = None
        addmm: "f32[8, 96][96, 1]cpu" = torch.ops.aten.addmm.default(arg0_1, arg1_1, permute);  arg0_1 = permute = None
        var_mean = torch.ops.aten.var_mean.correction(addmm, [1], correction = 0)
        getitem: "f32[8, 1][1, 1]cpu" = var_mean[0];  var_mean = None
        # File: model.py:12 in forward, code: y + 1
        add: "f32[8, 96][96, 1]cpu" = addmm + 1;  addmm = None
        return (add,)
"""

CODE = """
cpp_fused_norm_0 = async_compile.cpp_pybinding(['float*', 'const float*'], r\'\'\'
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* in_out_ptr0,
                       const float* in_ptr0)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(1L)) {}
}
\'\'\')

class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        args.clear()
        buf0 = empty_strided_cpu((8, 1), (1, 8), torch.float32)
        buf1 = buf0; del buf0  # reuse
        # [Provenance debug handles] cpp_fused_norm_0:1
        cpp_fused_norm_0(buf1, arg0_1)
        buf2 = empty_strided_cpu((8, 96), (96, 1), torch.bfloat16)
        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]
        # [Provenance debug handles] extern_kernels.addmm:2
        extern_kernels.addmm(buf1, arg1_1, alpha=1, out=buf2)
        del buf1
        buf3 = reinterpret_tensor(buf2, (96, 8), (8, 1), 0); del buf2  # reuse
        # [Provenance debug handles] cpp_fused_norm_0:3
        cpp_fused_norm_0(buf3, arg1_1)
        return (buf3, )

runner = Runner(partitions=[])
"""


def test_operations_are_read_with_their_shapes_arguments_and_lines():
    found = {one.name: one for one in compiler_output.operations(GRAPH)}
    assert list(found) == ["permute", "addmm", "var_mean", "getitem", "add"]
    assert found["addmm"] == GraphOperation(
        "addmm", "addmm", "f32[8, 96]", ("arg0_1", "arg1_1", "permute"), CodeLocation("model.py", 10)
    )
    assert [found[name].call for name in ("var_mean", "getitem", "add")] == ["var_mean", "getitem", "add"]
    assert found["add"].place.line == 12


def test_kernels_are_read_without_headers_and_casts():
    (code,) = compiler_output.kernels(CODE).values()
    assert "#include" not in code
    assert "for(int64_t x0=0; x0<8; x0+=1)" in code
    assert [one.handle for one in compiler_output.steps(CODE)] == [
        "cpp_fused_norm_0:1",
        "extern_kernels.addmm:2",
        "cpp_fused_norm_0:3",
    ]
    assert compiler_output.steps(CODE)[1].line.startswith("extern_kernels.addmm(")


def test_the_memory_plan_says_who_needs_what_until_when_and_in_whose_place():
    assert compiler_output.buffers(CODE, {}) == [
        BufferLifetime("buf1", 32, 1, 2),
        BufferLifetime("buf2", 1536, 2, 2),
        BufferLifetime("buf3", 1536, 3, 3, "buf2"),
    ]
    most, whole = report.peak_memory(tuple(compiler_output.buffers(CODE, {})))
    assert (most, whole) == (1568, 3104)


def test_products_are_counted_by_their_sizes_and_views_are_free():
    shapes = compiler_output.shapes(GRAPH)
    found = {one.name: roofline.flops([one], shapes) for one in compiler_output.operations(GRAPH)}
    assert found["addmm"] == 2 * 8 * 96 * 64
    assert found["permute"] == 0
    assert found["add"] == 8 * 96


def test_the_limit_that_takes_longer_binds():
    limits = Roofline(peak=100.0, bandwidth=((10, 20.0), (1000, 5.0)))
    assert limits.least_seconds(10, 1) == (0.5, "memory")
    assert limits.least_seconds(100, 1) == (20.0, "memory")
    assert limits.least_seconds(10, 100) == (1.0, "arithmetic")
    assert limits.bandwidth_for(5000) == 5.0


def test_kernels_are_noted_before_and_after_in_the_generated_code():
    steps = {}
    namespace = {
        "_step": tracing._timer(steps),
        "torch": torch,
        "empty_strided_cpu": lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype),
        "reinterpret_tensor": lambda buffer, *_: buffer,
        "cpp_fused_norm_0": lambda *_: None,
        "extern_kernels": type("Library", (), {"addmm": staticmethod(lambda *_, **__: None)}),
    }
    exec("def call(self, args): pass", namespace)
    namespace["call"].__code__ = tracing._instrumented(CODE, "generated.py")
    for _ in range(3):
        namespace["call"](None, [torch.ones(5), torch.ones(7)])
    assert list(steps) == ["cpp_fused_norm_0:1", "extern_kernels.addmm:2", "cpp_fused_norm_0:3"]
    assert {len(step.times) for step in steps.values()} == {3}
    assert steps["extern_kernels.addmm:2"].sizes == {"arg1_1": 28, "buf1": 32, "buf2": 1536}


def test_a_page_tells_every_part_and_runs_nothing_of_the_model():
    html = render_page(small())
    for text in (
        "What you wrote",
        "fold",
        "2 loop nests in one",
        "template",
        "1.02 kB",
        "share of the roofline",
        "200 %",
    ):
        assert text in html, text
    assert "&lt;Small&gt;" in html
    assert "a &lt; b" in html
    assert "kernel(&lt;T&gt;)" in html
    for loose in ("<Small>", "<T>", "<x>", "<a note>", "http"):
        assert loose not in html


def test_in_text_the_kernel_that_takes_longest_comes_first():
    lines = list(report.describe(small()))
    assert "1 operation captured" in lines[0]
    assert "product" in lines[1]
    assert "mul" in lines[2]
    assert report.as_dict(small())["kernels"][0]["share"] == 0.5


def test_a_model_that_inductor_does_not_compile_says_what_to_do():
    with pytest.raises(BackendError, match="backend inductor"):
        compile_report(torch.nn.ReLU().eval(), torch.ones(3), backend="eager")


def test_what_is_watched_is_left_as_it_was():
    observer = adapter.hook("torch.fx.passes.graph_transform_observer.GraphTransformObserver")
    before = observer.__enter__, observer.__exit__
    savers = adapter.hook("torch._inductor.select_algorithm.get_algorithm_selector_cache")().feedback_saver_fns
    kept = list(savers)
    with tracing.trace_compilation():
        assert observer.__enter__ is not before[0]
    assert (observer.__enter__, observer.__exit__) == before
    assert savers == kept


MODEL = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(16), torch.nn.Linear(16, 24)

    def forward(self, x):
        return torch.relu(self.up(self.norm(x))) + 1

def make():
    return Small().eval(), (torch.randn(8, 16),)
"""


@pytest.mark.slow
def test_a_model_is_followed_from_its_lines_to_timed_kernels(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
    (tmp_path / "model.py").write_text(MODEL)
    done = CliRunner().invoke(
        command, ["torch", "report", f"{tmp_path / 'model.py'}:make", "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "out" / "journey.json").read_text())
    assert [one["call"] for one in told["captured"]] == ["layer_norm", "linear", "relu", "add"]
    assert any(line["line"] == 10 for line, _ in told["source"])
    calls = {one["name"]: one["call"] for one in told["final"]}
    made = [[calls[name] for name in kernel["operations"]] for kernel in told["kernels"]]
    assert made[1] == ["addmm"]
    assert made[2] == ["relu", "add"]
    assert "var_mean" in made[0]
    assert all(kernel["seconds"] > 0 and kernel["moved"] > 0 for kernel in told["kernels"])
    assert told["kernels"][1]["flops"] == 2 * 8 * 24 * 16
    assert told["kernels"][0]["loops"] > 1
    assert told["buffers"]
    assert [kernel["label"] for kernel in told["kernels"]] == ["layer norm", "matrix product", "relu, add"]
    assert "relu, add" in (tmp_path / "out" / "index.html").read_text()
    assert torch.compile(torch.sin, backend="eager")(torch.zeros(1)) == 0
