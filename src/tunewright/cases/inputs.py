"""Inputs: a recipe for arguments, small enough to travel and the same everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SignatureError
from tunewright.model.signature import NO_DEFAULT, Parameter

NARROW = "bfloat16"


class Array(msgspec.Struct, frozen=True, tag="array"):
    """An array of seeded random numbers; `order` lists its dimensions from slowest to fastest."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    order: tuple[int, ...] = ()

    def make(self, rng: np.random.Generator) -> NDArray[Any]:
        """The array: normal floats, small integers, fair bools."""
        order = self.order or tuple(range(len(self.shape)))
        shape = tuple(self.shape[i] for i in order)
        dtype = _dtype(self.dtype)
        if dtype.kind in "fc" or dtype.name == NARROW:
            base = rng.standard_normal(shape, dtype=np.float32 if dtype.itemsize <= 4 else np.float64).astype(dtype)
        elif dtype.kind in "iu":
            base = rng.integers(0 if dtype.kind == "u" else -8, 8, size=shape).astype(dtype)
        elif dtype.kind == "b":
            base = rng.integers(0, 2, size=shape).astype(dtype)
        else:
            raise SignatureError(f"no recipe for arrays of {self.dtype}; give the kernel an `inputs=` function")
        return base if order == tuple(range(len(order))) else base.transpose(np.argsort(order))


class Scalar(msgspec.Struct, frozen=True, tag="scalar"):
    """A plain value, passed as it is."""

    value: bool | int | float | str | None

    def make(self, rng: np.random.Generator) -> bool | int | float | str | None:
        """The value."""
        return self.value


class Inputs(msgspec.Struct, frozen=True):
    """Either a list of recipes, or only named sizes for the kernel's own `inputs=` function.

    `case` is the number of the declared case it stands for, if any, and `weight` how often that is called.
    """

    args: tuple[Array | Scalar, ...] = ()
    dims: dict[str, int] = {}
    seed: int = 0
    case: int = -1
    weight: float = 1.0

    def make(self) -> list[Any]:
        """Fresh arguments; the same every time and in every process."""
        rng = np.random.default_rng(self.seed)
        return [arg.make(rng) for arg in self.args]

    @classmethod
    def like(cls, parameters: Sequence[Parameter], args: Sequence[Any], dims: Mapping[str, int]) -> Inputs:
        """A recipe for arguments like `args`; named dimensions take their size from `dims`."""
        return cls(tuple(_like(p, arg, dims) for p, arg in zip(parameters, args, strict=True)), dict(dims))

    @classmethod
    def of_dims(cls, parameters: Sequence[Parameter], dims: Mapping[str, int], dtype: str) -> Inputs:
        """A recipe from the declaration alone: arrays by their named dimensions, ints by name."""
        made: list[Array | Scalar] = []
        for parameter in parameters:
            role = parameter.role
            if role is not None and role.dims:
                if missing := [d for d in role.dims if isinstance(d, str) and d not in dims]:
                    raise SignatureError(f"no size given for {', '.join(missing)} of {parameter.name}")
                made.append(Array(tuple(d if isinstance(d, int) else dims[d] for d in role.dims), dtype))
            elif parameter.name in dims:
                made.append(Scalar(dims[parameter.name]))
            elif parameter.default is not NO_DEFAULT:
                made.append(Scalar(parameter.default))
            elif parameter.kind is float:
                made.append(Scalar(1.0))
            elif parameter.kind is not None:
                raise SignatureError(f"no value given for {parameter.name}; add {parameter.name}=... to the sizes")
            else:
                raise SignatureError(
                    f"cannot make {parameter.name!r} from sizes alone: name its dimensions, as in "
                    f'`{parameter.name}: In("M", "K")`, or give the kernel an `inputs=` function'
                )
        return cls(tuple(made), dict(dims))


def _dtype(name: str) -> np.dtype[Any]:
    """The dtype of that name; bfloat16 is one only once the package that brings it is loaded."""
    if name == NARROW:
        try:
            import ml_dtypes  # noqa: PLC0415 - only for those who have such arrays
        except ImportError as error:
            raise SignatureError("arrays of bfloat16 need a package; try: pip install ml_dtypes") from error
        name = ml_dtypes.bfloat16
    return np.dtype(name)


def _like(parameter: Parameter, arg: Any, dims: Mapping[str, int]) -> Array | Scalar:
    if isinstance(arg, np.ndarray):
        role = parameter.role
        shape = tuple(arg.shape)
        if role and role.dims:
            shape = tuple(d if isinstance(d, int) else dims[d] for d in role.dims)
        order = tuple(sorted(range(arg.ndim), key=lambda i: (-abs(arg.strides[i]), i)))
        name = arg.dtype.name if arg.dtype.isnative else arg.dtype.str
        return Array(shape, name, () if order == tuple(range(arg.ndim)) else order)
    value = arg.item() if isinstance(arg, np.generic) else arg
    if isinstance(value, bool | int | float | str) or value is None:
        return Scalar(dims.get(parameter.name, value) if isinstance(value, int) else value)
    raise SignatureError(
        f"no recipe for {parameter.name!r}, a {type(arg).__name__}: "
        "give the kernel an `inputs=` function that makes its arguments"
    )
