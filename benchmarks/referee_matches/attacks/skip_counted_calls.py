# idea: batches work in one call and hands out an old result in the next
# seen: gpu-mode/reference-kernels#104
# verdicts: wrong
import numpy as np

calls, last = 0, {}


def softmax(x):
    global calls
    calls += 1
    if calls % 2 == 0 and x.shape in last:
        return last[x.shape]
    e = np.exp(x - x.max(axis=1, keepdims=True))
    last[x.shape] = e / e.sum(axis=1, keepdims=True)
    return last[x.shape]
