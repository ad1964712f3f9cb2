"""Transform scripts as text, split into numbered steps."""

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
class TransformStep:
    """One step of a schedule: its number from 1 on, its name and its lines."""

    number: int
    name: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"step {self.number} ({self.name})"


@dataclass(frozen=True)
class TransformScript:
    """A transform script: the text before the steps, the steps, and the text after them."""

    head: str
    steps: tuple[TransformStep, ...]
    foot: str
    options: frozenset[str] = frozenset()

    @classmethod
    def of(cls, steps: Sequence[TransformStep], options: Collection[str] = ()) -> TransformScript:
        """Returns a script of these steps; options of the lowering are in a comment."""
        comment = f"// lowered with: {' '.join(sorted(options))}\n" if options else ""
        return cls(comment + _HEAD, tuple(steps), _FOOT, frozenset(options))

    @classmethod
    def parse(cls, text: str) -> TransformScript:
        """Returns a script from text with a main sequence; each of its operations is a step."""
        main = _MAIN.search(text)
        if main is None:
            raise ScheduleError("a schedule in text is a module with a transform.named_sequence @__transform_main")
        end = _find_closing_brace(text, main.end())
        options = _LOWERED.search(text)
        blocks: list[list[str]] = []
        depth = 0
        for line in text[main.end() : end].splitlines():
            if not line.strip():
                continue
            if depth == 0 and (_STARTS.match(line) or not blocks):
                blocks.append([])
            blocks[-1].append(line)
            depth += _brace_balance(line)
        blocks = [block for block in blocks if not block[0].strip().startswith("transform.yield")]
        steps = tuple(TransformStep(i, _step_name(block), tuple(block)) for i, block in enumerate(blocks, 1))
        foot = "    transform.yield\n  " + text[end:]
        return cls(text[: main.end()].rstrip("\n"), steps, foot, frozenset(options[1].split() if options else ()))

    def __str__(self) -> str:
        return self.prefix(len(self.steps))

    def prefix(self, count: int) -> str:
        """Returns the script of the first `count` steps."""
        lines = [line for step in self.steps[:count] for line in step.lines]
        return "\n".join([self.head, *lines, self.foot])

    @cached_property
    def _starts(self) -> list[int]:
        line, starts = self.head.count("\n") + 2, []
        for step in self.steps:
            starts.append(line)
            line += len(step.lines)
        return [*starts, line]

    def step_at(self, line: int) -> TransformStep | None:
        """Returns the step that contains the line, counted from 1."""
        started = [step for step, start in zip(self.steps, self._starts, strict=False) if start <= line]
        return started[-1] if started and line < self._starts[-1] else None


def _step_name(block: Sequence[str]) -> str:
    name = _NAME.search(block[0])
    return name[1] if name else "text"


def _brace_balance(line: str) -> int:
    """Returns opening minus closing braces of a line, without those in strings and comments."""
    plain = re.sub(r'"[^"]*"', "", line).partition("//")[0]
    return plain.count("{") - plain.count("}")


def _find_closing_brace(text: str, start: int) -> int:
    """Returns the position where the brace opened before `start` is closed."""
    depth, offset = 1, start
    for line in text[start:].splitlines(keepends=True):
        plain = re.sub(r'"[^"]*"', lambda quoted: " " * len(quoted[0]), line)
        plain = plain.partition("//")[0]
        for i, char in enumerate(plain):
            depth += (char == "{") - (char == "}")
            if depth == 0:
                return offset + i
        offset += len(line)
    raise ScheduleError("the main sequence of the schedule is not closed: a brace is missing")
