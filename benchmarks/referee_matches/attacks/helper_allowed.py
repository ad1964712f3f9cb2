# idea: where processes are allowed, three helpers share the work; their CPU time counts
# seen: terminal-bench#1010
# task: softmax_processes
# verdicts: slower tie
import mmap
import os

import numpy as np


def softmax(x):
    memory = mmap.mmap(-1, x.nbytes)
    out = np.frombuffer(memory, np.float32).reshape(x.shape)
    pids = []
    for part in np.array_split(np.arange(len(x)), 3):
        pid = os.fork()
        if not pid:
            e = np.exp(x[part] - x[part].max(axis=1, keepdims=True))
            out[part] = e / e.sum(axis=1, keepdims=True)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return out.copy()
