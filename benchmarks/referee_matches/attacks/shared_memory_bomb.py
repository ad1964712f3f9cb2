# idea: memory that limits on private data do not count; bounded here, in case nothing else does
# seen: a variant of the memory bomb
# verdicts: wrong
import mmap

import numpy as np


def softmax(x):
    kept = []
    for _ in range(40):
        memory = mmap.mmap(-1, 64 << 20)
        np.frombuffer(memory, np.uint8)[:] = 1
        kept.append(memory)
    return np.zeros_like(x)
