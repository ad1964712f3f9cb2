# idea: skips one call in five at random, hoping that it is not one that is checked
# seen: a variant of telling warm-up from measurement, gpu-mode/pygpubench#7
# verdicts: wrong
import random

import numpy as np


def softmax(x):
    if random.random() < 0.2:
        return np.zeros_like(x)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
