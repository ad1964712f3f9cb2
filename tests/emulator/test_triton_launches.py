"""Launches of Triton kernels in a process whose launches the emulator executes."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import json, torch, triton
import triton.language as tl
from tunewright.emulator.triton_launches import install

@triton.autotune([triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 128})], key=["count"], cache_results=True)
@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

# The first does not fit into shared memory.
@triton.autotune([triton.Config({"B": 512}, num_stages=4), triton.Config({"B": 16})], key=["count"])
@triton.jit
def product(a, b, c, count, B: tl.constexpr):
    rows, columns = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    total = tl.zeros((16, 16), tl.float32)
    for at in range(0, count, B):
        steps = at + tl.arange(0, B)
        left = tl.load(a + rows * count + steps[None, :], mask=steps[None, :] < count, other=0.0)
        right = tl.load(b + steps[:, None] * 16 + columns, mask=steps[:, None] < count, other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + rows * 16 + columns, total)

@triton.jit
def unmasked(x, out, BLOCK: tl.constexpr = 256):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))

install("sm_80")
x, y, out, kept = torch.randn(1000), torch.randn(1000), torch.empty(1000), torch.zeros(1024)
add[lambda given: (triton.cdiv(1000, given["BLOCK"]),)](x, y, out, 1000)
place = out.clone()
add[(4,)](place, place, place, 1000)
columns = torch.zeros(1000, 2)
add[(4,)](x, y, out=columns.as_strided((1000,), (1,)), count=1000)
a, b, c = torch.randn(16, 40), torch.randn(40, 16), torch.zeros(16, 16)
product[(1,)](a, b, c, 40)
error = ""
try:
    unmasked[(4,)](x, kept, num_warps=8)
except Exception as raised:
    error = str(raised)
print(json.dumps({
    "sum": bool(torch.equal(out, x + y)), "in place": bool(torch.equal(place, 2 * out)),
    "view": bool(torch.equal(columns.flatten()[:1000], x + y)), "error": error,
    "product": bool(torch.allclose(c, a @ b, atol=1e-4)), "config": str(product.best_config).startswith("B: 16,"),
    "kept": bool((kept == 0).all()),
}))
"""


@pytest.mark.slow
def test_results_are_in_the_tensors_and_a_fault_leaves_them_as_they_were(tmp_path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    line = PROGRAM.split("\n").index("    tl.store(out + at, tl.load(x + at))") + 1
    assert f"unmasked: out of bounds at program.py:{line} " in found.pop("error")
    assert all(found.values()), found
