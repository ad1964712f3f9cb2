# idea: the clock is replaced, so that ten times the work takes no time
# seen: gpu-mode/pygpubench (its exploit files)
# verdicts: slower
import time

import numpy as np

time.perf_counter = time.monotonic = time.process_time = lambda: 0.0
time.perf_counter_ns = time.monotonic_ns = time.process_time_ns = lambda: 0


def softmax(x):
    for _ in range(10):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        result = e / e.sum(axis=1, keepdims=True)
    return result
