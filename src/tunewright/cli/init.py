"""`tunewright init`: a small kernel to start from."""

from __future__ import annotations

import keyword
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from tunewright.cli import init_templates as templates
from tunewright.cli import output

FILES: dict[str, dict[str, str]] = {
    "c": {
        "NAME.c": templates.C_SOURCE,
        "NAME.py": templates.C_DECLARATION,
        "test_NAME.py": templates.C_TEST,
    },
    "python": {"NAME.py": templates.PYTHON_DECLARATION, "test_NAME.py": templates.PYTHON_TEST},
    "triton": {"NAME.py": templates.TRITON_DECLARATION, "test_NAME.py": templates.TRITON_TEST},
    "torch": {"NAME.py": templates.TORCH_DECLARATION, "test_NAME.py": templates.TORCH_TEST},
}
"""The files of each kind of kernel, by their names."""

if find_spec("tunewright.commands") is not None:  # an extension
    FILES["command"] = {"NAME.py": templates.COMMAND_DECLARATION, "test_NAME.py": templates.COMMAND_TEST}

TAKEN = frozenset(
    {"numpy", "np", "tunewright", "tw", "torch", "triton", "tl", "pytest", "rng", "space", "check", "make_model"}
    | {"model", "x", "y", "X", "Y", "COMPILE", "FEW", "TEXT", *sys.stdlib_module_names}
)
"""Names that the files use themselves."""

_C_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false
alignas alignof constexpr nullptr typeof main N UNROLL i j
"""
C_NAMES = frozenset(_C_WORDS.split())
"""Names that a C function cannot have in the file of `--kind c`: words of the language, and what the file uses."""

_TEST = {"python -m pytest test_NAME.py": "is it right? needs pytest"}
_NEXT = {
    "tunewright tune NAME.py:NAME": "search; Ctrl-C keeps what was found",
    **_TEST,
    "tunewright explain NAME": "what was decided, and why",
    "python NAME.py": "use it: nothing is measured again",
}
NEXT_STEPS = {
    "c": _NEXT,
    "python": _NEXT,
    "command": _NEXT,
    "triton": {
        'tunewright triton prebuild NAME.py:NAME --signature "*fp32,*fp32,i32"': "compile all configs; needs no GPU",
        **_TEST,
        "python NAME.py": "tune on the GPU, and use it",
    },
    "torch": {
        "python NAME.py": "tune, and use it; the second time nothing is measured",
        **_TEST,
        "tunewright show": "what was decided, and how fast it is",
    },
}


@click.command()
@click.argument("name", default="kernel")
@click.option(
    "--kind", type=click.Choice(list(FILES)), default="c", show_default=True, help="What the kernel is written in."
)
def init(name: str, kind: str) -> None:
    """Write a small kernel to start from, and a test of it.

    Its files are written into this folder. NAME is the name of the kernel and of its files, `kernel` by default. Files
    that exist are not overwritten.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise click.UsageError(f"{name!r} cannot be the name of a function; use letters, digits and _")
    if kind == "c" and name in C_NAMES:
        raise click.UsageError(f"{name!r} cannot be the name of the C function; choose another NAME")
    if name in TAKEN:
        raise click.UsageError(f"{name!r} is the name of something that the files use; choose another NAME")
    files = {Path(file.replace("NAME", name)): text.replace("NAME", name) for file, text in FILES[kind].items()}
    if existing := [str(path) for path in files if path.exists()]:
        raise click.UsageError(f"{existing[0]} exists already; choose another NAME")
    for path, text in files.items():
        with path.open("x") as file:
            file.write(text)
    *first, last = map(str, files)
    output.echo(f"wrote {', '.join(first)} and {last}; next:")
    steps = {line.replace("NAME", name): comment for line, comment in NEXT_STEPS[kind].items()}
    width = max(map(len, steps))
    for line, comment in steps.items():
        output.echo(f"  {line.ljust(width)}  # {comment}")
