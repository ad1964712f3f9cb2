"""By OpenCL: templates with knobs, on the first device that OpenCL finds."""

from __future__ import annotations

from importlib.util import find_spec

from tunewright.backends.opencl import On
from tunewright.backends.opencl.device import driver, opened
from tunewright.model.signature import Signature
from tunewright.operators import opencl_kernels as kernels
from tunewright.operators import standard
from tunewright.operators.operator import Implementation, Operator, Support, Template, Templating
from tunewright.ports.plugins import missing
from tunewright.spaces.rule import Rule

_SUPPORT = Support(("float32",), "C")
_ONE_CHANNEL = Support(
    ("float32",), "C", rules=[Rule("it takes one image of one channel and one window", lambda I, C, F: I * C * F == 1)]
)


def implementations() -> list[Implementation]:
    """Those with a kernel; on a processor they use as many compute units as there are threads."""
    if find_spec("pyopencl") is None:
        raise missing("operators", "opencl", ImportError(name="pyopencl"))

    def on(threads: int) -> On:
        driver()
        here = opened(None, None)
        return On(units=min(threads, here.device.max_compute_units) if here.is_cpu else None)

    def gemm(signature: Signature, threads: int) -> Template:
        return Template(kernels.gemm_source(on(threads)), kernels.GEMM, kernels.GEMM_START)

    def conv2d(signature: Signature, threads: int) -> Template:
        return Template(kernels.conv2d_source(on(threads)), kernels.CONV2D, kernels.CONV2D_START)

    def transpose(signature: Signature, threads: int) -> Template:
        return Template(kernels.transpose_source(on(threads)), kernels.TRANSPOSE, kernels.TRANSPOSE_START)

    def reduce(signature: Signature, threads: int) -> Template:
        return Template(kernels.reduce_source(on(threads)), kernels.REDUCE, kernels.REDUCE_START)

    made: dict[Operator, tuple[Templating, Support]] = {
        standard.GEMM: (gemm, _SUPPORT),
        standard.CONV2D: (conv2d, _ONE_CHANNEL),
        standard.TRANSPOSE: (transpose, _SUPPORT),
        standard.REDUCE: (reduce, _SUPPORT),
    }
    return [Implementation("opencl", op, template=one, support=support) for op, (one, support) in made.items()]
