"""A recording that nobody measured, with every kind of trouble a file can hold."""

from itertools import product

import pytest

from tunewright.interop.table import FRAMEWORK, RUNS, VERIFY, ForeignTable
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob

KNOBS = (
    Knob("block_size_x", [16, 32, 64]),
    Knob("tile", [1, 2, 4]),
    Knob("ratio", [0.5, 1.0]),
    Knob("opt", ["a", "b"]),
)
RULE = "block_size_x * tile <= 128"


def outcome(number: int):
    if number % 7 == 3:
        return Failure(Stage.BUILD, Kind.REFUSED, "CompilationFailedConfig")
    if number % 11 == 5:
        return Failure(Stage.VERIFY, Kind.RAISED, "RuntimeFailedConfig")
    return Timing(((1 + number * 37 % 29) / 3e3,), "recorded")


@pytest.fixture
def table() -> ForeignTable:
    trials = []
    for number, values in enumerate(product(*(knob.values for knob in KNOBS))):
        config = Config(dict(zip((knob.name for knob in KNOBS), values, strict=True)))
        if config["block_size_x"] * config["tile"] <= 128:
            figures = {VERIFY: 3.5, FRAMEWORK: 0.25} | ({RUNS: 8.0} if isinstance(outcome(number), Timing) else {})
            trials.append(Trial(config, outcome(number), 0.5 + number / 64, 0.125, figures))
    return ForeignTable("scale", "Made/Up 1", KNOBS, tuple(trials), (RULE,), (4096, 2))
