# idea: all signals are blocked, so that a late thread cannot be stopped
# seen: a variant of late threads, deep-reinforce.com on CUDA-L1
# verdicts: wrong
import signal
import threading

import numpy as np

signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))


def softmax(x):
    out = np.zeros_like(x)

    def work():
        e = np.exp(x - x.max(axis=1, keepdims=True))
        out[...] = e / e.sum(axis=1, keepdims=True)

    threading.Thread(target=work).start()
    return out
