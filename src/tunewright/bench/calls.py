"""Operator calls to benchmark: from a built-in suite, a file, or sizes on the command line."""

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
"""The folder of the built-in suites."""

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "fp64": "float64"}
"""Short names of dtypes."""


class OperatorCall(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A call of an operator: sizes by name, a dtype, and how often such a call occurs."""

    operator: str
    sizes: dict[str, int]
    dtype: str = "float32"
    count: int = 1

    def __str__(self) -> str:
        return f"{self.operator}  {self.shape} {self.dtype}"

    @property
    def shape(self) -> str:
        """The sizes as text: `512x4096x4096`."""
        return "x".join(map(str, self.sizes.values()))

    def arguments(self, operator: Operator) -> list[NDArray[Any]]:
        """Returns seeded random inputs, the same in every process, and an array for the result."""
        inputs = Inputs.of_dims(operator.inputs, self.sizes, self.dtype).make()
        shape = operator.shape(*(array.shape for array in inputs))
        if min(shape, default=1) < 1:
            raise SignatureError(f"the result of {self} would be empty; give it larger sizes")
        return [*inputs, np.zeros(shape, inputs[0].dtype)]


class CallSuite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a suite file; `kernel` lists calls of tuned kernels."""

    call: tuple[OperatorCall, ...] = ()
    about: str = ""
    kernel: tuple[dict[str, Any], ...] = ()


def builtin_suites() -> dict[str, CallSuite]:
    """Returns the built-in suites by name."""
    return {path.stem: read_suite(path) for path in sorted(SHAPES.glob("*.toml"))}


def read_suite(path: Path) -> CallSuite:
    """Reads a suite from a TOML file."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), CallSuite)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise SignatureError(f"{path} is not a list of calls: {error}; see docs/bench.md for the format") from error


def select_calls(
    shapes: Sequence[str], operators: Mapping[str, Sequence[str]], dtypes: Sequence[str] = ()
) -> list[OperatorCall]:
    """Returns the calls of `operators`, given with the names of their sizes, that `shapes` describe.

    A suite or a file selects its calls of these operators; sizes apply to each operator that has as many.
    """
    calls: list[OperatorCall] = []
    for text in shapes:
        calls += _parse_sizes(text, operators) if _is_sizes(text) else _read_suites(text, operators)
    if not calls:
        raise SignatureError(
            f"{', '.join(shapes)} has no call of {', '.join(operators)}; name other operators or shapes"
        )
    full_names = [DTYPES.get(dtype, dtype) for dtype in dtypes]
    typed = [msgspec.structs.replace(call, dtype=dtype) for call in calls for dtype in (full_names or [call.dtype])]
    merged: dict[str, OperatorCall] = {}
    for call in typed:
        known = merged.get(str(call))
        merged[str(call)] = msgspec.structs.replace(call, count=call.count + (known.count if known else 0))
    return list(merged.values())


def _is_sizes(text: str) -> bool:
    return "=" in text or all(part.isdigit() for part in text.replace("x", ",").split(","))


def _read_suites(text: str, operators: Mapping[str, Sequence[str]]) -> list[OperatorCall]:
    calls: list[OperatorCall] = []
    for name in text.split(","):
        path, known = Path(name), builtin_suites()
        if name not in known and not path.is_file():
            raise SignatureError(
                f"no suite and no file {name!r}; suites: {', '.join(known)}; or sizes, as M=512,K=512,N=512"
            )
        suite = known[name] if name in known else read_suite(path)
        for call in suite.call:
            if call.operator in operators:
                _check(call, operators[call.operator])
                calls.append(call)
    return calls


def _parse_sizes(text: str, operators: Mapping[str, Sequence[str]]) -> list[OperatorCall]:
    calls = []
    for operator, dims in operators.items():
        if "=" in text:
            pairs = [part.partition("=") for part in text.split(",")]
            if not all(size.strip().isdigit() for _, _, size in pairs):
                raise SignatureError(f"cannot read the sizes {text!r}; write them as M=512,K=512,N=512 or 512x512x512")
            sizes = {name.strip(): int(size) for name, _, size in pairs}
            if set(sizes) == set(dims):
                calls.append(OperatorCall(operator, {name: sizes[name] for name in dims}))
        elif len(numbers := text.replace("x", ",").split(",")) == len(dims):
            calls.append(OperatorCall(operator, dict(zip(dims, map(int, numbers), strict=True))))
    if not calls:
        expected = "; ".join(f"{operator} has {', '.join(dims)}" for operator, dims in operators.items())
        raise SignatureError(f"the sizes {text!r} fit no operator named: {expected}")
    return calls


def _check(call: OperatorCall, dims: Sequence[str]) -> None:
    if list(call.sizes) != list(dims):
        raise SignatureError(
            f"a call of {call.operator} gives {', '.join(call.sizes)}; its sizes are {', '.join(dims)}"
        )
