"""Implementations in C: tuned templates of gemm, reduce and transpose; need a C compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

from tunewright.backends.c import C
from tunewright.errors import PluginError
from tunewright.model.signature import Signature
from tunewright.operators import standard
from tunewright.operators.operator import Implementation, Support, Template
from tunewright.spaces.rule import Rule
from tunewright.spaces.space import Knob, Space

_KERNELS = Path(__file__).parent / "kernels"

SPACE = Space(
    Knob("VW", [4, 8, 16]),
    Knob("MR", [1, 2, 4, 6, 8, 12]),
    Knob("NR", [1, 2, 3, 4]),
    Knob("KB", [32, 64, 128, 256, 512]),
    rules=[Rule("more than 28 vectors of sums spill", lambda MR, NR: MR * NR <= 28)],
)
START = {"VW": 16, "MR": 6, "NR": 4, "KB": 256}

ROWS = Space(Knob("VW", [4, 8, 16]), Knob("CHAINS", [1, 2, 4, 8]))
TILES = Space(Knob("TM", [4, 8, 16, 32, 64]), Knob("TN", [4, 8, 16, 32, 64]))

_SUPPORT = Support(("float32",), "C")


def implementations() -> list[Implementation]:
    """Returns the implementations."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        raise PluginError("'c' (operators) needs a C compiler; install gcc or clang")

    def gemm(signature: Signature, threads: int) -> Template:
        return Template(C(_KERNELS / "gemm.c", "gemm", flags="-O3 -march=native -ffast-math"), SPACE, START)

    def reduce(signature: Signature, threads: int) -> Template:
        return Template(
            C(_KERNELS / "rows.c", "reduce", flags="-O3 -march=native -ffast-math"), ROWS, {"VW": 16, "CHAINS": 4}
        )

    def transpose(signature: Signature, threads: int) -> Template:
        return Template(C(_KERNELS / "tiles.c", "transpose"), TILES, {"TM": 16, "TN": 16})

    return [
        Implementation("c", standard.GEMM, template=gemm, support=_SUPPORT),
        Implementation("c", standard.REDUCE, template=reduce, support=_SUPPORT),
        Implementation("c", standard.TRANSPOSE, template=transpose, support=_SUPPORT),
    ]
