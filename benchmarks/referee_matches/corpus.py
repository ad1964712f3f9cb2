"""Reads the corpus: which task each candidate is for, and which verdicts are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from referee_matches.honest import HONEST
from tunewright.referee import Submission, load_submission

FOLDER = Path(__file__).parent
ACCUSED = ("wrong", "suspect", "refused")


@dataclass(frozen=True)
class MatchCase:
    """A candidate, the task that it is for, and the verdicts that are right."""

    name: str
    task: Path
    candidate: Submission
    verdicts: tuple[str, ...]
    is_attack: bool


def attacks() -> Iterator[MatchCase]:
    """Every attack; its first lines say where the idea was seen and which verdicts are right."""
    for path in sorted((FOLDER / "attacks").iterdir()):
        head = dict(re.findall(r"^(?:#|//) (idea|seen|task|verdicts): (.+)$", path.read_text(), re.MULTILINE))
        task = FOLDER / "tasks" / f"{head.get('task', 'softmax')}.py"
        yield MatchCase(path.name, task, load_submission(path), tuple(head["verdicts"].split()), True)


def honest() -> Iterator[MatchCase]:
    """Every honest candidate; any verdict that does not accuse it is right."""
    for name, (task, source) in HONEST.items():
        suffix = Path(name).suffix
        kind = {"": "python", ".c": "c", ".cmd": "command"}[suffix]
        candidate = Submission(source if kind == "command" else name, kind, source, name if kind == "c" else "")
        yield MatchCase(name, FOLDER / "tasks" / f"{task}.py", candidate, ("faster", "tie", "slower"), False)


def kernelbench() -> Iterator[MatchCase]:
    """Answers to tasks in the style of KernelBench: right, slow, wrong and cheating ones."""
    for task in sorted((FOLDER / "kernelbench").glob("*/task.py")):
        for path in sorted(task.parent.glob("*.py")):
            if path != task:
                head = dict(re.findall(r"^# (verdicts): (.+)$", path.read_text(), re.MULTILINE))
                verdicts = tuple(head["verdicts"].split())
                accused = bool(set(verdicts) & set(ACCUSED))
                yield MatchCase(f"{task.parent.name}/{path.stem}", task, load_submission(path), verdicts, accused)
