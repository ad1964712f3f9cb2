"""Implementations in MLIR: schedules of gemm, softmax, layer norm and attention for the sizes of a call."""

from __future__ import annotations

from importlib.util import find_spec

from tunewright.errors import PluginError
from tunewright.model.signature import Signature
from tunewright.operators import standard
from tunewright.operators.operator import Implementation, Operator, Support, Template, TemplateFactory
from tunewright.spaces.rule import Rule

_SUPPORT = Support(("float32",), "C")
_EQUAL_LENGTHS = Support(("float32",), "C", rules=[Rule("it takes as many keys as queries", lambda L, S: L == S)])


def implementations() -> list[Implementation]:
    """Returns the implementations."""
    if find_spec("torch_mlir") is None:
        raise PluginError("'mlir' (operators) needs torch-mlir; see docs/mlir.md for installation")
    templates: dict[Operator, tuple[TemplateFactory, Support]] = {
        standard.GEMM: (_gemm, _SUPPORT),
        standard.SOFTMAX: (_softmax, _SUPPORT),
        standard.LAYER_NORM: (_layer_norm, _SUPPORT),
        standard.ATTENTION: (_attention, _EQUAL_LENGTHS),
    }
    return [
        Implementation("mlir", op, template=template, support=support) for op, (template, support) in templates.items()
    ]


def _gemm(signature: Signature, threads: int) -> Template:
    from tunewright.mlir import Mlir, payloads  # noqa: PLC0415 - heavy, needed only to decide a call
    from tunewright.mlir.gemm_plans import gemm_plan  # noqa: PLC0415

    sizes = signature.dims
    payload = payloads.matmul(sizes["M"], sizes["N"], sizes["K"])
    plan = gemm_plan(payload, threads=threads)
    return Template(Mlir(payload, plan, threads=threads), plan.space.exact())


def _softmax(signature: Signature, threads: int) -> Template:
    from tunewright.mlir import payloads  # noqa: PLC0415 - as above

    return _row_template(payloads.softmax(signature.dims["M"], signature.dims["N"]), threads)


def _layer_norm(signature: Signature, threads: int) -> Template:
    from tunewright.mlir import payloads  # noqa: PLC0415 - as above

    return _row_template(payloads.layer_norm(signature.dims["M"], signature.dims["N"]), threads)


def _attention(signature: Signature, threads: int) -> Template:
    from tunewright.mlir import payloads  # noqa: PLC0415 - as above

    sizes = signature.dims
    return _row_template(payloads.attention(sizes["H"], sizes["L"], sizes["D"]), threads)


def _row_template(payload: object, threads: int) -> Template:
    from tunewright.mlir import Mlir  # noqa: PLC0415 - as above
    from tunewright.mlir.payload import Payload  # noqa: PLC0415
    from tunewright.mlir.row_plans import row_plan  # noqa: PLC0415

    assert isinstance(payload, Payload)
    plan = row_plan(payload, threads=threads)
    return Template(Mlir(payload, plan, threads=threads), plan.space.exact())
