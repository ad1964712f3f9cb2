"""Declaring and calling a tuned kernel."""

from typing import Annotated, assert_type

import numpy as np
from numpy.typing import NDArray

import tunewright as tw

Vector = NDArray[np.float32]

space = tw.Space(
    tw.Knob("step", [1, 2, 4]),
    tw.Knob("tile", range(8), numerics=[0]),
    rules=[tw.Rule("tiles are not smaller than steps", lambda step, tile: tile >= step)],
    features=[tw.Feature("work", lambda step, tile: step * tile)],
)


@tw.tune(space, reference=lambda x: 2 * x, default={"step": 1, "tile": 4}, numerics=["tile"], threads=2, regime="cold")
def double(x: Annotated[Vector, tw.In("N")], *, step: int = 1, tile: int = 4) -> Vector:
    return 2 * x


@tw.tune(tw.Space(tw.Knob("UNROLL", [1, 2])), backend=tw.C("saxpy.c", flags="-O2"), buckets={"N": "pow2"})
def saxpy(x: Annotated[Vector, tw.In("N")], y: Annotated[Vector, tw.InOut("N")], factor: float) -> None: ...


x = np.ones(8, np.float32)
assert_type(double(x), Vector)
saxpy(x, x, 2.0)
saxpy(x, y=x, factor=2.0)
decision = double.decide(x)
config: tw.Config = decision.config
any_kernel: tw.Tuned = double
name: str = any_kernel.name

double()  # error: missing argument
double("text")  # error: wrong argument type
double(x, x)  # error: too many arguments
saxpy(x, x)  # error: missing factor
saxpy(x, x, factor="2")  # error: wrong argument type
saxpy(x, x, 2.0, UNROLL=4)  # error: a knob is not an argument
text: str = double(x)  # error: wrong result type


@tw.tune(space, refernce=lambda x: 2 * x)  # error: misspelled option
def triple(x: Annotated[Vector, tw.In("N")]) -> Vector:
    return 3 * x


tw.tune(space, regime="warm")  # error: no such regime
tw.tune(space, threads="two")  # error: wrong option type
tw.tune(tw.Knob("step", [1]))  # error: not a space
tw.Space(tw.Rule("holds", lambda step: True))  # error: a rule is not a knob
tw.Space(tw.Knob("step", [1]), rule=[])  # error: misspelled parameter
tw.Knob("step")  # error: missing values
