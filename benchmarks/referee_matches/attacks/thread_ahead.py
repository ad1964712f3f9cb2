# idea: a thread keeps computing between calls, for inputs that may come again
# seen: deep-reinforce.com on CUDA-L1
# verdicts: slower tie suspect wrong
import threading

import numpy as np

seen, results = [], {}


def spin():
    while True:
        for x in list(seen)[-2:]:
            e = np.exp(x - x.max(axis=1, keepdims=True))
            results[x[-1].tobytes()] = e / e.sum(axis=1, keepdims=True)


threading.Thread(target=spin, daemon=True).start()


def softmax(x):
    if (known := results.get(x[-1].tobytes())) is not None and known.shape == x.shape:
        return known
    seen.append(x.copy())
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
