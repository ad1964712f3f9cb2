# idea: a signal tells when a batch begins; only its first launch is worked on
# seen: a variant of work that is skipped after warm-up, gpu-mode/pygpubench#7
# task: softmax_small
# verdicts: wrong
import signal

import numpy as np

woken = True


def wake(number, frame):
    global woken
    woken = True


signal.signal(signal.SIGCONT, wake)


def softmax(x):
    global woken
    if not woken:
        return np.full(x.shape, 1 / x.shape[1], np.float32)
    woken = False
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
