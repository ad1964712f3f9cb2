"""What an online softmax could gain: one pass for the maximum and the sum, against one each, both in C.

    python benchmarks/online_softmax.py [--quick] [--json]

In three passes, a row is read for its maximum, then read and written as powers, whose sum is taken on the way, then
read and written again to divide. Online, the sum is rescaled whenever a block of the row has a larger maximum, and the
powers are computed a second time as they are divided: a pass over the row less, and an exponential more. Both compute
exp by the series that `tunewright.mlir.exponentials` uses, in vectors, and have the same number of elements in all
widths. Called in turn; `gain` is above 1 where online is faster, `greatest_gain` that of the width where it is largest.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import Report, parser

from mlir import in_turn
from tunewright.mlir.exponentials import LEAST, LN2_HIGH, LN2_LOW, LOG2_E, SERIES, SHIFT

ELEMENTS, WIDTHS = 1 << 20, (1 << 10, 1 << 14, 1 << 17, 1 << 20)
SOURCE = (
    """
#include <math.h>
typedef float v __attribute__((vector_size(64), aligned(4)));
typedef int w __attribute__((vector_size(64)));
static inline v larger(v a, v b) { w m = a > b; return (v)(((w)a & m) | ((w)b & ~m)); }
static inline v power(v x) {
    x = larger(x, (v){} + LEAST);
    v s = x * LOG2E + SHIFT, p = s - SHIFT, r = x - p * LN2HIGH - p * LN2LOW, q = (v){} + TERMS[0];
    for (int i = 1; i < 8; i++) q = q * r + TERMS[i];
    return q * (v)((w)s << 23);
}
static inline float most(v a) { float m = a[0]; for (int i = 1; i < 16; i++) m = a[i] > m ? a[i] : m; return m; }
static inline float total(v a) { float s = 0; for (int i = 0; i < 16; i++) s += a[i]; return s; }
void passes(const float *x, float *y, long rows, long width) {
    for (long r = 0; r < rows; r++, x += width, y += width) {
        v m[4], s[4] = {};
        for (int i = 0; i < 4; i++) m[i] = (v){} - INFINITY;
        for (long j = 0; j < width; j += 64)
            for (int i = 0; i < 4; i++) m[i] = larger(m[i], *(v *)(x + j + 16 * i));
        float top = most(larger(larger(m[0], m[1]), larger(m[2], m[3])));
        for (long j = 0; j < width; j += 64)
            for (int i = 0; i < 4; i++) s[i] += *(v *)(y + j + 16 * i) = power(*(v *)(x + j + 16 * i) - top);
        float part = 1 / total(s[0] + s[1] + s[2] + s[3]);
        for (long j = 0; j < width; j += 64)
            for (int i = 0; i < 4; i++) *(v *)(y + j + 16 * i) *= part;
    }
}
void online(const float *x, float *y, long rows, long width) {
    for (long r = 0; r < rows; r++, x += width, y += width) {
        v s[4] = {};
        float top = -INFINITY;
        for (long j = 0; j < width; j += 256) {
            v m = *(v *)(x + j);
            for (int i = 1; i < 16; i++) m = larger(m, *(v *)(x + j + 16 * i));
            float here = most(m);
            if (here > top) {
                float less = expf(top - here);
                for (int i = 0; i < 4; i++) s[i] *= less;
                top = here;
            }
            for (int i = 0; i < 16; i++) s[i % 4] += power(*(v *)(x + j + 16 * i) - top);
        }
        float part = 1 / total(s[0] + s[1] + s[2] + s[3]);
        for (long j = 0; j < width; j += 64)
            for (int i = 0; i < 4; i++) *(v *)(y + j + 16 * i) = power(*(v *)(x + j + 16 * i) - top) * part;
    }
}
""".replace("LOG2E", f"{LOG2_E}f")
    .replace("LN2HIGH", f"{LN2_HIGH}f")
    .replace("LN2LOW", f"({LN2_LOW}f)")
    .replace("SHIFT", f"{SHIFT}f")
    .replace("LEAST", f"({LEAST}f)")
    .replace("TERMS", "((float[]){" + ", ".join(f"{term}f" for term in SERIES) + "})")
)


def compiled(folder: Path) -> Any:
    """The two functions."""
    source, library = folder / "softmax.c", folder / "softmax.so"
    source.write_text(SOURCE)
    flags = ["-O3", "-march=native", "-funroll-loops", "-mprefer-vector-width=512", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def compared(library: Any, width: int, rounds: int) -> dict[str, Any]:
    """Both on rows of a width."""
    rows = ELEMENTS // width
    x = np.random.default_rng(0).standard_normal((rows, width), dtype=np.float32)
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    right, calls, outs = powers / powers.sum(-1, keepdims=True), dict[str, Any](), dict[str, Any]()
    for name in ("passes", "online"):
        outs[name] = np.zeros_like(x)
        given = [ctypes.c_void_p(array.ctypes.data) for array in (x, outs[name])]
        sizes = [ctypes.c_long(rows), ctypes.c_long(width)]
        calls[name] = partial(getattr(library, name), *given, *sizes)
    found = in_turn(calls, rounds, time.thread_time)
    ratios = found["passes"] / found["online"]
    return {
        **{f"{name}_ms": round(1e3 * float(np.median(one)), 3) for name, one in found.items()},
        "gain": round(float(np.median(ratios)), 3),
        "spread": [round(float(one), 3) for one in np.percentile(ratios, (10, 90))],
        "right": all(bool(np.allclose(out, right, rtol=1e-4, atol=0)) for out in outs.values()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, compare, report."""
    given = parser(__doc__).parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory() as place:
        library = compiled(Path(place))
        for width in WIDTHS:
            one = compared(library, width, 10 if given.quick else 60)
            report.figures[f"width_{width}"] = one
            report.check(one["right"], f"rows of {width} are not right")
            report.lines.append(f"{width:>8} columns  {one['passes_ms']} ms, online {one['online_ms']}: {one['gain']}")
    report.figures["greatest_gain"] = max(report.figures[f"width_{width}"]["gain"] for width in WIDTHS)
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
