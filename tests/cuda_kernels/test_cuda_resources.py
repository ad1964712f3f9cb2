"""What ptxas and nvcc say is read, and what cannot be launched is refused with what to do; no compiler is needed."""

from pathlib import Path

import pytest

import tunewright as tw
from tunewright.backends.gpu_targets import find_target
from tunewright.backends.grid_launch import GridLaunch
from tunewright.cuda.nvcc import BuildRequest, explain_error, find_entry, find_nvcc
from tunewright.cuda.resources import (
    DoesNotFit,
    KernelResources,
    check_resources,
    check_shape,
    parse_resources,
)
from tunewright.errors import BackendError, SettingsError, SpaceError

SAID = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
ptxas info    : Compile time = 37.296 ms
ptxas info    : Compiling entry function 'kernel' for 'sm_90'
ptxas info    : Function properties for kernel
    48 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 48 bytes cumulative stack size, 4224 bytes smem
"""
PTX = """
.visible .entry other(.param .u64 a)
{ ret; }
.visible .entry kernel(.param .u64 a)
.maxntid 32, 8, 1
{ ret; }
"""
SM_90 = find_target("sm_90")


def request(**more) -> BuildRequest:
    return BuildRequest(Path("kernel.cu"), "kernel", "sm_90", ["-DUNROLL=4"], **more)


def used(**more) -> KernelResources:
    return KernelResources(**{"registers": 32, "spill_stores": 0, "spill_loads": 0, "stack": 0, "shared": 0, **more})


def test_resources_are_those_of_the_kernel_that_is_asked_for() -> None:
    found = parse_resources(SAID, PTX, "kernel")
    assert found == KernelResources(32, 40, 44, 48, 4224, max_threads=256)
    assert parse_resources(SAID, PTX, "other") == used(registers=12)
    with pytest.raises(BackendError, match="did not report the resources of missing"):
        parse_resources(SAID, PTX, "missing")


def test_occupancy_counts_what_the_launch_adds() -> None:
    shape = GridLaunch((1, 1, 1), (256, 1, 1))
    assert used().occupancy(SM_90, shape) == 1.0
    assert used(registers=64).occupancy(SM_90, shape) == 0.5
    assert used(shared=100_000).occupancy(SM_90, GridLaunch((1, 1, 1), (256, 1, 1), 10_000)) == 2 * 8 / 64


@pytest.mark.parametrize(
    ("resources", "shape", "said"),
    [
        (used(registers=96), GridLaunch((1, 1, 1), (1024, 1, 1)), "96 registers x 1,024 threads = 98,304 registers"),
        (used(max_threads=128), GridLaunch((1, 1, 1), (256, 1, 1)), "256 threads, but .* at most 128; make __launch"),
        (used(max_threads=128, exact=True), GridLaunch((1, 1, 1), (64, 1, 1)), "64 threads, but .* exactly 128"),
        (used(shared=40_000), GridLaunch((1, 1, 1), (64, 1, 1), 200_000), "240,000 bytes of shared .* has 232,448"),
    ],
)
def test_a_compiled_kernel_that_no_launch_takes_does_not_fit(resources, shape, said) -> None:
    with pytest.raises(DoesNotFit, match=said):
        check_resources(resources, shape, SM_90)
    check_resources(used(max_threads=1024, spill_stores=400), GridLaunch((1, 1, 1), (1024, 1, 1)), SM_90)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (GridLaunch((1, 1, 1), (64, 32, 1)), "64 x 32 x 1 = 2,048 threads is too large"),
        (GridLaunch((1, 1, 1), (1, 1, 65)), "is too large: .* 1,024 x 1,024 x 64"),
        (GridLaunch((1, 70_000, 1), (32, 1, 1)), "a grid of 1 x 70,000 x 1 blocks is too large"),
        (GridLaunch((1, 1, 1), (32, 1, 1), 300_000), "300,000 bytes of shared memory; sm_90 has 232,448"),
    ],
)
def test_a_launch_that_no_kernel_could_have_does_not_fit(shape, said) -> None:
    with pytest.raises(DoesNotFit, match=said):
        check_shape(shape, SM_90)
    check_shape(GridLaunch((70_000, 1, 1), (1024, 1, 1), 232_448), SM_90)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'kernel.cu(4): error: identifier "TILE" is undefined',
            'line 4: identifier "TILE" is undefined; declare a knob',
        ),
        ('kernel.cu(9): error: identifier "UNROLL" is undefined', "#pragma does not expand macros; write `constexpr"),
        ('kernel.cu(7): error: expected a ";"', 'line 7: expected a ";"; correct this line, or exclude the config'),
        ("kernel.cu:1:10: fatal error: a.h: No such file or directory", "line 1: a.h.*give its folder with include="),
        ("nvcc fatal   : Unsupported gpu architecture 'sm_90'", "nvcc does not compile for sm_90; choose another"),
        ("nvcc fatal   : Unknown option '-oops'", "Unknown option '-oops'; correct kernel.cu, or flags="),
        (
            'instance.cu(2): error: no instance of "kernel"',
            "kernel<4, float> cannot be instantiated.*correct template=",
        ),
    ],
)
def test_errors_say_where_and_what_to_do(text, said) -> None:
    with pytest.raises(BackendError, match=said):
        raise explain_error(text, request(template=["4", "float"]))


def test_too_much_declared_shared_memory_does_not_fit() -> None:
    text = "ptxas error   : Entry function 'kernel' uses too much shared data (0xcb20 bytes, 0xc000 max)"
    with pytest.raises(DoesNotFit, match=r"declares 52,000 bytes of shared memory; 49,152 can be .*extern __shared__"):
        raise explain_error(text, request())


def test_the_kernel_is_found_under_its_name_in_the_machine_code() -> None:
    assert find_entry(["kernel", "other"], request()) == "kernel"
    assert find_entry(["_Z6kernelPKfPfii", "_Z7kernelsPf"], request()) == "_Z6kernelPKfPfii"
    assert find_entry(["_ZN4mine6kernelEPf", "_Z16kernel_and_otherPf"], request()) == "_ZN4mine6kernelEPf"
    assert find_entry(["_Z6kernelPf", "_Z6kernelILi4EEvPf"], request(template=["4"])) == "_Z6kernelILi4EEvPf"
    with pytest.raises(BackendError, match="has 2 kernels called kernel"):
        find_entry(["_Z6kernelPf", "_Z6kernelPd"], request())
    with pytest.raises(BackendError, match="no kernel kernel; it has other"):
        find_entry(["other"], request())
    with pytest.raises(BackendError, match="is it a template"):
        find_entry([], request())


def test_a_missing_compiler_is_told_with_what_to_install() -> None:
    with pytest.raises(BackendError, match=r"no /no/such/nvcc found; install the CUDA toolkit"):
        find_nvcc("/no/such/nvcc")


def test_wrong_declarations_are_refused_where_they_are_written() -> None:
    with pytest.raises(BackendError, match="Cuda has no option 'flag'; options: template, shared"):
        tw.Cuda("k.cu", grid=lambda: 1, block=(32,), flag="-O3")  # type: ignore[call-arg]
    with pytest.raises(BackendError, match='"arguments" or "macros"'):
        tw.Cuda("k.cu", grid=lambda: 1, block=(32,), sizes="both")
    with pytest.raises(SettingsError, match="gfx942 is no target of CUDA"):
        tw.Cuda("k.cu", grid=lambda: 1, block=(32,), target="gfx942")


def test_the_shape_of_a_launch_follows_sizes_and_knobs() -> None:
    backend = tw.Cuda("k.cu", grid=lambda n, t: (n // t, 2), block=("t", 4), shared=lambda t: 8 * t, target="sm_90a")
    assert backend.shape({"t": 16}, {"n": 64}) == GridLaunch((4, 2, 1), (16, 4, 1), 128)
    assert (backend.arch, backend.target.name) == ("sm_90a", "sm_90")
    with pytest.raises(SpaceError, match="'t' is neither a knob nor a named size; known: n"):
        backend.shape({}, {"n": 64})
    with pytest.raises(BackendError, match=r"grid= gives \(0, 2\); .* round up"):
        backend.shape({"t": 16}, {"n": 8})
