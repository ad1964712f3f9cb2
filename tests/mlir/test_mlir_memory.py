"""Kernels keep their working memory between calls: few page faults, right results, bounded memory."""

import resource
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

from tunewright.backends.libraries import open_copy, open_library
from tunewright.mlir import Mlir, linking, payloads
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.linking import KEPT_BYTES, MEMORY
from tunewright.model.signature import In, Out, Parameter, Signature
from tunewright.ports.backend import Kernel

PANELS = {"variant": "panels columns", "mr": 4, "nr": 32, "nc": 64, "kr": 4}
linux = pytest.mark.skipif(sys.platform != "linux", reason="the linker replaces functions on Linux alone")


def product(size, folder):
    """A product whose operands are both copied into panels, its arrays, and the right result."""
    payload = payloads.matmul(size, size, size)
    plan, rng = gemm_plan(payload), np.random.default_rng(0)
    arrays = [rng.standard_normal((size, size), dtype=np.float32) for _ in range(2)]
    arrays.append(np.zeros((size, size), np.float32))
    roles = tuple(Parameter(one.name, Out if one.written else In) for one in payload.arguments)
    kernel, backend = Kernel("k", lambda: None, roles, folder), Mlir(payload, plan)
    launch = backend.load(kernel, backend.build(kernel, PANELS, Signature.of(roles, arrays)))
    return launch, arrays, arrays[0] @ arrays[1]


def faults(call, rounds=8):
    call()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / rounds


CALLS = """
import ctypes, sys
from pathlib import Path
from test_mlir_memory import faults, np, product
library = ctypes.CDLL(None)  # every large block is given back to the system when it is freed
library.mallopt(-1, 128 << 10), library.mallopt(-3, 128 << 10), library.malloc_trim(0)
launch, arrays, right = product(384, Path(sys.argv[1]))
print(faults(lambda: launch(*arrays)), np.allclose(arrays[2], right, atol=1e-3))
"""


@linux
@pytest.mark.parametrize("keeps", [True, False])
def test_a_call_waits_for_no_pages_of_its_panels(keeps, tmp_path) -> None:
    script = CALLS if keeps else f"from tunewright.mlir import linking; linking.KEPT_BYTES = 0\n{CALLS}"
    command = [sys.executable, "-c", script, str(tmp_path)]
    for _ in range(2):  # the process that builds has memory from the compiler, which the allocator uses
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    count, right = found.stdout.split()
    assert right == "True"
    assert float(count) < 20 if keeps else float(count) > 100


@linux
def test_threads_have_memory_of_their_own_and_give_it_back_as_they_end(tmp_path) -> None:
    launch, arrays, right = product(384, tmp_path)
    wrong = []

    def work() -> None:
        out = np.zeros_like(arrays[2])
        for _ in range(4):
            launch(*arrays[:2], out)
        if not np.allclose(out, right, atol=1e-3):
            wrong.append(out)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def burst(count) -> None:
        for _ in range(count):
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    burst(3)
    before = resident()
    burst(25)  # 100 threads with more than a megabyte of panels each
    assert not wrong
    assert resident() - before < 40 << 20


@linux
def test_all_kernels_of_a_process_keep_memory_together(tmp_path) -> None:
    found = []
    for size in (128, 192, 256):
        product(size, tmp_path / str(size))
        (library,) = (tmp_path / str(size)).rglob("*.so")
        content = library.read_bytes()
        memory = linking._Memory.in_dll(open_library(content, library), linking._SYMBOL)
        found.append((memory.allocate, memory.release))
        alone = linking._Memory.in_dll(open_copy(content, library.name), linking._SYMBOL)
        assert (alone.allocate, alone.release) != found[-1], "a copy that nobody shares has functions of its own"
    assert len(set(found)) == 1


HARNESS = """
extern void *__wrap_aligned_alloc(size_t, size_t); extern void __wrap_free(void *);
void *__real_aligned_alloc(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
void __real_free(void *block) { free(block); }
#include <stdio.h>
#include <string.h>
int main(void) {
    static void *blocks[64]; static size_t sizes[64]; unsigned seed = 1;
    for (int step = 0; step < 200000; step++) {
        seed = seed * 1103515245u + 12345u;
        int i = (seed >> 16) % 64;
        if (blocks[i]) {
            unsigned char *bytes = blocks[i];
            for (size_t at = 0; at < sizes[i]; at += 511) if (bytes[at] != (unsigned char)i) return 1;
            if (sizes[i] && bytes[sizes[i] - 1] != (unsigned char)i) return 2;
            __wrap_free(blocks[i]); blocks[i] = 0;
        } else {
            size_t alignment = (size_t)16 << ((seed >> 8) % 9);
            sizes[i] = (seed >> 20) % 3 ? (seed >> 4) % 9 * 1000 : (seed >> 4) % 200000;
            blocks[i] = __wrap_aligned_alloc(alignment, sizes[i]);
            if (!blocks[i] || (uintptr_t)blocks[i] % alignment) return 3;
            memset(blocks[i], i, sizes[i]);
        }
        if (kept.bytes > KEPT_BYTES) return 4;
    }
    __wrap_free(0);
    return __wrap_aligned_alloc(64, SIZE_MAX - 10) != 0;
}
"""


@linux
@pytest.mark.parametrize("most", [0, 1 << 16, KEPT_BYTES])
def test_no_block_is_given_twice_or_changed_and_no_more_is_kept_than_allowed(most, tmp_path) -> None:
    source, program = tmp_path / "harness.c", tmp_path / "harness"
    source.write_text(MEMORY + HARNESS)
    command = ["cc", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread"]
    built = subprocess.run([*command, f"-DKEPT_BYTES={most}ul", str(source), "-o", str(program)], check=False)
    if built.returncode:
        pytest.skip("this compiler has no sanitizers")
    assert (
        subprocess.run(
            [str(program)], env={"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}, check=False
        ).returncode
        == 0
    )


def test_a_library_that_was_linked_without_a_compiler_works(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/ld" if name == "ld" else None)
    launch, arrays, right = product(64, tmp_path)
    launch(*arrays)
    assert np.allclose(arrays[2], right, atol=1e-3)
