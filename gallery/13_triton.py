"""A Triton kernel without a GPU: how many registers of an A100 each tile needs, before anything is compiled."""

import numpy as np
import triton
import triton.language as tl
from easel import blank, keep

from tunewright.triton.static import call_arguments
from tunewright.triton.static.kernels import unwrap_kernel
from tunewright.triton.static.model import ResourceModel
from tunewright.triton.static.targets import find_target


@triton.jit
def product(a_at, b_at, c_at, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, depth = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_at + rows[:, None] * K + depth[None, :] + k)
        b = tl.load(b_at + (depth[:, None] + k) * BN + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_at + rows[:, None] * BN + columns[None, :], total.to(tl.float16))


if __name__ == "__main__":
    model = ResourceModel(
        unwrap_kernel(product), find_target("sm_80"), call_arguments.parse_arguments("*fp16,*fp16,*fp16,4096")
    )
    sizes = [32, 64, 128, 256]
    configs = [[{"BM": m, "BN": n, "BK": 32, "num_warps": 4, "num_stages": 3} for n in sizes] for m in sizes]
    registers = np.array([[model.estimate(config).registers for config in row] for row in configs])
    hopeless = [[bool(model.objections(config)) for config in row] for row in configs]
    print("256 x 128:", *model.objections(configs[3][2]))
    figure, axes = blank("Registers a thread, at least (×: spills)")
    axes.imshow(registers, cmap="YlOrRd", vmin=0, vmax=600)
    for (i, j), count in np.ndenumerate(registers):
        axes.text(j, i, f"{count:.0f}{' ×' if hopeless[i][j] else ''}", ha="center", va="center")
    axes.set_xticks(range(4), sizes)
    axes.set_yticks(range(4), sizes)
    axes.set(xlabel="BN", ylabel="BM")
    keep(figure, __file__)
