"""The models that compiled models are measured on, by name: `layer-4x128-float32`, `gpt-float32`, `mlp-bfloat16`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional
from torch_model_classes import MODELS, make_model

from tunewright.torch import Call

NAMES = (
    *(f"layer-{shape}-{dtype}" for dtype in ("float32", "bfloat16") for shape in ("4x128", "1x16", "1x1")),
    "gpt-float32",
    "mlp-float32",
    "conv-float32",
)
TINY = "tiny-float32"


class Layer(nn.Module):
    """A transformer layer: attention, then two products with a gelu between them."""

    def __init__(self, width: int = 1024, heads: int = 16, inner: int = 4096, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    """A small language model."""

    def __init__(self, depth: int = 4, width: int = 256, words: int = 4096, length: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, 4, 4 * width, causal=True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Conv(nn.Module):
    """A small convolutional net."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(3, 32, 1), (32, 64, 2), (64, 128, 2)]
        blocks = [(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()) for i, o, s in sizes]
        self.body = nn.Sequential(*(part for block in blocks for part in block))
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).mean((2, 3)))


def _mlp(*sizes: int) -> nn.Module:
    """Products with a relu between them."""
    parts = [part for one, two in pairwise(sizes) for part in (nn.Linear(one, two), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


def make(name: str, length: int = 0) -> tuple[nn.Module, Call]:
    """A model in eval mode, and a call of it, with `length` tokens if it takes tokens; the same in every process."""
    if name.partition("-")[0] in MODELS:
        return make_model(name, length)
    torch.manual_seed(0)
    kind, *shape, word = name.split("-")
    dtype = getattr(torch, word)
    if kind == "layer":
        batch, length = map(int, shape[0].split("x"))
        return Layer().eval().to(dtype), Call(torch.randn(batch, length, 1024).to(dtype))
    if kind == "gpt":
        return Gpt().eval().to(dtype), Call(torch.randint(0, 4096, (4, length or 128)))
    if kind == "conv":
        return Conv().eval().to(dtype), Call(torch.randn(4, 3, 64, 64).to(dtype))
    sizes = (256, 512, 256) if kind == "tiny" else (333, 1001, 777, 10)
    return _mlp(*sizes).eval().to(dtype), Call(torch.randn(64 if kind == "tiny" else 100, sizes[0]).to(dtype))
