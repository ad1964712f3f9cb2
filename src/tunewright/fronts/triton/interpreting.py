"""The far side of a check: configs run in Triton's interpreter, one after another, each told as it is done."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunewright.fronts.triton.checking import judge_of, told_of
from tunewright.fronts.triton.installing import installed
from tunewright.fronts.triton.writes import tensors_to_restore
from tunewright.pools.loading import find


def main(place: str) -> None:
    """Read what to run from standard input, and append a line to the file `place` for each that was run."""
    asked = json.loads(sys.stdin.read())
    with installed():  # a kernel of somebody else's is decorated by Triton
        kernel = find(asked["target"])
    with Path(place).open("a") as told:
        for shape, number in asked["left"]:
            told.write(json.dumps(_run(kernel, kernel.configs[number], shape)) + "\n")
            told.flush()


def _run(kernel: Any, config: Any, shape: Mapping[str, int]) -> str | None:
    """What is wrong with the results of a config at a shape."""
    said = told_of(kernel)
    assert said.inputs is not None
    made = dict(said.inputs(**shape))
    grid = made.pop("grid")
    stored = tensors_to_restore(kernel.fn, made)
    judge = judge_of(said, made, stored)
    if config.pre_hook:
        config.pre_hook({**made, **config.all_kwargs()})
    try:
        kernel.fn.run(grid=grid, warmup=False, **made, **config.all_kwargs())
    except Exception as error:
        if type(error).__name__ != "InterpreterError":
            raise
        return f"it raises {error}"
    assert judge is not None
    return judge()


if __name__ == "__main__":
    main(sys.argv[1])
