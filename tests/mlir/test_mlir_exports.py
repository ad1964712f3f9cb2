"""Small models of many kinds, exported here: every structure computes what torch does."""

import numpy as np
import pytest

pytest.importorskip("torch_mlir")
pytest.importorskip("torch")

import torch
import torch.nn.functional as by
from mlir_runs import ran
from torch_mlir import fx

from tunewright.mlir import compiler
from tunewright.mlir.exponentials import expand_exponentials
from tunewright.mlir.model_plans import model_plan
from tunewright.mlir.models import read_model

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of the exporter

KNOBS = {"tj": 32, "mr": 4, "nr": 32, "kr": 4}
IMAGE = (1, 16, 16, 16)

QUICK = {
    "variance": (lambda x: x.var(-1), [(32, 128)]),
    "batch_norm": (lambda x, s, m, v: by.relu(by.batch_norm(x, m, v, s)), [(2, 16, 8, 8), (16,), (16,), (16,)]),
    "matrix_by_vector": (lambda w, x: w @ x, [(128, 256), (256,)]),
    "group_norm": (lambda x, s, b: by.group_norm(x, 4, s, b), [(2, 16, 8, 8), (16,), (16,)]),
    "residual": (
        lambda x, w, b, y: by.relu(by.linear(x, w, b)) + y,
        [(32, 64), (48, 64), (48,), (32, 48)],
    ),
    "sum_of_products": (lambda x, y, w: by.relu(x @ w + y @ w), [(16, 32), (16, 32), (32, 48)]),
    "batch_with_bias": (lambda x, y, b: by.relu(x @ y + b), [(3, 16, 32), (3, 32, 48), (48,)]),
    "product_used_twice": (lambda x, w: torch.softmax(x @ w, -1) + x @ w, [(32, 64), (64, 48)]),
}
SLOW = {
    "gelu": (lambda x, w, v: by.linear(by.gelu(by.linear(x, w)), v), [(32, 64), (48, 64), (16, 48)]),
    "gelu_by_tanh": (lambda x, w: by.gelu(by.linear(x, w), approximate="tanh") + x, [(32, 48), (48, 48)]),
    "rms_norm": (lambda x, s: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * s, [(64, 96), (96,)]),
    "softmax_of_100": (lambda x: torch.softmax(x, -1), [(64, 100)]),
    "softmax_of_columns": (lambda x: torch.softmax(x, 0), [(64, 48)]),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), [(32, 128)]),
    "maximum_pool": (lambda x: by.max_pool2d(x, 2), [IMAGE]),
    "mean_of_images": (lambda x: x.mean((-2, -1)), [IMAGE]),
    "strided": (lambda x, w: by.conv2d(x, w, stride=2, padding=1), [IMAGE, (16, 16, 3, 3)]),
    "depthwise": (lambda x, w: by.conv2d(x, w, groups=16, padding=1), [IMAGE, (16, 1, 3, 3)]),
    "pointwise": (by.conv2d, [IMAGE, (32, 16, 1, 1)]),
    "outer_product": (lambda x, y: x[:, None] * y[None, :], [(64,), (128,)]),
    "sizes_that_divide_nothing": (lambda x, w: torch.sigmoid(x) @ w, [(33, 65), (65, 47)]),
    "tanh_of_few": (lambda x, w: torch.tanh(x @ w), [(7, 13), (13, 5)]),
    "sum_of_all": (lambda x: x.sum(), [(32, 128)]),
    "norm_of_two_dimensions": (lambda x, s: by.layer_norm(x, x.shape[-2:], s), [(8, 16, 32), (16, 32)]),
    "range_of_rows": (lambda x: x.amax(-1) - x.amin(-1), [(32, 128)]),
    "transposed": (lambda x: x.transpose(0, 1).contiguous(), [(48, 80)]),
    "joined": (lambda x, y: torch.cat([x, y], 0) * 2, [(16, 32), (8, 32)]),
}


class Model(torch.nn.Module):
    """A function as a module, which is what is exported."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check_model(function, shapes, folder):
    args = [torch.rand(shape) * 0.5 + 0.1 for shape in shapes]
    text = str(fx.export_and_import(Model(function).eval(), *args, output_type="linalg-on-tensors", func_name="model"))
    payload, right = read_model(text), function(*args).numpy()
    plan = model_plan(payload)
    assert len(plan.structures) > 1
    for variant in plan.space.variants:
        outs = []
        for epilogue in (False, True) if any(knob.name == "epilogue" for knob in variant.knobs) else (False,):
            config = {"variant": variant.name, **KNOBS, "epilogue": epilogue}
            outs.append(ran(payload, plan, [one.numpy() for one in args], config, folder))
            np.testing.assert_allclose(
                outs[-1], right, atol=1e-5 * np.abs(right).max(), rtol=1e-5, err_msg=f"{variant.name} {epilogue}"
            )
        assert all((out == outs[0]).all() for out in outs), "an epilogue in blocks computes the same, bit for bit"


@pytest.mark.parametrize("name", QUICK)
def test_models_of_many_kinds_are_right(name, tmp_path) -> None:
    check_model(*QUICK[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_models_are_right(name, tmp_path) -> None:
    check_model(*SLOW[name], tmp_path)


@pytest.mark.parametrize(("function", "most"), [("exp", 3), ("tanh", 4), ("erf", 8)])
def test_series_are_right_to_a_few_units_in_the_last_place(function, most, tmp_path) -> None:
    size = 4096
    text = f"""
      #map = affine_map<(d0) -> (d0)>
      func.func @model(%a: tensor<{size}xf32>) -> tensor<{size}xf32> {{
        %e = tensor.empty() : tensor<{size}xf32>
        %r = linalg.generic {{indexing_maps = [#map, #map], iterator_types = ["parallel"]}}
          ins(%a : tensor<{size}xf32>) outs(%e : tensor<{size}xf32>) {{
        ^bb0(%in: f32, %out: f32):
          %y = math.{function} %in : f32
          linalg.yield %y : f32
        }} -> tensor<{size}xf32>
        return %r : tensor<{size}xf32>
      }}"""
    payload = read_model(text)
    plan = model_plan(payload)
    x = np.concatenate([np.linspace(-9, 9, size - 6), [0.0, -0.0, 1e-20, -1e-3, 60.0, -60.0]]).astype(np.float32)
    out = ran(payload, plan, [x], {"variant": "tiled polynomial", **KNOBS}, tmp_path)
    right = getattr(torch, function)(torch.from_numpy(x).double()).numpy()
    units = np.abs(out - right) / np.spacing(np.maximum(np.abs(right), 1e-30).astype(np.float32))
    assert units.max() <= most, (x[units.argmax()], out[units.argmax()], right[units.argmax()])


def test_only_assertions_about_elements_are_left_out() -> None:
    text = """
      #map = affine_map<(d0) -> (d0)>
      func.func @f(%a: tensor<4xf32>, %ok: i1) -> tensor<4xf32> {
        cf.assert %ok, "a promise of the caller"
        %r = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel"]} outs(%a : tensor<4xf32>) {
        ^bb0(%out: f32):
          cf.assert %ok, "about an element"
          linalg.yield %out : f32
        } -> tensor<4xf32>
        return %r : tensor<4xf32>
      }"""
    printed = compiler.print_module(text, "f")
    assert "a promise of the caller" in printed
    assert "about an element" not in printed


def test_only_functions_of_float32_are_expanded() -> None:
    text = "func.func @f(%a: f64, %b: f32) -> f64 { %x = math.exp %a : f64 %y = math.erf %b : f32 return %x : f64 }"
    with compiler._context() as ir:
        module = ir.Module.parse(text)
        assert expand_exponentials(ir, module) == 1
        assert "math.exp" in str(module)
        assert "math.erf" not in str(module)
