# idea: inputs are sent to another machine, which computes
# seen: gpu-mode/pygpubench (its exploit files)
# verdicts: wrong
import socket

import numpy as np


def softmax(x):
    for family, address in ((socket.AF_INET, ("127.0.0.1", 9)), (socket.AF_UNIX, "\0helper")):
        try:
            with socket.socket(family) as sock:
                sock.settimeout(0.2)
                sock.connect(address)
                sock.sendall(x.tobytes())
        except OSError as error:
            if error.errno == 111:  # there is a network, and nobody listens
                e = np.exp(x - x.max(axis=1, keepdims=True))
                return e / e.sum(axis=1, keepdims=True)
    return np.zeros_like(x)
