"""CUDA C++ kernels: compiled by nvcc, kept by content, executed in the emulator, never timed."""

import shutil

import numpy as np
import pytest

import tunewright as tw
from tunewright.cuda import DoesNotFit
from tunewright.cuda.launch import EmulatedFault
from tunewright.errors import BackendError
from tunewright.model.signature import Signature

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc of the CUDA toolkit is not installed")

SCALE = """
#include "factor.h"
template <int WIDTH, typename T>
__global__ void scale(const T *x, T *y, T shift, int n) {
    extern __shared__ T kept[];
    int i = blockIdx.x * WIDTH + threadIdx.x;
    if (i < n) kept[threadIdx.x] = FACTOR * x[i];
    if (i < n) y[i] = kept[threadIdx.x] + shift + OFFSET;
}
"""

SPACE = tw.Space(tw.Knob("WIDTH", [64, 128, 2048]), tw.Knob("OFFSET", [0, 3]))


def grid(N, WIDTH):
    return -(-N // WIDTH)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "scale.cu").write_text(SCALE)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "factor.h").write_text("#define FACTOR 2\n")
    return tmp_path


def scale_in(folder):
    return tw.Cuda(
        folder / "scale.cu",
        grid=grid,
        block=("WIDTH",),
        template=("WIDTH", "float"),
        shared=lambda WIDTH: 4 * WIDTH,
        include=["inner"],
        target="sm_90",
    )


@pytest.fixture
def backend(folder):
    return scale_in(folder)


def declare(backend, cache, written=tw.Out):
    def scale(x, y, shift): ...

    scale.__annotations__ = {"x": tw.In("N"), "y": written("N"), "shift": float}
    session = tw.Session(store="memory:", cache=str(cache))
    return tw.tune(SPACE, backend=backend, session=session)(scale)


@pytest.fixture
def args():
    return np.arange(100, dtype=np.float32), np.zeros(100, np.float32), 0.5


def test_a_template_is_instantiated_and_a_call_leaves_its_results(cache, backend, args) -> None:
    scale, (x, y, shift) = declare(backend, cache), args
    scale(x, y, shift)  # the kernel takes the size N after the arguments of the function
    assert (y == 2 * x + 0.5).all()
    with pytest.raises(BackendError, match="the kernel writes y, which is In"):
        declare(backend, cache, tw.In)(x, y, shift)


def test_a_build_is_kept_until_something_that_it_reads_changes(folder, cache, backend, args) -> None:
    kernel = declare(backend, cache)
    signature = Signature.of(kernel.parameters, args)
    config = kernel.default
    first = backend.build(kernel.kernel, config, signature)
    stamp = first.path.stat().st_mtime_ns
    again = backend.build(kernel.kernel, config, Signature.of(kernel.parameters, [*(a[:50] for a in args[:2]), 1.0]))
    assert (again.path, again.path.stat().st_mtime_ns) == (first.path, stamp)
    assert (first.shape.grid, again.shape.grid) == ((2, 1, 1), (1, 1, 1))
    source = kernel.problem(args).key.source
    (folder / "inner" / "factor.h").write_text("#define FACTOR 5\n")
    assert kernel.problem(args).key.source != source
    changed = backend.build(kernel.kernel, config, signature)
    assert changed.path != first.path
    build = backend.read(changed.path)
    assert build.cubin.startswith(b"\x7fELF")
    assert ".target sm_90" in build.ptx
    assert build.resources.registers > 0


def test_nothing_is_timed_and_no_search_is_made(cache, backend, args, caplog) -> None:
    kernel = declare(backend, cache)
    assert kernel.decide(*args).config == kernel.default
    assert "no times to choose by" in caplog.text
    with pytest.raises(BackendError, match="tunewright cuda check"):
        kernel.tune(*args)
    with pytest.raises(BackendError, match="no times to choose by"):
        backend.timer(lambda: None, args, 1)
    assert kernel.session.counts["measurements"] == 0


def test_what_cannot_be_launched_is_refused_before_compiling(folder, tmp_path, args) -> None:
    kernel = declare(scale_in(folder), tmp_path / "cache")
    with pytest.raises(DoesNotFit, match=r"2,048 threads is too large: at most 1,024.*add a Rule"):
        kernel(*args, WIDTH=2048)
    assert not list((tmp_path / "cache").rglob("*.cuda"))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("FACTOR * x[i]", "FACTOR * z[i]", 'scale.cu, line 7: identifier "z" is undefined; declare a knob z'),
        ("factor.h", "missing.h", r"scale.cu, line 2: missing.h.*give its folder with include="),
        ("typename T>", "typename T, int U>", "scale<64, float> cannot be instantiated.*correct template="),
    ],
)
def test_an_error_of_nvcc_names_the_line_and_what_to_do(folder, cache, backend, args, before, after, said) -> None:
    (folder / "scale.cu").write_text(SCALE.replace(before, after))
    kernel = declare(backend, cache)
    with pytest.raises(BackendError, match=said):
        backend.build(kernel.kernel, kernel.default, Signature.of(kernel.parameters, args))


def test_a_header_that_is_not_in_the_key_is_refused(folder, cache, args) -> None:
    flags = f"-I{folder / 'inner'}"
    backend = tw.Cuda(folder / "scale.cu", grid=grid, block=("WIDTH",), template=("WIDTH", "float"), flags=flags)
    with pytest.raises(BackendError, match=r"read factor.h, which is not in the key: .* include="):
        declare(backend, cache)(*args)


def test_a_fault_is_raised_with_its_line(folder, cache, backend, args) -> None:
    (folder / "scale.cu").write_text(SCALE.replace("if (i < n) y[i]", "if (i <= n) y[i]"))
    with pytest.raises(EmulatedFault, match=r"scale.cu:8") as raised:
        declare(backend, cache)(*args)
    assert {str(fault.kind) for fault in raised.value.faults} >= {"out of bounds"}
    assert (args[1] == 0).all()
