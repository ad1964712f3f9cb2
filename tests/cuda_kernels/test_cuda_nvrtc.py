"""NVRTC compiles what nvcc compiles, without a CUDA toolkit."""

import numpy as np
import pytest

import tunewright as tw
from tunewright.cuda.nvcc import find_nvcc
from tunewright.cuda.nvrtc import Nvrtc, find_nvrtc
from tunewright.errors import BackendError

pytestmark = pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not installed")

SOURCE = """
#include "factor.h"
template <int WIDTH, typename T>
__global__ void scale(const T *x, T *y, int n) {
    __shared__ T kept[WIDTH];
    int i = blockIdx.x * WIDTH + threadIdx.x;
    kept[threadIdx.x] = i < n ? FACTOR * x[i] : 0;
    if (i < n) y[i] = kept[threadIdx.x] + OFFSET;
}
"""


@pytest.fixture
def declare(tmp_path):
    (tmp_path / "scale.cu").write_text(SOURCE)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "factor.h").write_text("#define FACTOR 2\n")

    def declared(compiler="nvrtc", **options):
        backend = tw.Cuda(
            tmp_path / "scale.cu",
            grid=lambda N, WIDTH: -(-N // WIDTH),
            block=("WIDTH",),
            target="sm_90",
            template=("WIDTH", "float"),
            device="emulator",
            compiler=compiler,
            **{"include": ["inner"], **options},
        )
        session = tw.Session(store="memory:", cache=str(tmp_path / "cache"))
        space = tw.Space(tw.Knob("WIDTH", [64, 128]), tw.Knob("OFFSET", [0, 3]))

        @tw.tune(space, backend=backend, session=session)
        def scale(x: tw.In("N"), y: tw.Out("N")): ...

        return scale

    return declared


@pytest.fixture
def args():
    return np.arange(100, dtype=np.float32), np.zeros(100, np.float32)


@pytest.mark.parametrize("flags", ["-O3 --use_fast_math", "-Xptxas -O2"])  # the first is for the host, the last is not
def test_a_template_with_a_header_is_compiled_and_executed(declare, args, flags) -> None:
    scale = declare(flags=flags)
    scale(*args, WIDTH=64, OFFSET=3)
    assert (args[1] == 2 * args[0] + 3).all()
    toolchain = scale.problem(args).key.toolchain
    assert toolchain["nvrtc"].split(".")[0].isdigit()
    assert toolchain["nvrtc flags"] == flags


def test_resources_are_those_that_ptxas_reports(declare, args) -> None:
    scale = declare()
    artifact = scale.backend.build(scale.kernel, tw.Config(WIDTH=128, OFFSET=0), scale.problem(args).key.signature)
    resources = scale.backend.read(artifact.path).resources
    assert resources.shared == 4 * 128
    assert 4 <= resources.registers <= 64


def test_errors_name_the_line_and_what_to_do(declare, args) -> None:
    with pytest.raises(BackendError, match=r"scale\.cu, line 2: .*factor\.h.*include="):
        declare(include=[])(*args, WIDTH=64, OFFSET=0)


def test_it_is_used_where_there_is_no_nvcc(declare, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    find_nvcc.cache_clear()
    assert isinstance(declare(compiler=None).backend.compiler, Nvrtc)
