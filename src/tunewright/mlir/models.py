"""Payloads from files: functions on tensors with several operations, as torch-mlir exports them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tunewright.cases.inputs import parse_dtype, random_values
from tunewright.errors import BackendError
from tunewright.mlir import compiler
from tunewright.mlir.payload import Payload, PayloadArgument, type_text

_FUNCTION = re.compile(
    r"func\.func (?:public )?@(?P<name>[\w$.]+)\((?P<arguments>[^{]*?)\)(?: -> (?P<results>\([^{]*?\)|tensor<[^{]*?>))?"
    r"(?P<attributes> attributes \{[^\n]*\})? \{\n"
)
DTYPES = {"f32": "float32", "bf16": "bfloat16", "i8": "int8", "i32": "int32"}
"""Elements of arrays, with the names of their dtypes."""

_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)(\w+)>")


def read_model(text: str, name: str = "the payload") -> Payload:
    """Returns a payload from MLIR text. A function on tensors becomes one on arrays, its results the last of them.

    Assertions about elements, as torch-mlir writes for reciprocals, are left out: they cannot be vectorized.
    """
    plain = compiler.print_module(text, name)
    if "llvm.emit_c_interface" in plain:
        arguments: tuple[PayloadArgument, ...] = ()
    else:
        plain, arguments = _take_arrays(plain, name)
    read = compiler.parse_payload(plain, name=name)
    return Payload(plain, arguments, read.operations, None, read.name)


def read_file(path: Path) -> Payload:
    """Returns the payload in a file."""
    return read_model(path.read_text(), str(path))


def _take_arrays(text: str, name: str) -> tuple[str, tuple[PayloadArgument, ...]]:
    """Returns the module with its function on memrefs, and the arrays of that function."""
    function = _FUNCTION.search(text)
    if function is None:
        raise BackendError(f"{name} has no function on tensors: export one func.func that takes and returns tensors")
    inputs = [part.split(":", 1) for part in re.split(r",\s*(?=%)", function["arguments"]) if part.strip()]
    results = _TENSOR.findall(function["results"] or "")
    if not inputs or not results:
        raise BackendError(f"{name}: @{function['name']} takes or returns no tensors; it must take and return some")
    arguments = [_argument(label.strip().lstrip("%"), kind, name) for label, kind in inputs]
    arguments += [_argument(f"out{i}", f"tensor<{shape}{kind}>", name, True) for i, (shape, kind) in enumerate(results)]
    end = text.index("\n  }\n", function.end())
    lines = text[function.end() : end].splitlines()
    returned = next(i for i in reversed(range(len(lines))) if lines[i].strip().startswith(("return", "func.return")))
    values = re.findall(r"%[\w#]+", lines[returned].partition(":")[0])
    heads = ", ".join(f"%{arg.name}_m: {type_text('memref', arg.shape, arg.element)}" for arg in arguments)
    body = [_to_tensor(arg) for arg in arguments if not arg.written]
    body += lines[:returned]
    body += [_store(value, arg) for value, arg in zip(values, (a for a in arguments if a.written), strict=True)]
    made = f"func.func @{function['name']}({heads}) attributes {{llvm.emit_c_interface}} {{\n"
    return text[: function.start()] + made + "\n".join([*body, "    return"]) + text[end:], tuple(arguments)


def _argument(label: str, kind: str, name: str, written: bool = False) -> PayloadArgument:
    tensor = _TENSOR.search(kind)
    if tensor is None or tensor[2] not in DTYPES or "?" in tensor[1]:
        what = f"result {label.removeprefix('out')}" if written else f"argument %{label}"
        raise BackendError(
            f"{name}: {what} is {kind.strip()}; arrays are tensors of {', '.join(DTYPES)} of known sizes: export it so"
        )
    return PayloadArgument(label, tuple(int(size) for size in tensor[1].split("x") if size), written, tensor[2])


def random_arrays(payload: Payload) -> list[Any]:
    """Returns arrays for a call: random inputs, and results of zeros."""
    rng = np.random.default_rng(0)
    shapes = [(tuple(map(int, filter(None, arg.shape))), parse_dtype(DTYPES[arg.element])) for arg in payload.arguments]
    return [random_values(rng, shape, dtype) for shape, dtype in shapes]


def _to_tensor(arg: PayloadArgument) -> str:
    kinds = f"{type_text('memref', arg.shape, arg.element)} to {type_text('tensor', arg.shape, arg.element)}"
    return f"    %{arg.name} = bufferization.to_tensor %{arg.name}_m restrict : {kinds}"


def _store(value: str, arg: PayloadArgument) -> str:
    tensor, memory = (type_text(kind, arg.shape, arg.element) for kind in ("tensor", "memref"))
    kinds = f"({tensor}, {memory}) -> ()"
    return f"    bufferization.materialize_in_destination {value} in restrict writable %{arg.name}_m : {kinds}"


def kernel_source(path: Path, payload: Payload, numerics: Sequence[str] = (), threads: int = 1) -> str:
    """Returns a Python file that declares the payload of a file as a tuned kernel."""
    shared = f", threads={threads}" if threads > 1 else ""
    narrow = any(arg.element != "f32" for arg in payload.arguments)
    parameters = []
    sizes: dict[str, int] = {}
    for arg in payload.arguments:
        dims = []
        for size in map(int, filter(None, arg.shape)):
            dims.append(f"D{size}")
            sizes[f"D{size}"] = size
        role = "Out" if arg.written else "In"
        parameters.append(f"    {arg.name}: tw.{role}({', '.join(map(repr, dims))}),\n")
    inputs = "\n    inputs=lambda **sizes: random_arrays(payload)," if narrow else ""
    return f'''"""{payload.name} of {path.name} as a tuned kernel."""

from pathlib import Path

import tunewright as tw
from tunewright.mlir import Mlir
from tunewright.mlir.dot_plans import plan_for
from tunewright.mlir.models import {"random_arrays, " if narrow else ""}read_file
from tunewright.mlir.seeds import seed_configs

payload = read_file(Path({str(path.resolve())!r}))
plan = plan_for(payload{shared})


@tw.tune(
    plan.space,
    backend=Mlir(payload, plan{shared}),
    default=plan.default,
    seeds=seed_configs(plan),
    shapes=[{sizes!r}],
    numerics={list(numerics)!r},
    threads={threads},{inputs}
)
def {payload.name}(
{"".join(parameters)}): ...
'''
