"""By MLIR: schedules for products, softmax, layer norm and attention, made for the very sizes of a call."""

from __future__ import annotations

from importlib.util import find_spec

from tunewright.errors import PluginError
from tunewright.model.signature import Signature
from tunewright.operators import standard
from tunewright.operators.operator import Implementation, Operator, Support, Template, Templating
from tunewright.spaces.rule import Rule

_SUPPORT = Support(("float32",), "C")
_AS_LONG = Support(("float32",), "C", rules=[Rule("it takes as many keys as queries", lambda L, S: L == S)])


def implementations() -> list[Implementation]:
    """Those with a plan."""
    if find_spec("torch_mlir") is None:
        raise PluginError("'mlir' (operators) needs torch-mlir; see docs/mlir.md for how it is installed")
    made: dict[Operator, tuple[Templating, Support]] = {
        standard.GEMM: (_gemm, _SUPPORT),
        standard.SOFTMAX: (_softmax, _SUPPORT),
        standard.LAYER_NORM: (_layer_norm, _SUPPORT),
        standard.ATTENTION: (_attention, _AS_LONG),
    }
    return [Implementation("mlir", op, template=one, support=support) for op, (one, support) in made.items()]


def _gemm(signature: Signature, threads: int) -> Template:
    from tunewright.backends.mlir import Mlir, payloads  # noqa: PLC0415 - heavy, and only where a call is decided
    from tunewright.backends.mlir.products import product_plan  # noqa: PLC0415

    sizes = signature.dims
    payload = payloads.matmul(sizes["M"], sizes["N"], sizes["K"])
    plan = product_plan(payload, threads=threads)
    return Template(Mlir(payload, plan, threads=threads), plan.space.exact())


def _softmax(signature: Signature, threads: int) -> Template:
    from tunewright.backends.mlir import payloads  # noqa: PLC0415 - as above

    return _rows(payloads.softmax(signature.dims["M"], signature.dims["N"]))


def _layer_norm(signature: Signature, threads: int) -> Template:
    from tunewright.backends.mlir import payloads  # noqa: PLC0415 - as above

    return _rows(payloads.layer_norm(signature.dims["M"], signature.dims["N"]))


def _attention(signature: Signature, threads: int) -> Template:
    from tunewright.backends.mlir import payloads  # noqa: PLC0415 - as above

    sizes = signature.dims
    return _rows(payloads.attention(sizes["H"], sizes["L"], sizes["D"]))


def _rows(payload: object) -> Template:
    from tunewright.backends.mlir import Mlir  # noqa: PLC0415 - as above
    from tunewright.backends.mlir.rows import row_plan  # noqa: PLC0415
    from tunewright.backends.mlir.writing import Payload  # noqa: PLC0415

    assert isinstance(payload, Payload)
    plan = row_plan(payload)
    return Template(Mlir(payload, plan), plan.space.exact())
