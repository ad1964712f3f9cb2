"""Inputs: serializable recipes for arguments, which give the same values in every process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SignatureError
from tunewright.model.signature import NO_DEFAULT, Parameter

BFLOAT16 = "bfloat16"


class Array(msgspec.Struct, frozen=True, tag="array"):
    """An array of seeded random numbers; `order` lists its dimensions from slowest to fastest."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    order: tuple[int, ...] = ()

    def make(self, rng: np.random.Generator) -> NDArray[Any]:
        """Returns the array: normal floats, small integers or random bools."""
        order = self.order or tuple(range(len(self.shape)))
        shape = tuple(self.shape[i] for i in order)
        dtype = _dtype(self.dtype)
        if dtype.kind in "fc" or dtype.name == BFLOAT16:
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
    """Recipes for arguments, or only named sizes for the kernel's own `inputs=` function.

    `case` is the number of the declared case, -1 if there is none, and `weight` its weight.
    """

    args: tuple[Array | Scalar, ...] = ()
    dims: dict[str, int] = {}
    seed: int = 0
    case: int = -1
    weight: float = 1.0

    def make(self) -> list[Any]:
        """Returns fresh arguments; the same every time and in every process."""
        rng = np.random.default_rng(self.seed)
        return [arg.make(rng) for arg in self.args]

    @classmethod
    def like(cls, parameters: Sequence[Parameter], args: Sequence[Any], dims: Mapping[str, int]) -> Inputs:
        """Returns a recipe for arguments like `args`; named dimensions get their size from `dims`."""
        return cls(tuple(_like(p, arg, dims) for p, arg in zip(parameters, args, strict=True)), dict(dims))

    @classmethod
    def of_dims(cls, parameters: Sequence[Parameter], dims: Mapping[str, int], dtype: str) -> Inputs:
        """Returns a recipe from the declaration alone: arrays by their named dimensions, ints by name."""
        recipes: list[Array | Scalar] = []
        for parameter in parameters:
            role = parameter.role
            if role is not None and role.dims:
                if missing := [d for d in role.dims if isinstance(d, str) and d not in dims]:
                    raise SignatureError(f"no size given for {', '.join(missing)} of {parameter.name}")
                recipes.append(Array(tuple(d if isinstance(d, int) else dims[d] for d in role.dims), dtype))
            elif parameter.name in dims:
                recipes.append(Scalar(dims[parameter.name]))
            elif parameter.default is not NO_DEFAULT:
                recipes.append(Scalar(parameter.default))
            elif parameter.kind is float:
                recipes.append(Scalar(1.0))
            elif parameter.kind is not None:
                raise SignatureError(f"no value given for {parameter.name}; add {parameter.name}=... to the sizes")
            else:
                raise SignatureError(
                    f"cannot make {parameter.name!r} from sizes alone: name its dimensions, as in "
                    f'`{parameter.name}: In("M", "K")`, or give the kernel an `inputs=` function'
                )
        return cls(tuple(recipes), dict(dims))


def _dtype(name: str) -> np.dtype[Any]:
    """Returns the dtype of this name; bfloat16 needs a package that defines it."""
    if name == BFLOAT16:
        try:
            import ml_dtypes  # noqa: PLC0415 - only needed for such arrays
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
