"""Script: a transform script as text, told apart into numbered steps, whoever wrote it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from tunewright.errors import ScheduleError

_HEAD = """module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%root: !transform.any_op) {"""
_FOOT = """    transform.yield
  }
}
"""
_MAIN = re.compile(r"transform\.named_sequence\s+@__transform_main\s*\([^)]*\)[^{]*\{")
_LOWERED = re.compile(r"^\s*//\s*lowered with:\s*(.*)$", re.MULTILINE)
_STARTS = re.compile(r"\s*(%[\w:, %]+=\s*)?\"?transform\.")
_NAME = re.compile(r"transform\.(?:structured\.|loop\.|bufferization\.|vector\.)?([\w.]+)")


@dataclass(frozen=True)
class Step:
    """One step of a schedule: its number from 1 on, what it is called, and its lines."""

    number: int
    name: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"step {self.number} ({self.name})"


@dataclass(frozen=True)
class Script:
    """The text a compiler executes: what stands before the steps, the steps, what stands after them."""

    head: str
    steps: tuple[Step, ...]
    foot: str
    options: frozenset[str] = frozenset()

    @classmethod
    def of(cls, steps: Sequence[Step], options: Collection[str] = ()) -> Script:
        """A script of these steps; what the lowering must do besides is said in a comment."""
        said = f"// lowered with: {' '.join(sorted(options))}\n" if options else ""
        return cls(said + _HEAD, tuple(steps), _FOOT, frozenset(options))

    @classmethod
    def parse(cls, text: str) -> Script:
        """Any transform script with a main sequence; each operation of that is a step."""
        found = _MAIN.search(text)
        if found is None:
            raise ScheduleError("a schedule in text is a module with a transform.named_sequence @__transform_main")
        end = _closing(text, found.end())
        said = _LOWERED.search(text)
        blocks: list[list[str]] = []
        depth = 0
        for line in text[found.end() : end].splitlines():
            if not line.strip():
                continue
            if depth == 0 and (_STARTS.match(line) or not blocks):
                blocks.append([])
            blocks[-1].append(line)
            depth += _opened(line)
        kept = [block for block in blocks if not block[0].strip().startswith("transform.yield")]
        steps = tuple(Step(i, _called(block), tuple(block)) for i, block in enumerate(kept, 1))
        foot = "    transform.yield\n  " + text[end:]
        return cls(text[: found.end()].rstrip("\n"), steps, foot, frozenset(said[1].split() if said else ()))

    def __str__(self) -> str:
        return self.upto(len(self.steps))

    def upto(self, count: int) -> str:
        """The script that takes the first `count` steps alone."""
        lines = [line for step in self.steps[:count] for line in step.lines]
        return "\n".join([self.head, *lines, self.foot])

    @cached_property
    def _starts(self) -> list[int]:
        at, found = self.head.count("\n") + 2, []
        for step in self.steps:
            found.append(at)
            at += len(step.lines)
        return [*found, at]

    def step_at(self, line: int) -> Step | None:
        """The step whose text has that line, counted from 1."""
        inside = [step for step, at in zip(self.steps, self._starts, strict=False) if at <= line]
        return inside[-1] if inside and line < self._starts[-1] else None


def _called(block: Sequence[str]) -> str:
    found = _NAME.search(block[0])
    return found[1] if found else "text"


def _opened(line: str) -> int:
    """How many braces a line opens more than it closes; those in quotes and comments do not count."""
    plain = re.sub(r'"[^"]*"', "", line).partition("//")[0]
    return plain.count("{") - plain.count("}")


def _closing(text: str, start: int) -> int:
    """Where the brace that was opened before `start` is closed."""
    depth, at = 1, start
    for line in text[start:].splitlines(keepends=True):
        plain = re.sub(r'"[^"]*"', lambda quoted: " " * len(quoted[0]), line)
        plain = plain.partition("//")[0]
        for i, letter in enumerate(plain):
            depth += (letter == "{") - (letter == "}")
            if depth == 0:
                return at + i
        at += len(line)
    raise ScheduleError("the main sequence of the schedule is not closed: a brace is missing")
