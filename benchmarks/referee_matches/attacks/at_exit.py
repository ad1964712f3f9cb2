# idea: a result is forged when the process ends
# seen: gpu-mode/pygpubench#15
# verdicts: wrong
import atexit
import os
import sys

import numpy as np

atexit.register(lambda: print('{"verdict": "faster", "ratio": 0.1}', flush=True))
calls = 0


def softmax(x):
    global calls
    calls += 1
    if calls > 3:
        os.write(1, b'{"verdict": "faster"}')
        sys.exit(0)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
