"""Implementations in OpenCL: tuned templates, on the first device found."""

from __future__ import annotations

from importlib.util import find_spec

from tunewright.model.signature import Signature
from tunewright.opencl import DeviceSelector
from tunewright.opencl.device import driver, open_device
from tunewright.operators import opencl_kernels as kernels
from tunewright.operators import standard
from tunewright.operators.operator import Implementation, Operator, Support, Template, TemplateFactory
from tunewright.ports.plugins import missing
from tunewright.spaces.rule import Rule

_SUPPORT = Support(("float32",), "C")
_ONE_CHANNEL = Support(
    ("float32",), "C", rules=[Rule("it takes one image of one channel and one window", lambda I, C, F: I * C * F == 1)]
)


def implementations() -> list[Implementation]:
    """Returns the implementations; on a CPU they use as many compute units as threads."""
    if find_spec("pyopencl") is None:
        raise missing("operators", "opencl", ImportError(name="pyopencl"))

    def on(threads: int) -> DeviceSelector:
        driver()
        here = open_device(None, None)
        return DeviceSelector(units=min(threads, here.device.max_compute_units) if here.is_cpu else None)

    def gemm(signature: Signature, threads: int) -> Template:
        return Template(kernels.gemm_source(on(threads)), kernels.GEMM, kernels.GEMM_START)

    def conv2d(signature: Signature, threads: int) -> Template:
        return Template(kernels.conv2d_source(on(threads)), kernels.CONV2D, kernels.CONV2D_START)

    def transpose(signature: Signature, threads: int) -> Template:
        return Template(kernels.transpose_source(on(threads)), kernels.TRANSPOSE, kernels.TRANSPOSE_START)

    def reduce(signature: Signature, threads: int) -> Template:
        return Template(kernels.reduce_source(on(threads)), kernels.REDUCE, kernels.REDUCE_START)

    templates: dict[Operator, tuple[TemplateFactory, Support]] = {
        standard.GEMM: (gemm, _SUPPORT),
        standard.CONV2D: (conv2d, _ONE_CHANNEL),
        standard.TRANSPOSE: (transpose, _SUPPORT),
        standard.REDUCE: (reduce, _SUPPORT),
    }
    return [
        Implementation("opencl", op, template=template, support=support)
        for op, (template, support) in templates.items()
    ]
