"""Submissions: candidates and baselines as they are handed in, as Python or C files or as commands."""

from __future__ import annotations

import shlex
import shutil
from hashlib import sha256
from pathlib import Path

import msgspec

from tunewright.backends import c_toolchain
from tunewright.errors import BackendError
from tunewright.referee.messages import Entry
from tunewright.referee.policy import find_breach, imports_module
from tunewright.referee.task import Task, TaskError
from tunewright.stores import files

MAX_BYTES = 4 << 20
"""Largest source of a submission."""

REFERENCE = "the reference"
"""The name of the baseline where none is given."""

C_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


class Submission(msgspec.Struct, frozen=True):
    """What is handed in: a name, its kind (python, c, command or reference), and its source or command."""

    name: str
    kind: str
    source: str = ""
    path: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of the source, or of the command and its program."""
        return sha256(self.source.encode()).hexdigest()

    @property
    def has_triton(self) -> bool:
        """Whether it may launch Triton kernels, which are interpreted here."""
        return self.kind == "python" and imports_module(self.source, "triton")

    def find_breach(self, task: Task) -> str | None:
        """Returns why it may not take part; None if it may."""
        if self.kind == "python":
            return find_breach(self.source, task)
        if self.kind == "c" and task.library:
            return "a C function has no tensors; hand in Python for this task"
        return None

    def entry(self, task: Task, seed: int, folder: Path) -> Entry:
        """Returns what its process runs; a C source is compiled into `folder`."""
        if self.kind == "reference":
            return task.reference_entry(seed)
        if self.kind == "command":
            return Entry("command", self.name, words=tuple(shlex.split(self.source)))
        if self.kind == "c":
            return Entry("c", task.entry_name, path=str(_compile(self, folder)))
        return task.candidate_entry(self.source, seed)


def load_submission(place: str | Path) -> Submission:
    """Returns the submission at a path, or the command in a text such as "./sort {input} {output}"."""
    path, text = Path(place), str(place)
    if path.suffix in (".py", *c_toolchain.SOURCE_SUFFIXES):
        try:
            source = files.read_bounded(path, MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{place} cannot be read: {error}") from error
        return Submission(path.name, "python" if path.suffix == ".py" else "c", source, str(path))
    words = shlex.split(text)
    if not words or shutil.which(words[0]) is None or "{output" not in text:
        raise TaskError(f"{text!r} is neither a Python or C file nor a command with {{input}} and {{output}}")
    return Submission(text, "command", text)


def reference_submission(task: Task) -> Submission:
    """Returns the reference of a task as a baseline."""
    return Submission(REFERENCE, "reference", task.source)


def _compile(submission: Submission, folder: Path) -> Path:
    source = folder / f"{submission.digest[:12]}{Path(submission.path).suffix}"
    library = source.with_suffix(".so")
    if not library.exists():
        source.write_text(submission.source)
        compiler = c_toolchain.find_compiler(c_toolchain.language_of(source), None)
        try:
            c_toolchain.run([*compiler.command, *C_FLAGS, "-o", str(library), str(source), "-lm"])
        except BackendError as error:
            raise TaskError(f"{submission.name} does not compile: {error}") from error
    return library
