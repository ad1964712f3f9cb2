"""A program with a kernel: blurs an image of a given size, and prints the counts of its session."""

import json
import sys

import numpy as np

import tunewright as tw

space = tw.Space(
    tw.Knob("BLOCK", [2, 8, 32, 128, 512]),
    tw.Knob("vectors", ["-fno-tree-vectorize", "-mprefer-vector-width=256", "-mprefer-vector-width=512"]),
)


@tw.tune(space, backend=tw.C("blur.c", flags="-O3 -march=native -DWINDOW=16"), dtype="float32")
def blur(image: tw.In("ROWS", "COLS"), out: tw.Out("ROWS", "COLS")):
    """The kernel. Production needs its source too, to check that it is the one that was tuned."""


if __name__ == "__main__":
    rows, cols = (int(text) for text in sys.argv[1].split("x"))
    out = np.zeros((rows, cols), dtype="float32")
    for _ in range(20):
        blur(np.ones((rows, cols), dtype="float32"), out)
    print(json.dumps({"mean": round(float(out[:, : cols - 16].mean()), 4), **tw.current_session().counts}))
