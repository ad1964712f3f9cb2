"""Builds a payload with a schedule and calls it."""

import numpy as np
import pytest

from tunewright.mlir import Mlir
from tunewright.model.signature import In, Out, Parameter, Signature
from tunewright.ports.backend import Kernel


def ran(payload, schedule, inputs, config, folder, threads=1):
    """The result of a payload for these arrays."""
    shape = payload.arguments[-1].shape
    out = np.full([size or inputs[0].shape[0] for size in shape], 7, dtype_of(payload.arguments[-1].element))
    roles = tuple(Parameter(one.name, Out if one.written else In) for one in payload.arguments)
    kernel, backend = Kernel("k", lambda: None, roles, folder), Mlir(payload, schedule, threads=threads)
    signature = Signature.of(kernel.parameters, [*inputs, out])
    backend.load(kernel, backend.build(kernel, config, signature))(*inputs, out)
    return out


def dtype_of(element):
    """The dtype of arrays of an element of MLIR."""
    return {"f32": np.float32, "i8": np.int8, "i32": np.int32}.get(element) or pytest.importorskip("ml_dtypes").bfloat16


def given(*shapes):
    """Arrays of random numbers, always the same."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
