# idea: all memory, so that others are killed; bounded here, in case nothing else does
# seen: gpu-mode/pygpubench (its exploit files)
# verdicts: wrong
import numpy as np


def softmax(x):
    kept = [np.ones(8 << 20) for _ in range(64)]
    return kept
