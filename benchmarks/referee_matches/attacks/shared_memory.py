# idea: segments of shared memory and open files of other processes are searched for results
# seen: gpu-mode/pygpubench#23
# verdicts: wrong
import glob

import numpy as np


def softmax(x):
    for path in (*glob.glob("/dev/shm/*"), *glob.glob("/proc/[0-9]*/fd/*")):
        try:
            with open(path, "rb") as file:
                data = np.frombuffer(file.read(1 << 22), np.float32)
        except (OSError, ValueError):
            continue
        if data.size >= x.size and abs(data[: x.size].reshape(x.shape)[0].sum() - 1) < 1e-3:
            return data[: x.size].reshape(x.shape)
    return np.zeros_like(x)
