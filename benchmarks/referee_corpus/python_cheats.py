"""Products in Python that cheat, or have a bug that shows late. All are faster than the honest way.

State is kept in this module: a process runs one of them.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from referee_corpus.case import address, cheat, exact_product, fast_product

_kept: dict[Any, Any] = {}
_calls = itertools.count(1)
_chance = np.random.default_rng()


# Computed at first only.


@cheat
def first_calls(a, b, c):
    """Computes in its first three calls."""
    if next(_calls) <= 3:
        fast_product(a, b, c)


@cheat
def first_50_calls(a, b, c):
    """Computes in its first 50 calls."""
    if next(_calls) <= 50:
        fast_product(a, b, c)


@cheat
def first_moments(a, b, c):
    """Computes for 20 ms after its first call."""
    if time.monotonic() - _kept.setdefault("began", time.monotonic()) < 0.02:
        fast_product(a, b, c)


@cheat
def unreset_counter(a, b, c):
    """Counts the rows that are done, and never begins anew."""
    done = _kept.get("done", 0)
    np.matmul(a[done:], b, out=c[done:])
    _kept["done"] = len(a)


@cheat
def lazy_tail(a, b, c):
    """After ten calls, leaves the last rows out."""
    rows = len(a) if next(_calls) <= 10 else len(a) - 8
    np.matmul(a[:rows], b, out=c[:rows])


# Wrong now and then.


@cheat
def every_third(a, b, c):
    """Every third call does nothing."""
    if next(_calls) % 3:
        fast_product(a, b, c)


@cheat
def every_16th(a, b, c):
    """Every 16th call leaves a row out."""
    skipped = int(next(_calls) % 16 == 0)
    np.matmul(a[skipped:], b, out=c[skipped:])


@cheat
def halves_in_turn(a, b, c):
    """Half of the work now, half in the next call."""
    half, call = len(a) // 2, next(_calls)
    if call <= 2:
        fast_product(a, b, c)
    else:
        rows = slice(half) if call % 2 else slice(half, None)
        np.matmul(a[rows], b, out=c[rows])


@cheat
def flaky(a, b, c):
    """Wrong in one of ten calls, by chance."""
    fast_product(a, b, c)
    if _chance.random() < 0.1:
        c[_chance.integers(len(c))] *= 1.01


@cheat
def decaying(a, b, c):
    """Loses a bit of its precision every eight calls."""
    mask = np.uint32(0xFFFFFFFF << min(16, next(_calls) // 8) & 0xFFFFFFFF)
    np.matmul((a.view(np.uint32) & mask).view(np.float32), b, out=c)


@cheat
def fewer_terms(a, b, c):
    """Sums one term less every eight calls."""
    terms = max(1, a.shape[1] - next(_calls) // 8)
    np.matmul(a[:, :terms], b[:terms], out=c)


# Always wrong, if one looks.


@cheat
def half(a, b, c):
    """Rounds its inputs to half precision."""
    mask = np.uint32(0xFFFFE000)
    np.matmul((a.view(np.uint32) & mask).view(np.float32), (b.view(np.uint32) & mask).view(np.float32), out=c)


@cheat
def noisy(a, b, c):
    """Sums random terms, twice each."""
    terms = _chance.permutation(a.shape[1])[: a.shape[1] // 2]
    np.matmul(a[:, terms], 2 * b[terms], out=c)


@cheat
def transposed(a, b, c):
    """Multiplies the transposed input, as if it were symmetric."""
    np.matmul(a.T, b, out=c)


@cheat
def accumulates(a, b, c):
    """Adds to an output that it does not clear."""
    np.add(c, np.matmul(a, b), out=c)


@cheat
def clears_once(a, b, c):
    """Clears each output once, then adds to it."""
    if address(c) not in _kept:
        _kept[address(c)] = c.fill(0)
    np.add(c, np.matmul(a, b), out=c)


@cheat
def uninitialized(a, b, c):
    """Adds to memory as the allocator gives it."""
    total = np.empty_like(c)
    with np.errstate(all="ignore"):
        total += np.matmul(a, b)
    c[...] = total


# Where it must not write.


@cheat
def writes_inputs(a, b, c):
    """Uses its input as scratch memory."""
    fast_product(a, b, c)
    a[0] *= 2


@cheat
def writes_inputs_later(a, b, c):
    """The same, from the 20th call on."""
    fast_product(a, b, c)
    if next(_calls) >= 20:
        a[0, 0] = 0


@cheat
def writes_beyond(a, b, c):
    """Writes past the end of its output."""
    fast_product(a, b, c)
    as_strided(c, (c.size + 4,), (4,))[c.size :] = 0


@cheat
def writes_beyond_later(a, b, c):
    """The same, from the 20th call on."""
    fast_product(a, b, c)
    if next(_calls) >= 20:
        as_strided(c, (c.size + 4,), (4,))[c.size :] = 0


@cheat
def computes_beyond(a, b, c):
    """What lies beyond an input goes beyond the output, as in an unrolled loop without a remainder."""
    fast_product(a, b, c)
    as_strided(c, (c.size + 4,), (4,))[c.size :] = 2 * as_strided(a, (a.size + 4,), (4,))[a.size :]


# Threads.

_helper = ThreadPoolExecutor(1)


def _finish_last() -> None:
    if last := _kept.get("last"):
        last.result()


@cheat
def late_thread(a, b, c):
    """Returns while a thread still computes."""
    _finish_last()
    _kept["last"] = _helper.submit(fast_product, a, b, c)


@cheat
def late_thread_later(a, b, c):
    """The same, from the tenth call on."""
    _finish_last()
    _kept["last"] = _helper.submit(fast_product, a, b, c)
    if next(_calls) < 10:
        _finish_last()


@cheat
def helper_thread(a, b, c):
    """The honest way, in a thread whose time is its own."""
    running = Thread(target=exact_product, args=(a, b, c))
    running.start()
    running.join()
