"""Tutorial 6: from @triton.autotune to Tunewright in five minutes.

    python tutorials/6_triton.py

This needs no GPU, so it says nothing about speed: kernels are really compiled (rung 1), and launched on a simulated
driver of an A100 with made-up times (rung 2). On a machine with a GPU, remove `fake_driver`; nothing else changes.
"""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import torch
import triton.language as tl
from triton import cdiv, jit

import tunewright as tw
from tunewright.testing.triton_driver import A30, A100, FakeDriver, fake_driver

# 1. Change one import. This was `from triton import autotune, Config`; nothing else changes.
from tunewright.triton import Config, autotune
from tunewright.triton.static import heatmap, prebuild
from tunewright.triton.static.compile_worker import LaunchArguments
from tunewright.triton.static.kernels import unwrap_kernel


@autotune(
    configs=[
        Config({"M": 32, "N": 32, "K": 32}, num_warps=2, num_stages=2),
        Config({"M": 64, "N": 64, "K": 32}, num_warps=4, num_stages=3),
        Config({"M": 128, "N": 64, "K": 32}, num_warps=4, num_stages=3),
    ],
    key=["m", "n", "k"],
)
@jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, tl.cdiv(k, K)):
        depth = start * K + tl.arange(0, K)
        left = tl.load(a + rows[:, None] * k + depth[None, :], mask=depth[None, :] < k, other=0.0)
        right = tl.load(b + depth[:, None] * n + columns[None, :], mask=depth[:, None] < k, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


# 2. Use a space instead of a list: it can have many more configs. Buckets let sizes share a tuning.
space = tw.Space(
    tw.Knob("M", [32, 64, 128, 256]),
    tw.Knob("N", [32, 64, 128, 256]),
    tw.Knob("K", [32, 64]),
    tw.Knob("num_warps", [2, 4, 8]),
    tw.Knob("num_stages", [2, 3]),
)
searched = autotune(space=space, key=["m", "n", "k"], buckets={"m": "pow2"}, budget="12", name="searched")(matmul.fn)


def grid(meta):
    return cdiv(meta["m"], meta["M"]), cdiv(meta["n"], meta["N"])


def arguments(m=256, n=256, k=128):
    return torch.ones(m, k).half(), torch.ones(k, n).half(), torch.zeros(m, n), m, n, k


def cost(launch):
    """Returns made-up seconds: larger tiles are better, up to a point. A real GPU would differ."""
    tile = launch.config["M"] * launch.config["N"]
    return 1e-5 * (1 + abs(tile - 8192) / 8192)


def main():
    with fake_driver(FakeDriver(A100, seconds=cost)):
        # 3. The first call tunes by racing; the next is a dictionary look-up.
        matmul[grid](*arguments())
        print("a list:", matmul.best_config)
        searched[grid](*arguments())
        searched[grid](*arguments(m=200))  # the same bucket: nothing is tuned
        print("a space:", searched.best_config)
        print({kind: count for kind, count in tw.current_session().counts.items() if kind != "compiles"})
    with fake_driver(FakeDriver(A30, seconds=cost)):
        # 4. Another GPU of the same architecture has another key: the stock tuner would use the A100's choice.
        print("on an A30:", searched.key.key(searched.key.signature(named(arguments()))).differences(decided().key))

    # 5. Compile without a GPU: what fits, what spills, and a heat map.
    with tempfile.TemporaryDirectory() as scratch:
        kernel = unwrap_kernel(searched)
        plan = prebuild.plan_prebuild(kernel, LaunchArguments(arguments(), {}), ["sm_80", "sm_90"], max_configs=24)
        rows = list(prebuild.prebuild(plan, Path(scratch)))
        dropped = [row for row in rows if row.by == "model"]
        print(f"{len(rows)} configs x targets: {len(dropped)} dropped before compiling, such as")
        print("  ", dropped[0].config, dropped[0].reasons[0])
        print(f"   {sum(row.keep for row in rows)} kept after compiling; the others spill or do not fit")
        points = [heatmap.OccupancyPoint(row.target, row.config, occupancy(row)) for row in rows]
        heatmap.draw_heatmap(Path(os.environ.get("PICTURE", f"{scratch}/resources.png")), kernel.name, points)

    # 6. `tunewright triton prebuild FILE.py:KERNEL --targets sm_80,gfx942` does the same. `tunewright bundle build`
    # packs decisions and artifacts, so that production neither compiles nor measures: see tutorial 5.
    print(f"in this process: measurements {tw.current_session().counts['measurements']}")


def named(args):
    return dict(zip(searched.arg_names, args, strict=False))


def decided():
    return next(tw.current_session().store.decisions("searched"))


def occupancy(row):
    return row.resources.occupancy if row.keep and row.resources else None


if __name__ == "__main__":
    main()
