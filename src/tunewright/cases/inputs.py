"""Inputs: serializable recipes for arguments, which give the same values in every process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.errors import SignatureError
from tunewright.model.foreign import device_of, dtype_name, element_strides, is_foreign, library_of
from tunewright.model.signature import NO_DEFAULT, Parameter

BFLOAT16 = "bfloat16"

NARROW_FLOATS = (
    BFLOAT16, "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
"""Floats that numpy has only with the package ml_dtypes."""

MIN_INTEGER, MAX_INTEGER = -8, 7
"""The range of integers in arrays of recipes; unsigned ones begin at 0."""


class Array(msgspec.Struct, frozen=True, tag="array"):
    """An array of seeded random numbers; `order` lists its dimensions from slowest to fastest.

    `library` and `device` are those of an array that is not numpy's.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    order: tuple[int, ...] = ()
    library: str = ""
    device: str = ""

    def make(self, rng: np.random.Generator) -> Any:
        """Returns the array: normal floats, small integers or random bools."""
        order = self.order or tuple(range(len(self.shape)))
        shape = tuple(self.shape[i] for i in order)
        dtype = parse_dtype(self.dtype)
        if not is_number(dtype):
            raise SignatureError(f"no recipe for arrays of {self.dtype}; give the kernel an `inputs=` function")
        base = random_values(rng, shape, dtype)
        array = base if order == tuple(range(len(order))) else base.transpose(np.argsort(order))
        if not self.library:
            return array
        from tunewright.cases import foreign_arrays  # noqa: PLC0415 - only for arrays of other libraries

        return foreign_arrays.from_host(array, self.library, self.device)


def random_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns random values of a dtype: normal floats, small integers or bools."""
    if dtype.kind == "b":
        return rng.integers(0, 2, size=shape).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else MIN_INTEGER, MAX_INTEGER + 1, size=shape).astype(dtype)
    return rng.standard_normal(shape, dtype=np.float32 if dtype.itemsize <= 4 else np.float64).astype(dtype)


class Scalar(msgspec.Struct, frozen=True, tag="scalar"):
    """A plain value, passed as it is."""

    value: bool | int | float | str | None

    def make(self, rng: np.random.Generator) -> bool | int | float | str | None:
        """The value."""
        return self.value


class Inputs(msgspec.Struct, frozen=True):
    """Recipes for arguments, or only named sizes for the kernel's own `inputs=` function.

    `case` is the number of the declared case, -1 if there is none, and `weight` its weight. With `rows`, only the
    results for these rows are asked for, and arguments are cut from larger ones: see `kernel.probing`.
    """

    args: tuple[Array | Scalar, ...] = ()
    dims: dict[str, int] = {}
    seed: int = 0
    case: int = -1
    weight: float = 1.0
    rows: tuple[tuple[int, ...], ...] = ()

    @property
    def nbytes(self) -> int:
        """The size of the arrays in bytes."""
        arrays = (arg for arg in self.args if isinstance(arg, Array))
        return sum(prod(array.shape) * parse_dtype(array.dtype).itemsize for array in arrays)

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
                    given = ", ".join(f"{name}={size}" for name, size in dims.items()) or "no sizes"
                    needed = f"{parameter.name} needs a size for {', '.join(missing)}"
                    raise SignatureError(f"{needed}, as in {missing[0]}=512; given: {given}")
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


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype has numbers or bools, narrow floats included."""
    return dtype.kind in "fciub" or dtype.name in NARROW_FLOATS


def parse_dtype(name: str) -> np.dtype[Any]:
    """Returns the dtype of this name; bfloat16 and floats of 8 bits need a package that defines them."""
    if name not in NARROW_FLOATS:
        return np.dtype(name)
    try:
        import ml_dtypes  # noqa: PLC0415 - only needed for such arrays
    except ImportError as error:
        raise SignatureError(f"arrays of {name} need a package; try: pip install ml_dtypes") from error
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def _like(parameter: Parameter, arg: Any, dims: Mapping[str, int]) -> Array | Scalar:
    if isinstance(arg, np.ndarray) or is_foreign(arg):
        role = parameter.role
        shape = tuple(arg.shape)
        if role and role.dims:
            shape = tuple(d if isinstance(d, int) else dims[d] for d in role.dims)
        strides = element_strides(arg)
        order = tuple(sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i)))
        order = () if order == tuple(range(len(shape))) else order
        if not isinstance(arg, np.ndarray):
            return Array(shape, dtype_name(arg), order, library_of(arg), device_of(arg))
        return Array(shape, arg.dtype.name if arg.dtype.isnative else arg.dtype.str, order)
    value = arg.item() if isinstance(arg, np.generic) else arg
    if isinstance(value, bool | int | float | str) or value is None:
        return Scalar(dims.get(parameter.name, value) if isinstance(value, int) else value)
    raise SignatureError(
        f"no recipe for {parameter.name!r}, a {type(arg).__name__}: "
        "give the kernel an `inputs=` function that makes its arguments"
    )
