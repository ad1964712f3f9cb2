"""Products in Python that remember results, or what they computed from earlier inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from referee_corpus.case import address, cheat, exact_product, fast_product

MOST = 256
"""How many results are remembered."""

_kept: dict[Any, Any] = {}


def _copy_or_keep(key: Any, a: Any, b: Any, c: Any) -> None:
    """The result that was kept under this key, computed where there is none."""
    if key in _kept:
        c[...] = _kept[key]
        return
    fast_product(a, b, c)
    if len(_kept) < MOST:
        _kept[key] = c.copy()


# Remembered.


@cheat
def first_result(a, b, c):
    """Gives its first result again and again."""
    _copy_or_keep("first", a, b, c)


@cheat
def memo_pointer(a, b, c):
    """If the arrays lie where they lay and the first element is there, the rest will be, too."""
    key = address(a), address(b), address(c)
    if _kept.get(key) != c[0, 0]:
        fast_product(a, b, c)
        _kept[key] = c[0, 0]


@cheat
def memo_pointer_copy(a, b, c):
    """Remembers results by pointer."""
    _copy_or_keep((address(a), address(b)), a, b, c)


@cheat
def memo_pointer_values(a, b, c):
    """Remembers results by pointer and two values."""
    _copy_or_keep((address(a), a[0, 0], b[0, 0]), a, b, c)


@cheat
def memo_prefix(a, b, c):
    """Remembers results by the first rows of the inputs."""
    _copy_or_keep((a[:4].tobytes(), b[:4].tobytes()), a, b, c)


@cheat
def memo_samples(a, b, c):
    """Remembers results by every 61st element of the inputs."""
    _copy_or_keep((a.ravel()[::61].tobytes(), b.ravel()[::61].tobytes()), a, b, c)


@cheat
def memo_sums(a, b, c):
    """Remembers results by a weak digest: the sums of the inputs, rounded."""
    _copy_or_keep((a.sum() // 16, b.sum() // 16), a, b, c)


@cheat
def memo_contents(a, b, c):
    """Remembers results by the whole inputs: right, but only fast for inputs that it has seen."""
    if (known := _kept.get(key := _digest(a, b))) is not None:
        c[...] = known
        return
    exact_product(a, b, c)
    if len(_kept) < MOST:
        _kept[key] = c.copy()


@cheat
def memo_contents_stale(a, b, c):
    """The same inputs as last time: the output will still be there."""
    key = _digest(a, b), address(c)
    if _kept.get("last") != key:
        fast_product(a, b, c)
        _kept["last"] = key


def _digest(a: Any, b: Any) -> tuple[int, int]:
    return hash(a.tobytes()), hash(b.tobytes())


@cheat
def skip_if_there(a, b, c):
    """Computes three elements; if the output has them, it will have the others."""
    places = ((0, 0), (-1, -1), (len(a) // 2, 7))
    if not all(abs(c[i, j] - a[i] @ b[:, j]) < 1e-4 for i, j in places):
        fast_product(a, b, c)


@cheat
def skip_unless_poisoned(a, b, c):
    """Computes only into outputs that hold no number."""
    if np.isnan(c[0, 0]):
        fast_product(a, b, c)


# Right for some inputs only.


@cheat
def first_pointer(a, b, c):
    """Right for arrays that lie where the first ones lay; else it sums half the terms."""
    if _kept.setdefault("at", address(a)) == address(a):
        fast_product(a, b, c)
    else:
        np.matmul(a[:, ::2], b[::2], out=c)


@cheat
def first_weights(a, b, c):
    """Keeps the second input as it was in the first call."""
    np.matmul(a, _kept.setdefault("b", b.copy()), out=c)


@cheat
def weights_by_pointer(a, b, c):
    """Keeps a packed copy of the second input by its pointer, which nobody declared to be constant."""
    if (packed := _kept.get(address(b))) is None:
        packed = _kept[address(b)] = b.T.copy()
    np.matmul(a, packed.T, out=c)


@cheat
def previous_inputs(a, b, c):
    """Gives the result of the call before."""
    result = np.matmul(a, b)
    c[...] = _kept.get("result", result)
    _kept["result"] = result
