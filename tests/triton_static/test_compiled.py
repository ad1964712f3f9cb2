"""Compiles for GPUs that are not here: what they take, and how they are kept (rung 1)."""

import random
import subprocess
from pathlib import Path

import msgspec
import pytest
import sample_kernels as kernels

from tunewright.errors import BackendError, SignatureError
from tunewright.triton.static import aot, call_arguments, elf, resources
from tunewright.triton.static.artifacts import ArtifactCache, CompiledArtifact, CompileRecord
from tunewright.triton.static.compile_worker import CompileJob, CompileWorker, LaunchArguments
from tunewright.triton.static.kernels import unwrap_kernel
from tunewright.triton.static.targets import find_target

CONFIG = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}


def unit(name, **more):
    return aot.make_unit(
        kernels.product, find_target(name), call_arguments.parse_arguments(kernels.PRODUCT)[0], {**CONFIG, **more}
    )


@pytest.fixture(scope="session")
def cubin(tmp_path_factory):
    return aot.compile_unit(unit("sm_80"), tmp_path_factory.mktemp("triton"))


def taken(made, name):
    block = resources.BlockResources(made.shared, made.tensor_columns, made.warps)
    return resources.read_resources(made.code, made.assembly, find_target(name), block)


def test_registers_stack_and_code_are_what_nvidias_own_tool_reads(cubin, tmp_path):
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.is_file():
        pytest.skip("this Triton brings no cuobjdump")
    (tmp_path / "k.cubin").write_bytes(cubin.code)
    said = subprocess.run([tool, "-res-usage", tmp_path / "k.cubin"], capture_output=True, text=True, check=True).stdout
    found = taken(cubin, "sm_80")
    assert f"REG:{found.registers} STACK:{found.stack} " in said
    assert found.matrix == 4
    assert 1000 < found.code_bytes < len(cubin.code)


@pytest.mark.parametrize("name", ["sm_90", "sm_100", pytest.param("gfx942", marks=pytest.mark.slow)])
def test_each_target_is_compiled_without_it(name, tmp_path):
    found = taken(aot.compile_unit(unit(name), tmp_path), name)
    assert found.registers > 8
    assert found.matrix > 0
    assert 0 < found.occupancy <= 1
    assert not resources.find_misfits(found, find_target(name))


def test_a_damaged_file_is_an_error_of_ours_wherever_it_is_cut(cubin):
    rng = random.Random(0)
    code, right = cubin.code, elf.read_registers_and_stack(elf.read_sections(cubin.code))
    start, each, count = (
        int.from_bytes(code[at : at + size], "little") for at, size in ((0x28, 8), (0x3A, 2), (0x3C, 2))
    )
    table = start + each * (count - 1) + 40  # of the last row only the beginning is read
    for size in [0, 5, 63, table - 1, *(rng.randrange(table) for _ in range(60))]:
        with pytest.raises(BackendError):
            elf.read_registers_and_stack(elf.read_sections(code[:size]))
    for size in (table, *range(table, len(code))):  # what follows the table are segments, which nobody looks at
        assert elf.read_registers_and_stack(elf.read_sections(code[:size])) == right


def test_a_file_with_any_byte_changed_is_read_or_refused(cubin):
    rng = random.Random(1)
    table = int.from_bytes(cubin.code[0x28:0x30], "little")
    places = [*range(64), *(table + rng.randrange(64 * 20) for _ in range(300))]
    read, refused = [], []
    for place in places:
        blob = bytearray(cubin.code)
        blob[place % len(blob)] ^= rng.randrange(1, 256)
        try:
            read.append(elf.count_code_bytes(elf.read_sections(bytes(blob))))
        except BackendError as error:
            refused.append(str(error))
    assert elf.count_code_bytes(elf.read_sections(cubin.code)) in read  # some bytes do not matter
    assert min(read) >= 0
    assert any("is damaged" in message for message in refused)
    assert any("not a 64-bit little-endian ELF file" in message for message in refused)


def test_what_spills_or_does_not_fit_is_said_in_numbers():
    much = resources.CompiledResources(255, 1776, 200_000, 600, 64, 1000, 0.0)
    said = resources.find_misfits(much, find_target("sm_80"))
    assert said[0] == "it needs 200,000 bytes of shared memory per block; sm_80 has 166,912"
    assert "600 tensor-memory columns" in said[1]
    assert "1,776 bytes per thread" in said[2]
    slight = resources.CompiledResources(48, 8, 1000, 0, 8, 1000, 0.5)
    assert not resources.find_misfits(slight, find_target("sm_80"))


def test_a_call_that_the_kernel_cannot_take_says_so():
    with pytest.raises(SignatureError, match="product cannot be called with these arguments"):
        aot.make_unit(kernels.product, find_target("sm_80"), (1, 2), CONFIG)
    with pytest.raises(SignatureError, match="unrecognised"):
        unit("sm_80", BLOCK_X=3)


def test_what_a_target_refuses_is_told_as_the_backends_refusal():
    with pytest.raises(BackendError, match="sm_80 rejects the config"):
        unit("sm_80", num_ctas=2)


def test_keys_differ_by_what_triton_specialises_on():
    args = call_arguments.parse_arguments(kernels.PRODUCT)[0]
    ragged = (*args[:3], 255, *args[4:])
    keys = {
        unit("sm_80").key,
        unit("sm_90").key,
        unit("sm_80", num_warps=8).key,
        aot.make_unit(kernels.product, find_target("sm_80"), ragged, CONFIG).key,
    }
    assert len(keys) == 4
    aligned = (*args[:3], 512, *args[4:])
    assert aot.make_unit(kernels.product, find_target("sm_80"), aligned, CONFIG).key == unit("sm_80").key


@pytest.mark.parametrize(("kernel", "known"), [(kernels.added, True), (kernels.added_outside, False)])
def test_heuristics_see_what_they_would_at_a_launch(kernel, known):
    found = unwrap_kernel(kernel)
    assert [config["BLOCK"] for config in found.configs] == [128, 256]
    args = call_arguments.parse_arguments("*fp32,*fp32,1024")[0]
    if known:
        assert found.settings(args, {}, found.configs[0])["EVEN"] is True
    else:  # outside the autotuner there is no BLOCK yet: so it would be at a launch too
        with pytest.raises(BackendError, match="heuristic for EVEN"):
            found.settings(args, {}, found.configs[0])


def test_something_else_is_no_kernel():
    with pytest.raises(BackendError, match=r"@triton\.jit"):
        unwrap_kernel(print)


def test_what_was_compiled_is_kept_and_not_compiled_again(cache):
    job = CompileJob(find_target("sm_80"), CONFIG)
    worker = CompileWorker(
        unwrap_kernel(kernels.product),
        LaunchArguments(call_arguments.parse_arguments(kernels.PRODUCT)[0], {}),
        [job],
        cache,
    )
    first = worker.compile(job)
    assert first.resources
    assert first.rung == 1
    assert worker.compile(job) == first
    (label,) = ArtifactCache(cache).records()
    body = ArtifactCache(cache).read(label.key)
    assert CompiledArtifact.from_bytes(body).to_bytes() == body


def test_a_config_that_does_not_compile_is_remembered_with_the_reason(cache):
    job = CompileJob(find_target("sm_80"), {**CONFIG, "BLOCK_M": 33})
    worker = CompileWorker(
        unwrap_kernel(kernels.product),
        LaunchArguments(call_arguments.parse_arguments(kernels.PRODUCT)[0], {}),
        [job],
        cache,
    )
    label = worker.compile(job)
    assert "power of 2" in label.refused
    assert ArtifactCache(cache).find(label.key) == label


def artefact(**changes):
    right = CompiledArtifact("0" * 64, "k", "cubin", b'{"hash": "' + b"0" * 64 + b'"}', b"code")
    return msgspec.structs.replace(right, **changes).to_bytes()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93\x01",
        artefact(name="../k"),
        artefact(name=".."),
        artefact(key="../../etc"),
        artefact(suffix="so"),
        artefact(metadata=b"[]"),
        artefact(metadata=b"{"),
        artefact(metadata=b'{"hash": "1"}'),
    ],
)
def test_an_artefact_that_could_lead_elsewhere_is_refused(body):
    assert CompiledArtifact.from_bytes(artefact()).name == "k"
    with pytest.raises(BackendError):
        CompiledArtifact.from_bytes(body)


def test_a_label_without_its_artefact_is_no_compile(cache):
    shelf = ArtifactCache(cache)
    label = CompileRecord("ab" * 32, "k", "sm_80", {}, "3.9.0", {}, 1.0, 1.0)
    shelf.put(label, CompiledArtifact(label.key, "k", "cubin", b"{}", b"code"))
    assert shelf.find(label.key) is not None
    path = cache / "artifacts" / "ab" / f"{label.key}.triton"
    path.write_bytes(path.read_bytes()[:-1] + b"E")
    assert shelf.find(label.key) is None, "one with other bytes is compiled again"
    with pytest.raises(BackendError, match="other bytes than were built"):
        shelf.read(label.key)
    path.unlink()
    assert shelf.find(label.key) is None
