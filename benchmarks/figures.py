"""What the benchmarks share: repeated figures with their spread, goals, and one way to say them."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import Any


class Series:
    """One figure, measured repeatedly."""

    def __init__(self, values: Iterable[float]) -> None:
        self.values = list(values)

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def text(self, unit: str, digits: int) -> str:
        """The median and the spread: `2.31 us (2.20 – 2.74)`."""
        return f"{self.median:.{digits}f} {unit} ({self.low:.{digits}f} – {self.high:.{digits}f})"

    def plain(self) -> dict[str, Any]:
        """For JSON, every value included."""
        values = [round(value, 6) for value in self.values]
        return {"median": round(self.median, 6), "low": min(values), "high": max(values), "values": values}


@dataclass(frozen=True)
class Paired:
    """Two ways to do the same, measured in turn: what the first costs beyond the second."""

    dearer: Series
    cheaper: Series

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Paired:
        return cls(*map(Series, zip(*pairs, strict=True)))

    @property
    def extra(self) -> Series:
        """Differences between neighbours, which share whatever disturbed them."""
        return Series(more - less for more, less in zip(self.dearer.values, self.cheaper.values, strict=True))

    @property
    def quietest(self) -> float:
        """The difference between the least of each: the least disturbed, where the machine is busy."""
        return self.dearer.low - self.cheaper.low


@dataclass(frozen=True)
class Goal:
    """A bound that a figure should keep; it is reported, not enforced. `idle.saving` is a figure of a part."""

    figure: str
    sign: str  # one of >=, <=, <, ==
    bound: float | bool

    def find(self, figures: dict[str, Any]) -> Any:
        """The figure, None if it was not measured."""
        for part in self.figure.split("."):
            if part not in figures:
                return None
            figures = figures[part]
        return figures

    def met(self, value: Any) -> bool:
        kept = {
            ">=": lambda: value >= self.bound,
            "<=": lambda: value <= self.bound,
            "<": lambda: value < self.bound,
            "==": lambda: value == self.bound,
        }
        return bool(kept[self.sign]())


@dataclass
class Report:
    """Figures for machines, lines for people, and what turned out wrong."""

    figures: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def check(self, holds: bool, otherwise: str) -> bool:
        """Note a mistake in what was computed: the run then ends with an error, its figures still shown."""
        if not holds:
            self.wrong.append(otherwise)
        return holds

    def finish(self, goals: Iterable[Goal], *, as_json: bool) -> int:
        """Print everything, goals judged; the exit code."""
        found = [(goal, goal.find(self.figures)) for goal in goals]
        judged = [(goal, goal.met(value), value) for goal, value in found if value is not None]
        if as_json:
            verdicts = {goal.figure: {"goal": f"{goal.sign} {goal.bound}", "met": met} for goal, met, _ in judged}
            print(json.dumps(finite(self.figures | {"goals": verdicts, "wrong": self.wrong})))
        else:
            print("\n".join(self.lines))
            for goal, met, value in judged:
                aim = f"{goal.figure} {goal.sign} {goal.bound}"
                print(f"  {'met    ' if met else 'not met'}  {aim:<32} measured {value}")
        for mistake in self.wrong:
            print(f"WRONG: {mistake}", file=sys.stderr)
        return 1 if self.wrong else 0


def finite(value: Any) -> Any:
    """A value for JSON, which has no infinity: null, as what was never reached."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def parser(doc: str) -> argparse.ArgumentParser:
    """Arguments every benchmark takes."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("--quick", action="store_true", help="fewer repeats")
    made.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return made


def cpu_seconds() -> float:
    """CPU time of this process, its threads, and its children that have ended."""
    return time.process_time() + children_cpu_seconds()


def children_cpu_seconds() -> float:
    """CPU time of this process's children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
