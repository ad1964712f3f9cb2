"""Compiling PyTorch models: a compiled model keeps its type."""

from collections.abc import Sequence
from typing import assert_type

import tunewright
from tunewright.model.decision import Decision
from tunewright.torch import TuningBackend, compile, decisions, tuning


class Model:
    def __init__(self, width: int) -> None:
        self.width = width

    def __call__(self, x: Sequence[float], *, scale: float = 1.0) -> list[float]:
        return [scale * value for value in x]


def double(x: int) -> int:
    return 2 * x


model = compile(Model(8), dynamic=False, overrides={"graph *": "eager", "padding *": {"columns": 1}})
assert_type(model, Model)
assert_type(model([1.0], scale=2.0), list[float])
assert_type(model.width, int)
assert_type(compile(double, fullgraph=True, options={"max_autotune": True}, each="4")(3), int)
assert_type(compile(double, session=tunewright.Session(), budget="8,20m", disable=True)(3), int)
assert_type(decisions(model), dict[str, Decision])
with tuning(overrides={"matmul *": "library"}, budget="2") as backend:
    assert_type(backend, TuningBackend)

model("text", scale="2")  # error: wrong argument type
height = model.height  # error: unknown attribute
compile(double)("text")  # error: wrong argument type
compile(3)  # error: not a model
compile(double, dynamik=True)  # error: unknown option
compile(double, backend="eager")  # error: the backend is ours
compile(double, fullgraph="yes")  # error: wrong option type
compile(double, budget=8)  # error: a budget is text
compile(double, overrides=["eager"])  # error: overrides are by name
tuning(dynamic=True)  # error: an option of compile
