"""The language: a function is traced to a list of numpy operations, and compiled to passes over parts of arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Schedule:
    """How a program runs: on parts of `part` elements, and with temporary arrays that are reused or not."""

    part: int = 4096
    reuse: bool = True


@dataclass(eq=False)
class Value:
    """The result of an operation in a traced function; a number in it is a constant."""

    operations: list[tuple[str, Any, Any]]
    number: int

    def _then(self, name: str, left: Any, right: Any) -> Value:
        self.operations.append((name, left, right))
        return Value(self.operations, len(self.operations) - 1)

    def __add__(self, other: Any) -> Value:
        return self._then("add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self._then("subtract", self, other)

    def __mul__(self, other: Any) -> Value:
        return self._then("multiply", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self._then("multiply", other, self)


@dataclass
class Program:
    """The traced operations; the first ones are the inputs."""

    inputs: list[str]
    operations: list[tuple[str, Any, Any]] = field(default_factory=list)


def trace(function: Callable[..., Value]) -> Program:
    """Returns the program of a function of arrays."""
    program = Program(list(inspect.signature(function).parameters))
    program.operations = [("input", i, None) for i in range(len(program.inputs))]
    function(*(Value(program.operations, i) for i in range(len(program.inputs))))
    return program


def compile_program(program: Program, schedule: Schedule) -> Callable[..., np.ndarray]:
    """Returns a function that runs a program by a schedule."""
    first = len(program.inputs)
    buffers: dict[int, np.ndarray] = {}

    def operand(value: Any, values: list[np.ndarray]) -> Any:
        return values[value.number] if isinstance(value, Value) else value

    def run_part(parts: list[np.ndarray], out: np.ndarray) -> None:
        values = list(parts)
        for i, (name, left, right) in enumerate(program.operations[first:], first):
            target: np.ndarray | None = out if i == len(program.operations) - 1 else None
            if target is None and schedule.reuse:
                if i not in buffers or buffers[i].dtype != out.dtype or len(buffers[i]) < len(out):
                    buffers[i] = np.empty(max(len(out), schedule.part), out.dtype)
                target = buffers[i][: len(out)]
            values.append(getattr(np, name)(operand(left, values), operand(right, values), out=target))

    def run(*arrays: np.ndarray) -> np.ndarray:
        result = np.empty_like(arrays[0])
        for start in range(0, len(result), schedule.part):
            stop = start + schedule.part
            run_part([array[start:stop] for array in arrays], result[start:stop])
        return result

    return run
