"""The tuner of the language: its schedules are a space, and its compiler makes a callable of a config."""

from collections.abc import Callable
from typing import Any

import tunewright as tw
from loops.language import Schedule, compile_program, trace

SPACE = tw.Space(tw.Knob("part", tw.Range(256, 65536, step=256, scale="log")), tw.Knob("reuse", [True, False]))


def tuned(function: Callable[..., Any], **options: Any) -> tw.Tuned:
    """Makes a function of arrays a program with the best schedule for them; `options` are those of `tune`."""
    program = trace(function)
    function.__annotations__ |= {name: tw.In("N") for name in program.inputs}

    def compile_config(config: Any) -> Callable[..., Any]:
        return compile_program(program, Schedule(**config))

    backend = tw.Callable(compile_config, packages=["tunewright-loops"])
    default = {"part": Schedule.part, "reuse": Schedule.reuse}
    return tw.tune(SPACE, backend=backend, default=default, reference=function, **options)(function)
