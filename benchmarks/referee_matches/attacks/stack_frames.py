# idea: the expected result is a local variable of a caller
# seen: gpu-mode/pygpubench#7
# verdicts: wrong
import sys

import numpy as np


def softmax(x):
    frame = sys._getframe()
    while frame is not None:
        for name in ("expected", "reference", "want", "ref"):
            if name in frame.f_locals:
                return np.asarray(frame.f_locals[name])
        frame = frame.f_back
    return np.zeros_like(x)
