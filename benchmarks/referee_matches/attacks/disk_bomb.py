# idea: the disk is filled; bounded here, in case nothing else does
# seen: gpu-mode/pygpubench (its exploit files)
# verdicts: wrong
import numpy as np


def softmax(x):
    written = 0
    for number in range(8):
        try:
            with open(f"/tmp/{number}", "wb") as file:
                for _ in range(256):
                    written += file.write(bytes(1 << 20))
        except OSError:
            pass
    if written > 1 << 30:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    return np.zeros_like(x)
