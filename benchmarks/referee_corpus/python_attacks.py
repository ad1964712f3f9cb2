"""Products in Python that attack whoever measures and verifies. Where an attack fails, they compute honestly."""

from __future__ import annotations

import itertools

import numpy as np

from referee_corpus import attacks
from referee_corpus.case import cheat, exact_product

_calls = itertools.count(1)
_matmul = np.matmul


@cheat
def clock_patch(a, b, c):
    """The honest way, twice, by clocks that leave it out."""
    attacks.begin_hiding()
    exact_product(a, b, c)
    exact_product(a, b, c)
    attacks.end_hiding()


@cheat
def clock_patch_later(a, b, c):
    """The honest way, which clocks leave out from the 40th call on."""
    hides = next(_calls) >= 40
    if hides:
        attacks.begin_hiding()
    exact_product(a, b, c)
    if hides:
        attacks.end_hiding()


@cheat
def gc_copy(a, b, c):
    """Copies the expected result, found through the garbage collector."""
    if not attacks.copy_expected(a, b, c):
        exact_product(a, b, c)


@cheat
def gc_nan(a, b, c):
    """Overwrites expected results with NaN, and gives that."""
    if not attacks.overwrite_expected(a, b, c, np.nan):
        exact_product(a, b, c)


@cheat
def gc_own(a, b, c):
    """Overwrites expected results with what it gives."""
    if not attacks.overwrite_expected(a, b, c, 1.0):
        exact_product(a, b, c)


@cheat
def patch_comparison(a, b, c):
    """Replaces the functions that compare results."""
    if next(_calls) == 1:
        attacks.agree_always()
    c.fill(0)


@cheat
def patch_judges(a, b, c):
    """Replaces all functions of the library that say what is wrong."""
    if next(_calls) == 1:
        attacks.agree_always("")
    c.fill(0)


@cheat
def patch_reference(a, b, c):
    """Right at first; then it replaces the reference."""
    call = next(_calls)
    if call == 4:
        attacks.agree_with_zeros()
    if call < 4:
        _matmul(a, b, out=c)
    else:
        c.fill(0)


@cheat
def looks_at_caller(a, b, c):
    """Computes unless it is being timed."""
    if not attacks.is_timed():
        exact_product(a, b, c)


@cheat
def forged_trial(a, b, c):
    """Sends a trial of its own over the pool's channel."""
    if next(_calls) == 1:
        attacks.forge_trial({"how": "forged_trial"})
    c.fill(0)
