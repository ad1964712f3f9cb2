"""Operators of the toy machine with their space, and numpy implementations as the default."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from tunewright import In, Knob, Out, Rule, Space
from tunewright.model.signature import Signature
from tunewright.operators import Implementation, Operator, Support, Template
from tunewright_toy.backend import Toy
from tunewright_toy.machine import LANES, REGISTERS, VERSION, Instruction, Program

Vector = np.ndarray[Any, Any]

SPACE = Space(
    Knob("width", [1, 2, 4, 8, 16, 32]),
    Knob("unroll", [1, 2, 3, 4, 6, 8]),
    rules=[
        Rule(
            "vectors in flight fit into 16 registers",
            lambda width, unroll: (2 * unroll + 1) * -(-width // LANES) <= REGISTERS,
        )
    ],
)
START = {"width": 8, "unroll": 1}


def axpy(width: int, unroll: int) -> Program:
    """Returns a program for `out = 2 x + y`; all loads come first, so that they overlap."""
    parts = range(unroll)
    body = [Instruction("set", 0, (2.0,))]
    body += [Instruction("load", 1 + 2 * i, (0, i * width)) for i in parts]
    body += [Instruction("load", 2 + 2 * i, (1, i * width)) for i in parts]
    body += [Instruction("fma", 2 + 2 * i, (0, 1 + 2 * i)) for i in parts]
    body += [Instruction("store", 2 + 2 * i, (2, i * width)) for i in parts]
    return Program(tuple(body), width, width * unroll)


def square(width: int, unroll: int) -> Program:
    """Returns a program for `out = x x`, added to zeros."""
    parts = range(unroll)
    body = [Instruction("load", 1 + 2 * i, (0, i * width)) for i in parts]
    body += [Instruction("set", 2 + 2 * i, (0.0,)) for i in parts]
    body += [Instruction("fma", 2 + 2 * i, (1 + 2 * i, 1 + 2 * i)) for i in parts]
    body += [Instruction("store", 2 + 2 * i, (1, i * width)) for i in parts]
    return Program(tuple(body), width, width * unroll)


def _axpy(x: Annotated[Vector, In("N")], y: Annotated[Vector, In("N")], out: Annotated[Vector, Out("N")]) -> None:
    """`2 x + y`."""


def _square(x: Annotated[Vector, In("N")], out: Annotated[Vector, Out("N")]) -> None:
    """`x x`."""


AXPY = Operator("axpy", _axpy, lambda x, y: 2 * x + y, lambda x, y: x)
SQUARE = Operator("square", _square, lambda x: x * x, lambda x: x)


def _numpy_axpy(x: Vector, y: Vector, out: Vector) -> None:
    np.multiply(x, 2, out=out)
    out += y


def _numpy_square(x: Vector, out: Vector) -> None:
    np.multiply(x, x, out=out)


def implementations() -> list[Implementation]:
    """Returns all implementations; numpy's come first, because the first is the default."""
    whole = Rule("the toy machine takes multiples of 256 elements", lambda N: N % 256 == 0)
    supported = Support(("float32",), "C", rules=[whole])
    fitting = [Rule("a turn is a part of the whole", lambda width, unroll: 256 % (width * unroll) == 0)]
    narrowed = Space(*SPACE.knobs, rules=[*SPACE.rules, *fitting])

    def template(writer: Any) -> Any:
        def made(signature: Signature, threads: int) -> Template:
            return Template(Toy(writer), narrowed, START)

        return made

    return [
        Implementation("plain", AXPY, _numpy_axpy, support=Support(("float32",))),
        Implementation("plain", SQUARE, _numpy_square, support=Support(("float32",))),
        Implementation("toy", AXPY, template=template(axpy), support=supported, versions={"toy": VERSION}),
        Implementation("toy", SQUARE, template=template(square), support=supported, versions={"toy": VERSION}),
    ]
