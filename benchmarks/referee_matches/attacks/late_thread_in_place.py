# idea: a thread writes to the memory of the result after "done" was said in its name
# seen: deep-reinforce.com on CUDA-L1
# verdicts: wrong suspect
import os
import struct
import sys
import threading
import time

import numpy as np


def softmax(x):
    frame = sys._getframe()
    while frame is not None and "body" not in frame.f_locals:
        frame = frame.f_back
    caller = sys._getframe(1)
    place = caller.f_locals["results"][0]

    def work():
        e = np.exp(x - x.max(axis=1, keepdims=True))
        time.sleep(0.001)
        place[...] = e / e.sum(axis=1, keepdims=True)

    threading.Thread(target=work).start()
    os.write(3, struct.pack("<16sBH", frame.f_locals["body"][:16], 1, 0))
    while True:
        time.sleep(1)
