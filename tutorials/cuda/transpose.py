"""A CUDA kernel whose configs are checked without a GPU: `tunewright cuda check tutorials/cuda/transpose.py --all`.

BARRIER=0 is planted: without the barrier a warp reads what another has not written yet, and the check says where.
"""

import tunewright as tw

space = tw.Space(
    tw.Knob("TILE", [16, 32, 64]),
    tw.Knob("ROWS", [4, 8, 32]),
    tw.Knob("PAD", [0, 1]),
    tw.Knob("BARRIER", [1, 0]),
    rules=[tw.Rule("a tile is a whole number of passes", lambda TILE, ROWS: TILE % ROWS == 0)],
)


def grid(M, N, TILE):
    """Blocks along both axes, rounded up."""
    return -(-N // TILE), -(-M // TILE)


@tw.tune(
    space,
    backend=tw.Cuda("transpose.cu", grid=grid, block=("TILE", "ROWS"), target="sm_90"),
    reference=lambda x: x.T,
    default={"TILE": 32, "ROWS": 8, "PAD": 1, "BARRIER": 1},
    shapes=[{"M": 70, "N": 50}],
)
def transpose(x: tw.In("M", "N"), y: tw.Out("N", "M")): ...
