"""Model classes of Hugging Face with random weights, by name: `bert-float32`, `llama-decode-bfloat16`.

Sizes are those of published models; depth is reduced, since layers repeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tunewright.torch import Call

WORDS = 8000


def _ids(length: int) -> Any:
    return torch.randint(0, WORDS, (1, length), generator=torch.Generator().manual_seed(length))


def _image(dtype: torch.dtype) -> Any:
    return torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)).to(dtype)


def bert(dtype: torch.dtype, length: int = 128) -> tuple[Any, Call]:
    """BERT-base, four layers."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=768, num_hidden_layers=4, intermediate_size=3072, vocab_size=WORDS)
    ids = _ids(length)
    return BertModel(config).to(dtype), Call(input_ids=ids, attention_mask=torch.ones_like(ids))


def llama(dtype: torch.dtype, length: int = 64) -> tuple[Any, Call]:
    """A Llama of 1B's width, two layers; `llama-decode` has one token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=2048, num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192,
        vocab_size=WORDS, max_position_embeddings=512,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(dtype), Call(input_ids=_ids(length), use_cache=False)


def vit(dtype: torch.dtype, _: int = 0) -> tuple[Any, Call]:
    """ViT-S, six layers."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
    return ViTModel(config).to(dtype), Call(pixel_values=_image(dtype))


def resnet(dtype: torch.dtype, _: int = 0) -> tuple[Any, Call]:
    """ResNet-50."""
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig()).to(dtype), Call(pixel_values=_image(dtype))


def convnext(dtype: torch.dtype, _: int = 0) -> tuple[Any, Call]:
    """ConvNeXt-T."""
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig()).to(dtype), Call(pixel_values=_image(dtype))


def t5(dtype: torch.dtype, length: int = 128) -> tuple[Any, Call]:
    """The encoder of T5-small."""
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(T5Config(vocab_size=WORDS)).to(dtype), Call(input_ids=_ids(length))


MODELS: dict[str, Callable[..., tuple[Any, Call]]] = {
    "bert": bert,
    "llama": llama,
    "vit": vit,
    "resnet": resnet,
    "convnext": convnext,
    "t5": t5,
}
DECODE = "decode"


def make_model(name: str, length: int = 0) -> tuple[Any, Call]:
    """A model in eval mode, and a call of it; `length` is the number of tokens, if it takes tokens."""
    torch.manual_seed(0)
    kind, *more, word = name.split("-")
    length = length or (1 if DECODE in more else 0)
    model, call = MODELS[kind](getattr(torch, word), *([length] if length else []))
    return model.eval(), call
