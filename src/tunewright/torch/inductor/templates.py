"""Inductor's C++ GEMM template with a chosen configuration, and a microkernel of our own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec

from tunewright.errors import BackendError
from tunewright.torch.inductor.adapter import hook
from tunewright.torch.inductor.patching import replaced_hook

_MICRO = "torch._inductor.codegen.cpp_micro_gemm"
_TEMPLATE = "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate"

OWN = "Own512"
"""The microkernel that is ours, not PyTorch's."""


class GemmConfig(msgspec.Struct, frozen=True):
    """How the template computes a GEMM: microkernel, register block, cache blocks, slices of k, prefetching.

    Blocks are rows, columns and depth. Cache blocks count register blocks, where 0 stands for all; without cache
    blocks Inductor chooses them.
    """

    micro: str
    register: tuple[int, int, int]
    cache: tuple[int, int, int] | None = None
    slices: int = 1
    prefetch: bool = False

    def __str__(self) -> str:
        parts = [f"{self.micro} {'x'.join(map(str, self.register))}"]
        parts += [f"cache {'x'.join(map(str, self.cache))}"] if self.cache else []
        parts += [f"{self.slices} slices"] if self.slices > 1 else []
        return ", ".join([*parts, *(["prefetching"] if self.prefetch else [])])


# A block of rows times a vector of columns at a time, all sums in registers. Numbers of 16 bits are widened: weights as
# they come, rows a stretch at a time into what the nearest cache holds, else each would be widened for every column.
OWN_SOURCE = r"""
#include <immintrin.h>
{%- set narrow = input_dtype == torch.bfloat16 %}
{%- if narrow %}
inline __attribute__((always_inline)) __m512 {{kernel_name}}_widened(__m256i some) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(some), 16));
}
{%- endif %}
template <int64_t BLOCK_M, int64_t BLOCK_N, bool accum, bool prefetch=false>
inline __attribute__((always_inline)) void {{kernel_name}}_kernel(
    const {{input_t}}* __restrict__ A, const {{input2_t}}* __restrict__ B, {{output_t}}* __restrict__ C,
    int64_t K, int64_t lda, int64_t ldb, int64_t ldc) {
    constexpr int rows = BLOCK_M, vectors = BLOCK_N / 16;
    __m512 sums[rows][vectors];
    _Pragma("GCC unroll 32") for (int i = 0; i < rows; i++) {
        _Pragma("GCC unroll 32") for (int j = 0; j < vectors; j++)
            sums[i][j] = accum ? _mm512_loadu_ps(C + i * ldc + j * 16) : _mm512_setzero_ps();
    }
{%- if narrow %}
    constexpr int64_t stretch = 256;
    alignas(64) float wide[rows][stretch];
    for (int64_t start = 0; start < K; start += stretch) {
        const int64_t end = start + stretch < K ? start + stretch : K;
        for (int i = 0; i < rows; i++) {
            for (int64_t k = start; k < end; k += 16) {
                const __mmask16 there = end - k < 16 ? (1u << (end - k)) - 1 : 0xffff;
                _mm512_store_ps(wide[i] + k - start,
                    {{kernel_name}}_widened(_mm256_maskz_loadu_epi16(there, (const __m256i*)(A + i * lda + k))));
            }
        }
{%- else %}
    constexpr int64_t start = 0;
    const int64_t end = K;
    {
{%- endif %}
        for (int64_t k = start; k < end; k++) {
            __m512 right[vectors];
            _Pragma("GCC unroll 32") for (int j = 0; j < vectors; j++) {
                if constexpr (prefetch) _mm_prefetch((const char*)(B + (k + 32) * ldb + j * 16), _MM_HINT_T0);
{%- if narrow %}
                right[j] = {{kernel_name}}_widened(_mm256_loadu_si256((const __m256i*)(B + k * ldb + j * 16)));
{%- else %}
                right[j] = _mm512_loadu_ps(B + k * ldb + j * 16);
{%- endif %}
            }
            _Pragma("GCC unroll 32") for (int i = 0; i < rows; i++) {
                __m512 left = _mm512_set1_ps({{"wide[i][k - start]" if narrow else "A[i * lda + k]"}}
                    {%- if alpha != 1 %} * static_cast<float>({{alpha}}){% endif %});
                _Pragma("GCC unroll 32") for (int j = 0; j < vectors; j++)
                    sums[i][j] = _mm512_fmadd_ps(left, right[j], sums[i][j]);
            }
        }
    }
    _Pragma("GCC unroll 32") for (int i = 0; i < rows; i++) {
        _Pragma("GCC unroll 32") for (int j = 0; j < vectors; j++) _mm512_storeu_ps(C + i * ldc + j * 16, sums[i][j]);
    }
}
"""


@cache
def _own_microkernel() -> Any:
    """Returns our microkernel as a class: PyTorch's for vectors with another kernel."""
    return type(f"CppMicroGemm{OWN}", (hook(f"{_MICRO}.CppMicroGemmFP32Vec"),), {"TEMPLATE_KERNEL": OWN_SOURCE})


@cache
def _microkernels() -> dict[Any, Any]:
    """Returns every microkernel with its configurations; ours is not in PyTorch's table, so its own choice stays.

    Read once, since the table holds only one of them while a GEMM is templated.
    """
    table = hook(f"{_MICRO}.micro_gemm_configs")
    return {**table, _own_microkernel(): table[hook(f"{_MICRO}.CppMicroGemmFP32Vec")]}


@contextmanager
def restrict_microkernels(config: GemmConfig, dtype: Any) -> Iterator[None]:
    """Leaves Inductor one microkernel to choose from: that of `config`."""
    table = _microkernels()
    kind = next((kind for kind in table if kind.__name__ == f"CppMicroGemm{config.micro}"), None)
    known = [entry for entry in table.get(kind, ()) if entry.input_dtype == dtype and entry.input2_dtype == dtype]
    if kind is None or not known:
        raise BackendError(f"there is no microkernel {config.micro} for {dtype}; choose another")
    block = hook("torch._inductor.codegen.cpp_utils.GemmBlocking")(*config.register)
    entry = dataclasses.replace(known[0], register_blocking=block)
    with replaced_hook(f"{_MICRO}.micro_gemm_configs", {_with_prefetching(kind, config): [entry]}):
        yield


def _with_prefetching(kind: Any, config: GemmConfig) -> Any:
    """Returns the microkernel, with prefetching if the config has it."""
    if not config.prefetch:
        return kind

    def codegen_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return kind.codegen_call(self, *args, **{**kwargs, "prefetch": True})

    return type(kind.__name__, (kind,), {"codegen_call": codegen_call})


def configured_template(config: GemmConfig, dtype: Any) -> Any:
    """Returns the template as a class that follows `config` whenever it is rendered: for timing, and in the end."""
    base, blocking = hook(_TEMPLATE), hook("torch._inductor.codegen.cpp_utils.GemmBlocking")

    def thread_blocking(self: Any, threads: int) -> Any:
        if config.slices == 1:
            return base._thread_blocking(self, threads)
        shares = (1, max(1, threads // config.slices), config.slices)
        sizes = zip((self.m, self.n, self.k), self.register_blocking, shares, strict=True)
        return blocking(*(math.ceil(math.ceil(size / block) / share) for size, block, share in sizes))

    def cache_blocking(self: Any, threads: int) -> Any:
        if config.cache is None:
            return base._cache_blocking(self, threads)
        limits = self.thread_blocking(threads)
        return blocking(*(min(block or limit, limit) for block, limit in zip(config.cache, limits, strict=True)))

    def render(self: Any, *args: Any, **kwargs: Any) -> Any:
        with restrict_microkernels(config, dtype):
            code = base.render(self, *args, **kwargs)
        return f"// {config}\n{code}" if isinstance(code, str) else code

    methods = {"_thread_blocking": thread_blocking, "_cache_blocking": cache_blocking, "render": render}
    return type("ChosenGemmTemplate", (base,), methods)
