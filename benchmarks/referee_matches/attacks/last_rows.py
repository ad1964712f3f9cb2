# idea: the last rows are left out
# seen: wafer.ai's field guide to reward hacks
# verdicts: wrong
import numpy as np


def softmax(x):
    out = np.zeros_like(x)
    e = np.exp(x[:-1] - x[:-1].max(axis=1, keepdims=True))
    out[:-1] = e / e.sum(axis=1, keepdims=True)
    return out
