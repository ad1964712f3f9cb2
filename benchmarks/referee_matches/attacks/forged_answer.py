# idea: answers are written to the pipe before there is a request
# seen: gpu-mode/pygpubench#15, #23
# verdicts: suspect
import os

import numpy as np


def softmax(x):
    for _ in range(20):
        try:
            os.write(3, bytes(16) + b"\x01\x00\x00")
        except OSError:
            break
    return np.zeros_like(x)
