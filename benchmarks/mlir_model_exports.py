"""Five small models of torch, exported by torch-mlir as linalg on tensors, their weights as arguments.

    python benchmarks/mlir_model_exports.py

writes them to benchmarks/mlir_models/; needs torch and torch-mlir.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as by
from torch import nn

FOLDER = Path(__file__).resolve().parent / "mlir_models"
HEADS = 4


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    return by.layer_norm(x, x.shape[-1:], scale, shift)


def mlp(x: Any, first: Any, first_bias: Any, second: Any, second_bias: Any) -> Any:
    return by.linear(by.relu(by.linear(x, first, first_bias)), second, second_bias)


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def transformer_block(x: Any, *weights: Any) -> Any:
    scale, shift, qkv, mixed, up, down = weights
    length, width = x.shape
    split = by.linear(layer_norm(x, scale, shift), qkv).reshape(length, 3, HEADS, width // HEADS)
    q, k, v = (split[:, i].transpose(0, 1) for i in range(3))
    x = x + by.linear(attention(q, k, v).transpose(0, 1).reshape(length, width), mixed)
    return x + by.linear(by.silu(by.linear(layer_norm(x, scale, shift), up)), down)


def resnet_block(x: Any, first: Any, first_bias: Any, second: Any, second_bias: Any) -> Any:
    y = by.relu(by.conv2d(x, first, first_bias, padding=1))
    return by.relu(x + by.conv2d(y, second, second_bias, padding=1))


MODELS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "layer_norm": (layer_norm, ((256, 512), (512,), (512,))),
    "mlp": (mlp, ((128, 256), (512, 256), (512,), (256, 512), (256,))),
    "attention": (attention, ((4, 128, 64),) * 3),
    "transformer_block": (
        transformer_block,
        ((64, 128), (128,), (128,), (384, 128), (128, 128), (512, 128), (128, 512)),
    ),
    "resnet_block": (resnet_block, ((1, 32, 16, 16), (32, 32, 3, 3), (32,), (32, 32, 3, 3), (32,))),
}


class Model(nn.Module):
    """A function as a module, which is what is exported."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def main() -> None:
    """Export all of them."""
    from torch_mlir import fx

    for name, (function, shapes) in MODELS.items():
        args = [torch.randn(shape) for shape in shapes]
        module = fx.export_and_import(Model(function).eval(), *args, output_type="linalg-on-tensors", func_name=name)
        (FOLDER / f"{name}.mlir").write_text(str(module))
        print(name, len(str(module).splitlines()), "lines")


if __name__ == "__main__":
    main()
