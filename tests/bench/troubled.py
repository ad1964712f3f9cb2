"""Implementations of `reduce` that misbehave, each in its way, beside two that do not."""

import os
import signal
import time

import numpy as np

from tunewright.operators import Implementation, Support
from tunewright.operators.standard import REDUCE, TRANSPOSE

kept = []


def good(x, out):
    np.sum(x, axis=-1, out=out)


def also_good(x, out):
    np.einsum("ij->i", x, out=out)


def crashing(x, out):
    os.kill(os.getpid(), signal.SIGSEGV)


def hanging(x, out):
    while True:
        time.sleep(0.01)


def leaking(x, out):
    kept.append(np.ones(1 << 17))
    good(x, out)


def seeping(x, out):
    """Too slow for a look before the rounds, and leaves 24 MiB behind each time."""
    time.sleep(0.11)
    kept.append(np.ones(3 << 20))
    good(x, out)


def hogging(x, out):
    out[:] = np.ones(1 << 30)[: len(out)]


def wrong(x, out):
    out[:] = 1


def raising(x, out):
    raise RuntimeError("no such instruction")


def late(x, out):
    """Works when it is tried, and crashes in a later round."""
    kept.append(None)
    if len(kept) > 2000:
        crashing(x, out)
    good(x, out)


EVERY = (good, crashing, hanging, leaking, seeping, hogging, wrong, raising, late, also_good)


def implementations():
    picky = Implementation("picky", REDUCE, good, support=Support(("float64",)))
    turned = Implementation("also_good", TRANSPOSE, lambda x, out: np.copyto(out, x.T))
    return [*(Implementation(run.__name__, REDUCE, run) for run in EVERY), picky, turned]
