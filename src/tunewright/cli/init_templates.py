"""The files that `tunewright init` writes; NAME stands for the name of the kernel."""

from __future__ import annotations

C_SOURCE = """\
/* y += 2 * x. N is the length of the arrays, UNROLL a knob; both are macros. */
void NAME(const float *x, float *y) {
    long i = 0;
    for (; i + UNROLL <= N; i += UNROLL)
        for (long j = 0; j < UNROLL; j++) y[i + j] += 2.0f * x[i + j];
    for (; i < N; i++) y[i] += 2.0f * x[i];
}
"""

C_DECLARATION = '''\
"""A C kernel and the space that is searched for its best config."""

import numpy as np

import tunewright as tw

space = tw.Space(
    tw.Knob("UNROLL", [1, 2, 4, 8, 16]),  # a macro of NAME.c
    tw.Knob("opt", ["-O1", "-O2", "-O3"]),  # a flag of the compiler
)


@tw.tune(
    space,
    backend=tw.C("NAME.c", flags="-march=native"),
    reference=lambda x, y: y + 2 * x,  # every config must compute the same
    shapes=[{"N": 4096}],  # what `tunewright tune` tunes for
)
def NAME(x: tw.In("N"), y: tw.InOut("N")): ...


if __name__ == "__main__":
    x, y = np.ones(4096, np.float32), np.zeros(4096, np.float32)
    NAME(x, y)  # tunes once; from then on a look-up
    print(y[:3], NAME.decide(x, y).config)
'''

PYTHON_DECLARATION = '''\
"""A Python function and the space that is searched for its best config."""

import numpy as np

import tunewright as tw

space = tw.Space(
    tw.Knob("block", [256, 1024, 4096, 16384]),
    tw.Knob("method", ["dot", "sum"]),
)


@tw.tune(
    space,
    reference=lambda x: np.sum(x * x),  # every config must compute the same
    shapes=[{"N": 65536}],  # what `tunewright tune` tunes for
)
def NAME(x: tw.In("N"), *, block, method):
    total = 0.0
    for start in range(0, len(x), block):
        part = x[start : start + block]
        total += part @ part if method == "dot" else np.sum(part * part)
    return total


if __name__ == "__main__":
    x = np.ones(65536, np.float32)
    print(NAME(x), NAME.decide(x).config)  # tunes once; from then on a look-up
'''

TRITON_DECLARATION = '''\
"""A Triton kernel and the space that is searched for its best config."""

import triton
import triton.language as tl

import tunewright as tw
from tunewright.triton import autotune

space = tw.Space(
    tw.Knob("BLOCK", [128, 256, 512, 1024]),
    tw.Knob("num_warps", [1, 2, 4, 8]),
    tw.Knob("num_stages", [1, 2]),
)


@autotune(space=space, key=["n"])
@triton.jit
def NAME(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(y + offsets, 2 * tl.load(x + offsets, mask=inside), mask=inside)


if __name__ == "__main__":
    import torch

    x = torch.ones(1 << 20, device="cuda")
    y = torch.empty_like(x)
    NAME[lambda config: (triton.cdiv(x.numel(), config["BLOCK"]),)](x, y, x.numel())  # tunes once
    print(y[:3], NAME.best_config)
'''

C_TEST = '''\
"""NAME computes the right thing, with its default config and with a tuned one. Your own decisions are left alone."""

import numpy as np

import tunewright as tw
from NAME import NAME

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((2, 4096), dtype=np.float32)


def check() -> None:
    y = Y.copy()
    NAME(X, y)
    np.testing.assert_allclose(y, Y + 2 * X, rtol=1e-5, atol=1e-5)


def test_the_default_config_is_right(tmp_path) -> None:
    NAME.using(tw.Session(mode="off", cache=tmp_path))
    check()


def test_a_tuned_config_is_right(tmp_path) -> None:
    NAME.using(tw.Session(store="memory:", cache=tmp_path, trials=4))
    check()
    assert NAME.decide(X, Y.copy()).evidence.failures == 0, NAME.trials()
'''

PYTHON_TEST = '''\
"""NAME computes the right thing, with its default config and with a tuned one. Your own decisions are left alone."""

import numpy as np

import tunewright as tw
from NAME import NAME

X = np.random.default_rng(0).standard_normal(65536, dtype=np.float32)


def check() -> None:
    np.testing.assert_allclose(NAME(X), np.sum(X.astype(np.float64) ** 2), rtol=1e-4)


def test_the_default_config_is_right(tmp_path) -> None:
    NAME.using(tw.Session(mode="off", cache=tmp_path))
    check()


def test_a_tuned_config_is_right(tmp_path) -> None:
    NAME.using(tw.Session(store="memory:", cache=tmp_path, trials=4))
    check()
    assert NAME.decide(X).evidence.failures == 0, NAME.trials()
'''

TRITON_TEST = '''\
"""NAME compiles for a GPU that need not be here; where there is one, it computes the right thing."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton

from NAME import NAME

COMPILE = ["triton", "prebuild", "NAME.py:NAME", "--signature", "*fp32,*fp32,i32"]
FEW = ["--targets", "sm_80", "--configs", "2"]


def test_it_compiles() -> None:
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "tunewright", *COMPILE, *FEW]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_result_is_right() -> None:
    x = torch.randn(1 << 16, device="cuda")
    y = torch.empty_like(x)
    NAME[lambda config: (triton.cdiv(x.numel(), config["BLOCK"]),)](x, y, x.numel())
    torch.testing.assert_close(y, 2 * x)
'''

TORCH_DECLARATION = '''\
"""A PyTorch model; how each of its graphs is compiled is searched, among PyTorch's ways and ours."""

import torch

import tunewright.torch


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).eval()


def NAME() -> torch.nn.Module:
    """Returns the compiled model; the space of ways to compile it comes with tunewright.torch."""
    return tunewright.torch.compile(make_model(), tune="now")


if __name__ == "__main__":
    model, x = NAME(), torch.ones(32, 256)
    with torch.no_grad():
        print(model(x)[0, :3])  # tunes once, which takes minutes; from then on a look-up
    for name, decision in tunewright.torch.decisions(model).items():
        print(name, decision)
'''

TORCH_TEST = '''\
"""The compiled model computes what the plain one does. Nothing is tuned here, and your own decisions are left alone."""

import torch

import tunewright as tw
from NAME import NAME, make_model


def test_the_compiled_model_is_right(tmp_path) -> None:
    tw.configure(mode="off", cache=tmp_path)
    x = torch.randn(32, 256)
    with torch.no_grad():
        torch.testing.assert_close(NAME()(x), make_model()(x), rtol=1e-3, atol=1e-4)
'''

COMMAND_DECLARATION = '''\
"""A command, and the flags that are searched for the fastest run."""

from pathlib import Path

import tunewright as tw

TEXT = Path(__file__).with_name("NAME.txt")
if not TEXT.exists():
    TEXT.write_text("".join(f"{number * 7919 % 100003:06d} line {number}\\n" for number in range(100000)))

NAME = tw.Command(
    "sort --parallel={parallel} -S {memory} {input} -o {output}",
    space=tw.Space(tw.Knob("parallel", [1, 2]), tw.Knob("memory", ["1M", "8M", "64M"])),
    files={"input": str(TEXT)},  # each run gets a copy; every config must write the same output
    env={"LC_ALL": "C"},
).tuned(name="NAME")


if __name__ == "__main__":
    NAME(output="sorted.txt")  # tunes once; from then on a look-up
    print(NAME)
'''

COMMAND_TEST = '''\
"""NAME writes the right thing, with its default flags and with tuned ones. Your own decisions are left alone."""

import tunewright as tw
from NAME import NAME, TEXT


def check(tmp_path) -> None:
    NAME(output=str(tmp_path / "sorted.txt"))
    assert (tmp_path / "sorted.txt").read_text().splitlines() == sorted(TEXT.read_text().splitlines())


def test_the_default_flags_are_right(tmp_path) -> None:
    NAME.using(tw.Session(mode="off", cache=tmp_path))
    check(tmp_path)


def test_tuned_flags_are_right(tmp_path) -> None:
    NAME.using(tw.Session(store="memory:", cache=tmp_path, trials=4))
    check(tmp_path)
    assert NAME.decide().evidence.failures == 0, NAME.trials()
'''
