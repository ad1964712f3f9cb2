"""Calls: what operators are called with, from a named suite, a file, or sizes that were typed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunewright.cases.inputs import Inputs
from tunewright.errors import SignatureError
from tunewright.operators.operator import Operator

SHAPES = Path(__file__).parent / "shapes"
"""Where the suites are that come along."""

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "fp64": "float64"}
"""Short names of dtypes."""


class Call(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an operator is called with: sizes by name, a dtype, and how often such a call comes."""

    operator: str
    sizes: dict[str, int]
    dtype: str = "float32"
    count: int = 1

    def __str__(self) -> str:
        return f"{self.operator}  {self.shape} {self.dtype}"

    @property
    def shape(self) -> str:
        """Its sizes: `512x4096x4096`."""
        return "x".join(map(str, self.sizes.values()))

    def arguments(self, operator: Operator) -> list[NDArray[Any]]:
        """Seeded random inputs, the same in every process, and an array for the result."""
        inputs = Inputs.of_dims(operator.inputs, self.sizes, self.dtype).make()
        shape = operator.shape(*(array.shape for array in inputs))
        if min(shape, default=1) < 1:
            raise SignatureError(f"the result of {self} would be empty; give it larger sizes")
        return [*inputs, np.zeros(shape, inputs[0].dtype)]


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Calls with a name and where they come from, as a file has them; `kernel` lists calls of tuned kernels."""

    call: tuple[Call, ...] = ()
    about: str = ""
    kernel: tuple[dict[str, Any], ...] = ()


def suites() -> dict[str, Suite]:
    """The suites that come along, by name."""
    return {path.stem: read(path) for path in sorted(SHAPES.glob("*.toml"))}


def read(path: Path) -> Suite:
    """The suite in a TOML file."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Suite)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise SignatureError(
            f"{path} is no list of calls: {error}; see docs/bench.md for how they are written"
        ) from error


def wanted(shapes: Sequence[str], operators: Mapping[str, Sequence[str]], dtypes: Sequence[str] = ()) -> list[Call]:
    """The calls that were asked for: `shapes` as they were typed, of `operators` with the names of their sizes.

    A suite or a file gives the calls of these operators; sizes are for each operator that has as many.
    """
    found: list[Call] = []
    for text in shapes:
        found += _typed(text, operators) if _is_sizes(text) else _named(text, operators)
    if not found:
        raise SignatureError(
            f"{', '.join(shapes)} has no call of {', '.join(operators)}; name other operators or shapes"
        )
    full = [DTYPES.get(dtype, dtype) for dtype in dtypes]
    every = [msgspec.structs.replace(call, dtype=dtype) for call in found for dtype in (full or [call.dtype])]
    kept: dict[str, Call] = {}
    for call in every:
        known = kept.get(str(call))
        kept[str(call)] = msgspec.structs.replace(call, count=call.count + (known.count if known else 0))
    return list(kept.values())


def _is_sizes(text: str) -> bool:
    return "=" in text or all(part.isdigit() for part in text.replace("x", ",").split(","))


def _named(text: str, operators: Mapping[str, Sequence[str]]) -> list[Call]:
    found: list[Call] = []
    for name in text.split(","):
        path, known = Path(name), suites()
        if name not in known and not path.is_file():
            raise SignatureError(
                f"no suite and no file {name!r}; suites: {', '.join(known)}; or sizes, as M=512,K=512,N=512"
            )
        suite = known[name] if name in known else read(path)
        for call in suite.call:
            if call.operator in operators:
                _check(call, operators[call.operator])
                found.append(call)
    return found


def _typed(text: str, operators: Mapping[str, Sequence[str]]) -> list[Call]:
    found = []
    for operator, dims in operators.items():
        if "=" in text:
            pairs = [part.partition("=") for part in text.split(",")]
            if not all(size.strip().isdigit() for _, _, size in pairs):
                raise SignatureError(f"cannot read the sizes {text!r}; write them as M=512,K=512,N=512 or 512x512x512")
            given = {name.strip(): int(size) for name, _, size in pairs}
            if set(given) == set(dims):
                found.append(Call(operator, {name: given[name] for name in dims}))
        elif len(numbers := text.replace("x", ",").split(",")) == len(dims):
            found.append(Call(operator, dict(zip(dims, map(int, numbers), strict=True))))
    if not found:
        takes = "; ".join(f"{operator} has {', '.join(dims)}" for operator, dims in operators.items())
        raise SignatureError(f"the sizes {text!r} fit no operator named: {takes}")
    return found


def _check(call: Call, dims: Sequence[str]) -> None:
    if list(call.sizes) != list(dims):
        raise SignatureError(
            f"a call of {call.operator} gives {', '.join(call.sizes)}; its sizes are {', '.join(dims)}"
        )
