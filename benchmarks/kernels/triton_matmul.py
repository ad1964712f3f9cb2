"""A product of two matrices in Triton as tutorials write it: tiles in groups, masked loads, fp32 accumulator."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a_at, b_at, c_at, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = pid // in_group * GROUP_M
    high = min(tiles_m - first, GROUP_M)
    at_m, at_n = first + pid % in_group % high, pid % in_group // high
    rows = (at_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (at_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    a_tile = a_at + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b_at + depth[:, None] * stride_bk + columns[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_tile, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_tile, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        total = tl.dot(a, b, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    rows = at_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = at_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_tile = c_at + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c_tile, total.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))
