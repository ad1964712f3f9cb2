"""Attention, convolution, transposes, gathers, atomics, locks, pipelined loops."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from emulator_corpus.case import Case, add, cdiv, configs, randn, unset


@triton.jit
def attention_kernel(Q, K, V, O, S, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * S * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + head + m[:, None] * D + d[None, :], mask=m[:, None] < S, other=0.0)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    last = tl.minimum((tl.program_id(0) + 1) * BM, S) if CAUSAL else S
    for s in range(0, last, BN):
        n = s + tl.arange(0, BN)
        k = tl.load(K + head + n[None, :] * D + d[:, None], mask=n[None, :] < S, other=0.0)
        z = tl.dot(q, k) * scale
        z = tl.where(n[None, :] < S, z, -1e30)
        if CAUSAL:
            z = tl.where(n[None, :] <= m[:, None], z, -1e30)
        new = tl.maximum(top, tl.max(z, 1))
        p = tl.exp(z - new[:, None])
        alpha = tl.exp(top - new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(V + head + n[:, None] * D + d[None, :], mask=n[:, None] < S, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        top = new
    tl.store(O + head + m[:, None] * D + d[None, :], acc / total[:, None], mask=m[:, None] < S)


def attend(causal):
    def reference(Q, K, V):
        return torch.nn.functional.scaled_dot_product_attention(
            Q.float(), K.float(), V.float(), is_causal=causal, scale=0.18
        ).half()

    return reference


for name, causal, length, dtype in [
    ("attention", False, 128, torch.float16),
    ("attention_causal", True, 96, torch.float16),
    ("attention_bf16_ragged", False, 75, torch.bfloat16),
]:
    add(
        Case(
            name,
            attention_kernel,
            lambda length=length, dtype=dtype: {
                **{key: randn(2, length, 32, dtype=dtype, seed=at) for at, key in enumerate("QKV")},
                "O": unset(2, length, 32, dtype=torch.float16), "S": length, "scale": 0.18,
            },
            lambda meta, length=length: (cdiv(length, meta["BM"]), 2),
            configs((2, 4, 4, 8), CAUSAL=[causal], BM=[16, 32, 64, 64], BN=[16, 32, 32, 64], D=[32]),
            attend(causal),
        )
    )  # fmt: skip


@triton.jit
def convolution_kernel(x, w, o, H, W, R: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    i = tl.program_id(0) * BH + tl.arange(0, BH)
    j = tl.program_id(1) * BW + tl.arange(0, BW)
    acc = tl.zeros((BH, BW), tl.float32)
    for r in tl.static_range(R):
        for s in tl.static_range(R):
            y, z = i + r - R // 2, j + s - R // 2
            inside = ((y >= 0) & (y < H))[:, None] & ((z >= 0) & (z < W))[None, :]
            acc += tl.load(x + y[:, None] * W + z[None, :], mask=inside, other=0.0) * tl.load(w + r * R + s)
    tl.store(o + i[:, None] * W + j[None, :], acc, mask=(i < H)[:, None] & (j < W)[None, :])


add(
    Case(
        "convolution",
        convolution_kernel,
        lambda: {"x": randn(45, 70), "w": randn(3, 3), "o": unset(45, 70), "H": 45, "W": 70},
        lambda meta: (cdiv(45, meta["BH"]), cdiv(70, meta["BW"])),
        configs(R=[3], BH=[8, 16, 16, 32], BW=[16, 16, 32, 32]),
        lambda x, w: torch.nn.functional.conv2d(x[None, None], w[None, None], padding=1)[0, 0],
    )
)


@triton.jit
def transpose_kernel(x, o, H, W, BH: tl.constexpr, BW: tl.constexpr):
    i = tl.program_id(0) * BH + tl.arange(0, BH)
    j = tl.program_id(1) * BW + tl.arange(0, BW)
    v = tl.load(x + i[:, None] * W + j[None, :], mask=(i < H)[:, None] & (j < W)[None, :])
    tl.store(o + j[:, None] * H + i[None, :], tl.trans(v), mask=(j < W)[:, None] & (i < H)[None, :])


for name, dtype in [("transpose", torch.float32), ("transpose_fp16", torch.float16)]:
    add(
        Case(
            name,
            transpose_kernel,
            lambda dtype=dtype: {
                "x": randn(64, 96, dtype=dtype), "o": unset(96, 64, dtype=dtype), "H": 64, "W": 96,
            },
            lambda meta: (cdiv(64, meta["BH"]), cdiv(96, meta["BW"])),
            configs(BH=[16, 32, 32, 64], BW=[16, 32, 64, 32]),
            lambda x: x.T.contiguous(),
        )
    )  # fmt: skip


@triton.jit
def gather_kernel(table, index, o, n, D: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    d = tl.arange(0, D)
    row = tl.load(index + i, mask=i < n, other=0)
    v = tl.load(table + row[:, None] * D + d[None, :], mask=(i < n)[:, None])
    tl.store(o + i[:, None] * D + d[None, :], v, mask=(i < n)[:, None])


add(
    Case(
        "embedding",
        gather_kernel,
        lambda: {
            "table": randn(50, 32, dtype=torch.bfloat16), "index": torch.arange(77, dtype=torch.int64) * 31 % 50,
            "o": unset(77, 32, dtype=torch.bfloat16), "n": 77,
        },
        lambda meta: (cdiv(77, meta["B"]),),
        configs(D=[32], B=[8, 16, 32, 64]),
        lambda table, index: table[index],
    )
)  # fmt: skip


@triton.jit
def histogram_kernel(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_add(o + v, tl.full((B,), 1, tl.int32), mask=i < n)


def letters(count):
    return torch.randint(0, 20, (count,), dtype=torch.int32, generator=torch.Generator().manual_seed(4))


add(
    Case(
        "histogram_atomics",
        histogram_kernel,
        lambda: {"x": letters(700), "o": torch.zeros(20, dtype=torch.int32), "n": 700},
        lambda meta: (cdiv(700, meta["B"]),),
        configs(B=[64, 128, 256, 512]),
        lambda x: torch.bincount(x, minlength=20).int(),
    )
)


@triton.jit
def block_histogram_kernel(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + i)
    tl.store(o + tl.program_id(0) * 32 + tl.arange(0, 32), tl.histogram(v, 32))


add(
    Case(
        "histogram_of_blocks",
        block_histogram_kernel,
        lambda: {"x": letters(1024), "o": unset(8, 32, dtype=torch.int32), "n": 1024},
        lambda meta: (8,),
        configs(B=[128]),
        lambda x: torch.stack([torch.bincount(part, minlength=32) for part in x.view(8, 128)]).int(),
    )
)


@triton.jit
def lock_kernel(x, o, lock, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    part = tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o, tl.load(o) + part)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


add(
    Case(
        "lock",
        lock_kernel,
        lambda: {"x": randn(1000), "o": torch.zeros(1), "lock": torch.zeros(1, dtype=torch.int32), "n": 1000},
        lambda meta: (cdiv(1000, meta["B"]),),
        configs(B=[128, 256, 512, 256]),
        lambda x: {"o": x.sum().reshape(1)},
    )
)


@triton.jit
def in_place_kernel(o, B: tl.constexpr):
    at = o + tl.program_id(0) * 64 + tl.arange(0, B)  # fewer elements than threads: all warps load them
    tl.store(at, tl.load(at) * 2 + 1)


add(
    Case(
        "in_place",
        in_place_kernel,
        lambda: {"o": randn(4, 64)},
        lambda meta: (4,),
        configs(B=[16]),
        lambda o: {"o": torch.cat([o[:, :16] * 2 + 1, o[:, 16:]], 1)},
    )
)


@triton.jit
def pipelined_kernel(x, o, n, B: tl.constexpr, STAGES: tl.constexpr):
    r = tl.program_id(0)
    acc = tl.zeros((B,), tl.float32)
    for k in tl.range(0, n, B, num_stages=STAGES):
        i = k + tl.arange(0, B)
        acc += tl.load(x + r * n + i, mask=i < n, other=0.0)
    tl.store(o + r, tl.sum(acc, 0))


add(
    Case(
        "pipelined_sum",
        pipelined_kernel,
        lambda: {"x": randn(6, 1000), "o": unset(6), "n": 1000},
        lambda meta: (6,),
        configs(B=[128, 128, 256, 256], STAGES=[1, 2, 3, 4]),
        lambda x: x.sum(1),
    )
)


@triton.jit
def rope_kernel(x, c, s, o, T, D: tl.constexpr, B: tl.constexpr):
    t = tl.program_id(0) * B + tl.arange(0, B)
    h = tl.arange(0, D // 2)
    m = (t < T)[:, None]
    a = tl.load(x + t[:, None] * D + h[None, :], mask=m)
    b = tl.load(x + t[:, None] * D + D // 2 + h[None, :], mask=m)
    cos = tl.load(c + t[:, None] * (D // 2) + h[None, :], mask=m)
    sin = tl.load(s + t[:, None] * (D // 2) + h[None, :], mask=m)
    tl.store(o + t[:, None] * D + h[None, :], a * cos - b * sin, mask=m)
    tl.store(o + t[:, None] * D + D // 2 + h[None, :], a * sin + b * cos, mask=m)


def rotate(x, c, s):
    a, b = x.chunk(2, 1)
    return torch.cat([a * c - b * s, a * s + b * c], 1)


add(
    Case(
        "rotary",
        rope_kernel,
        lambda: {"x": randn(50, 64), "c": randn(50, 32), "s": randn(50, 32, seed=1), "o": unset(50, 64), "T": 50},
        lambda meta: (cdiv(50, meta["B"]),),
        configs(D=[64], B=[4, 8, 16, 32]),
        rotate,
    )
)


@triton.jit
def reshape_kernel(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.reshape(tl.load(x + tl.program_id(0) * B + i), (B // 8, 8))
    a, b = tl.split(tl.reshape(v, (B // 8, 4, 2)))
    joined = tl.join(b, a)
    tl.store(o + tl.program_id(0) * B + i, tl.reshape(joined, (B,)))


add(
    Case(
        "split_and_join",
        reshape_kernel,
        lambda: {"x": randn(2048), "o": unset(2048)},
        lambda meta: (2048 // meta["B"],),
        configs(B=[256, 512, 1024, 2048]),
        lambda x: x.view(-1, 2).flip(1).reshape(-1),
    )
)


@triton.jit
def flip_kernel(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    r = tl.program_id(0)
    tl.store(o + r * B + i, tl.flip(tl.load(x + r * B + i), 0))


add(
    Case(
        "flip",
        flip_kernel,
        lambda: {"x": randn(4, 256), "o": unset(4, 256), "n": 256},
        lambda meta: (4,),
        configs(B=[256]),
        lambda x: x.flip(1),
    )
)


@triton.jit
def quantize_kernel(x, q, s, n, B: tl.constexpr):
    i = tl.arange(0, B)
    r = tl.program_id(0)
    v = tl.load(x + r * n + i, mask=i < n, other=0.0)
    scale = tl.max(tl.abs(v), 0) / 127
    tl.store(s + r, scale)
    tl.store(q + r * n + i, tl.floor(v / scale + 0.5).to(tl.int8), mask=i < n)


add(
    Case(
        "quantize_int8",
        quantize_kernel,
        lambda: {"x": randn(6, 300), "q": unset(6, 300, dtype=torch.int8), "s": unset(6), "n": 300},
        lambda meta: (6,),
        configs(B=[512]),
        lambda x: {"s": x.abs().amax(1) / 127},
    )
)
