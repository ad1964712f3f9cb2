# idea: every request is answered with its own number by the candidate, which then never returns to the harness
# seen: gpu-mode/pygpubench#23
# verdicts: wrong suspect
import os
import struct
import sys


def softmax(x):
    frame = sys._getframe()
    while frame is not None and "body" not in frame.f_locals:
        frame = frame.f_back
    nonce = frame.f_locals["body"][:16] if frame else bytes(16)
    while True:
        os.write(3, struct.pack("<16sBH", nonce, 1, 0))
        length = int.from_bytes(os.read(3, 4), "little")
        nonce = os.read(3, length)[:16]
