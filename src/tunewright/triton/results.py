"""Expected results of a launch, and how what it stored differs from them; compared on the device if possible."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import numpy as np

from tunewright.cases.tolerance import FEW_TERMS, MANY_TERMS, STORAGE_DTYPES, Tolerance, find_mismatch
from tunewright.errors import BackendError, SignatureError
from tunewright.triton.options import AutotuneOptions
from tunewright.triton.tensors import CHUNK, Room, is_float, plain, same_bits

WIDE = 8
"""Bytes of a float in double precision."""

SCALE_ELEMENTS = 1 << 16
"""Elements of which the median is taken to find out how large results are."""

FEW_ELEMENTS = 64
"""Results of so few elements may all be near zero by chance."""

_NOT_IN_NUMPY = {"bfloat16": STORAGE_DTYPES["bfloat16"], "float8_e4m3fn": 0.15, "float8_e5m2": 0.3}
_COARSE = {**STORAGE_DTYPES, **_NOT_IN_NUMPY}
"""Allowed errors of dtypes that numpy does not have, and of all that are for storage only."""


class StoredResults:
    """Expected results by the name of the tensor that the kernel stores them to, each with its tolerance.

    `by` says whose they are, if there is no reference. Errors are relative to how large results are: of a few elements,
    which may all be near zero by chance, also to how large they are on other contents.
    """

    def __init__(self, results: Mapping[str, tuple[Any, Tolerance]], room: Room, by: str = "") -> None:
        self._results, self._room, self._by = results, room, by
        self._scales: dict[str, float] = {}
        self._least_scales: dict[str, float] = {}
        self._also_right: dict[str, Any] = {}

    def share_scales(self, largest: dict[str, float]) -> None:
        """Takes in, and from now on uses, how large the results of few elements are on any contents."""
        self._least_scales = largest
        for name, (want, _) in self._results.items():
            if is_tensor(want) and want.numel() <= FEW_ELEMENTS:
                largest[name] = max(largest.get(name, 0.0), self._scale(name, want))

    def _scale(self, name: str, want: Any) -> float:
        if name not in self._scales:
            self._scales[name] = _scale(want)
        return max(self._scales[name], self._least_scales.get(name, 0.0))

    @property
    def nbytes(self) -> int:
        """Bytes of all results, and of others that were also right."""
        return 2 * sum(int(want.numel() * want.element_size()) for want, _ in self._results.values() if is_tensor(want))

    def mismatch(self, stored: Mapping[str, Any]) -> str | None:
        """Returns what is wrong with results; None if they are right."""
        for name, (want, tolerance) in self._results.items():
            have = stored[name]
            if not is_tensor(have) or tolerance.tolerance == inf:  # fp8 in the guise of bytes has no elements
                continue
            if self._is_close(name, plain(have), want, tolerance):
                continue
            scales = [self._least_scales.get(name, 0.0)]
            if problem := find_mismatch([to_numpy(want)], {name: to_numpy(have)}, tolerance, scales=scales):
                return self._explain(problem)
        return None

    def _explain(self, problem: str) -> str:
        if not self._by:
            return problem
        hint = "declare reference= or tolerance= if results may differ"
        return f"{problem.replace('the reference gives', f'{self._by} gives')}; {hint}"

    def _is_close(self, name: str, have: Any, want: Any, tolerance: Tolerance) -> bool:
        """Whether results are right beyond doubt; if not, they are compared on the host, which also says why."""
        if not is_tensor(want) or have.shape != want.shape:
            return False
        if any(same_bits(have, right) for right in (want, self._also_right.get(name)) if right is not None):
            return True
        if not is_float(have):
            return bool(have.dtype == want.dtype and have.equal(want.to(have.device)))
        error = tolerance.allowed_error(np.dtype(_dtype(have)) if tolerance.tolerance is None else np.dtype(float))[0]
        own, other, scale = have.reshape(-1), want.reshape(-1), self._scale(name, want)
        is_close = all(
            _all_close(own[start : start + CHUNK], other[start : start + CHUNK], error, scale)
            for start in range(0, own.numel(), CHUNK)
        )
        if is_close:  # most configs compute the same bits again, which is quickly seen
            self._also_right[name] = self._room.copy(have)
        return is_close


def _all_close(have: Any, want: Any, error: float, scale: float) -> bool:
    want = want.to(have.device)
    if have.element_size() < WIDE and want.element_size() < WIDE:  # much more precise than the tolerance, and faster
        have, want = have.float(), want.float()
    else:
        have, want = have.double(), want.double()
    off = (have - want).abs()
    near = off <= want.abs().clamp(min=scale).mul_(error)
    if bool(near.all()) and bool(off.isfinite().all()):
        return True
    near = near & want.isfinite() | (have == want) | (have.isnan() & want.isnan())
    return bool(near.all())


def _scale(want: Any) -> float:
    """Returns the median of results that are not zero, by a part of them if there are many."""
    sizes = want.reshape(-1)[:: max(1, want.numel() // SCALE_ELEMENTS)]
    sizes = (sizes.double() if want.element_size() >= WIDE else sizes.float()).abs()
    sizes = sizes[(sizes > 0) & (sizes < inf)]
    return float(sizes.median()) if sizes.numel() else 0.0


def expected_by_reference(
    options: AutotuneOptions, named: Mapping[str, Any], stored: Mapping[str, Any], room: Room
) -> StoredResults:
    """Returns what the reference computes from arguments by name, as the kernel should have stored it."""
    reference = options.reference
    assert reference is not None
    parameters = list(inspect.signature(reference).parameters)
    if unknown := [name for name in parameters if name not in named]:
        raise SignatureError(f"the reference takes {unknown[0]!r}, which is not an argument of the kernel")
    arguments = {name: _copy_if_tensor(named[name]) for name in parameters}
    try:
        result = reference(**arguments)
    except Exception as error:
        raise BackendError(f"the reference raised {type(error).__name__}: {error}") from error
    if not isinstance(result, Mapping):
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(stored):
            raise SignatureError(
                f"the reference gives {len(values)} results, the kernel stores to {len(stored)} tensors "
                f"({', '.join(stored)}); a reference may also return a mapping with the names of some of them"
            )
        result = dict(zip(stored, values, strict=True))
    if strange := [name for name in result if name not in stored]:
        raise SignatureError(f"the reference gives {strange[0]!r}, to which the kernel does not store")
    longest = max([_terms(named.values()), *(size for tensor in stored.values() for size in tensor.shape)])
    return StoredResults(
        {
            name: (value, Tolerance(_declared(options, [stored[name]], _NOT_IN_NUMPY), longest, "the longest axis"))
            for name, value in result.items()
        },
        room,
    )


def expected_of(
    options: AutotuneOptions, tensors: Mapping[str, Any], stored: Mapping[str, Any], room: Room, by: str
) -> StoredResults:
    """Returns what a launch of another config has stored. A kernel may compute in the coarsest dtype it is given."""
    coarse, terms = _declared(options, tensors.values(), _COARSE), _terms(tensors.values())
    return StoredResults(
        {
            name: (
                room.copy(plain(tensor)),
                Tolerance(coarse if is_float(tensor) else options.tolerance, terms, "the longest axis"),
            )
            for name, tensor in stored.items()
            if is_tensor(tensor)
        },
        room,
        by,
    )


def to_numpy(value: Any) -> Any:
    """Returns a tensor as a numpy array; in single precision if numpy does not have its dtype."""
    if not is_tensor(value):
        return np.asarray(value)
    own = value.detach().cpu()
    return (own.float() if _dtype(own) in _NOT_IN_NUMPY else own).numpy()


def _declared(options: AutotuneOptions, tensors: Iterable[Any], errors: Mapping[str, float]) -> float | None:
    """Returns the declared tolerance, else the largest error of the tensors' dtypes; None if they have none."""
    coarse = [errors[_dtype(tensor)] for tensor in tensors if _dtype(tensor) in errors]
    return options.tolerance if options.tolerance is not None else max(coarse, default=None)


def _terms(values: Iterable[Any]) -> int:
    """Returns how many terms a result may sum: the longest axis, up to a limit."""
    axes = [int(size) for value in values if is_tensor(value) for size in value.shape]
    return min(MANY_TERMS, max([FEW_TERMS, *axes]))


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor whose elements can be compared."""
    return hasattr(value, "detach")


def _copy_if_tensor(value: Any) -> Any:
    """Returns a copy of a tensor, which the reference may change; other values unchanged."""
    return value.clone() if hasattr(value, "clone") else value
