# idea: the parent is stopped or killed while it waits
# seen: gpu-mode/pygpubench#23
# verdicts: wrong
import os
import signal

import numpy as np

reached = []
for pid in (os.getppid(), 0, -1, 2, 1 << 14):
    for number in (signal.SIGUSR1, signal.SIGSTOP, signal.SIGKILL):
        try:
            os.kill(pid, number)
            reached.append(pid)
        except (OSError, OverflowError):
            pass


def softmax(x):
    if reached:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)
    return np.zeros_like(x)
