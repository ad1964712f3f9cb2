"""`tunewright init`: a small kernel to start from."""

from __future__ import annotations

import keyword
from pathlib import Path

import click

from tunewright.cli import output

C_SOURCE = """\
/* y += 2 * x. N is the length of the arrays, UNROLL a knob; both are macros. */
void NAME(const float *x, float *y) {
    for (long i = 0; i < N; i += UNROLL)
        for (long j = 0; j < UNROLL; j++) y[i + j] += 2.0f * x[i + j];
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

FILES = {
    "c": {".c": C_SOURCE, ".py": C_DECLARATION},
    "python": {".py": PYTHON_DECLARATION},
    "triton": {".py": TRITON_DECLARATION},
}

_NEXT = {
    "tunewright tune NAME.py:NAME": "search; Ctrl-C keeps what was found",
    "tunewright show NAME": "what was decided, and how fast it is",
    "python NAME.py": "use it: nothing is measured again",
}
NEXT_STEPS = {
    "c": _NEXT,
    "python": _NEXT,
    "triton": {
        'tunewright triton prebuild NAME.py:NAME --signature "*fp32,*fp32,i32"': "compile all configs; needs no GPU",
        "python NAME.py": "tune on the GPU, and use it",
    },
}


@click.command()
@click.argument("name", default="kernel")
@click.option(
    "--kind", type=click.Choice(list(FILES)), default="c", show_default=True, help="What the kernel is written in."
)
def init(name: str, kind: str) -> None:
    """Write a small kernel to start from.

    Its files are written into this folder. NAME is the name of the kernel and of its files, `kernel` by default. Files
    that exist are not overwritten.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise click.UsageError(f"{name!r} cannot be the name of a function; use letters, digits and _")
    files = {Path(f"{name}{suffix}"): text.replace("NAME", name) for suffix, text in FILES[kind].items()}
    if existing := [str(path) for path in files if path.exists()]:
        raise click.UsageError(f"{existing[0]} exists already; choose another NAME")
    for path, text in files.items():
        with path.open("x") as file:
            file.write(text)
    output.echo(f"wrote {' and '.join(map(str, files))}; next:")
    steps = {line.replace("NAME", name): comment for line, comment in NEXT_STEPS[kind].items()}
    width = max(map(len, steps))
    for line, comment in steps.items():
        output.echo(f"  {line.ljust(width)}  # {comment}")
