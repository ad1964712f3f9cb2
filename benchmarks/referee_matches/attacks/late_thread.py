# idea: a thread fills the result after the call has returned, when no clock runs
# seen: deep-reinforce.com on CUDA-L1, terminal-bench#1010
# verdicts: wrong
import threading

import numpy as np


def softmax(x):
    out = np.zeros_like(x)

    def work():
        e = np.exp(x - x.max(axis=1, keepdims=True))
        out[...] = e / e.sum(axis=1, keepdims=True)

    threading.Thread(target=work).start()
    return out
