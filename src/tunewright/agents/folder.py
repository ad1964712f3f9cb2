"""The folder that an agent may work in: every path and name that it gives is checked before anything runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tunewright.errors import SettingsError

MAX_TEXT = 300
"""Characters of a path, name or shape."""

MAX_VISITED = 2_000
"""Folders in which files are looked for."""

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
SHAPE = re.compile(r"[\w=,]+")
CONFIG = re.compile(r"default|decided|\w+=[\w.+-]+( ?,? ?\w+=[\w.+-]+)*")
PYTHON, RACED = (".py",), (".py", ".c", ".cc", ".cpp", ".cxx")


class OutsideFolder(SettingsError):
    """Raised for a path that is not in the folder the server was started for."""


class WorkFolder:
    """A folder, and checks that what an agent names is in it and cannot be read as an option."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise SettingsError(f"there is no folder {root}; start the server in the folder of your kernels")
        self.root = root.resolve()

    def path(self, text: str) -> Path:
        """Returns a path in the folder, with all symbolic links followed. Raises OutsideFolder for any other."""
        require_text("a path", text)
        if "\0" in text or text.startswith("~"):
            raise OutsideFolder(f"{text[:80]!r} is no path in {self.root.name}; write it relative to that folder")
        path = (self.root / text).resolve()
        if not path.is_relative_to(self.root):
            raise OutsideFolder(
                f"{text[:80]!r} is outside of {self.root.name}, the folder this server was started for; "
                "name a file in it, or start another server there"
            )
        return path

    def file(self, text: str, suffixes: tuple[str, ...] = ()) -> str:
        """Returns the path of a file that exists, relative to the folder."""
        path = self.path(text)
        if suffixes and path.suffix not in suffixes:
            raise SettingsError(f"{text[:80]!r} must end with {' or '.join(suffixes)}")
        if not path.is_file():
            raise SettingsError(f"there is no file {text[:80]!r} in {self.root.name}")
        return self._relative(path)

    def place(self, text: str) -> str:
        """Returns the path of a file or folder that exists, relative to the folder."""
        path = self.path(text)
        if not path.exists():
            raise SettingsError(f"there is no {text[:80]!r} in {self.root.name}")
        return self._relative(path)

    def new_file(self, text: str, suffix: str) -> str:
        """Returns the path of a file to write: in the folder, with this suffix, and not there yet."""
        path = self.path(text)
        if path.suffix != suffix:
            raise SettingsError(f"{text[:80]!r} must end with {suffix}")
        if path.exists() or (self.root / text).is_symlink():
            raise SettingsError(f"{text[:80]!r} exists already; choose another name")
        if not path.parent.is_dir():
            raise SettingsError(f"there is no folder for {text[:80]!r}")
        return self._relative(path)

    def target(self, text: str, suffixes: tuple[str, ...] = PYTHON) -> str:
        """Returns FILE.py:NAME of a file in the folder. Modules are refused: they may lie anywhere."""
        require_text("a target", text)
        place, colon, name = text.rpartition(":")
        if not colon or not NAME.fullmatch(name) or Path(place).suffix not in suffixes:
            wanted = " or ".join(f"FILE{suffix}:NAME" for suffix in suffixes[:2])
            raise SettingsError(f"{text[:80]!r} is no {wanted}; name a function of a file in {self.root.name}")
        return f"{self.file(place)}:{name}"

    def list_files(self, suffixes: tuple[str, ...], most: int) -> list[str]:
        """Returns the files with such names, sorted; no hidden ones, and none of a folder that is a link."""
        found: list[str] = []
        for visited, (folder, inner, names) in enumerate(os.walk(self.root)):
            inner[:] = sorted(name for name in inner if not name.startswith((".", "__pycache__")))
            relative = Path(folder).relative_to(self.root)
            found += [str(relative / name) for name in names if Path(name).suffix in suffixes and name[0] != "."]
            if len(found) >= most or visited >= MAX_VISITED:
                break
        return sorted(found)[:most]

    def _relative(self, path: Path) -> str:
        """Returns a path that no program takes for an option."""
        return f"./{path.relative_to(self.root)}"


def require_text(what: str, text: object) -> None:
    """Raises SettingsError unless this is a short text."""
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_TEXT:
        raise SettingsError(f"{what} is a text of 1 to {MAX_TEXT} characters")


def matching(what: str, text: str, pattern: re.Pattern[str], example: str) -> str:
    """Returns a text that a pattern allows. Raises SettingsError for any other."""
    require_text(what, text)
    if not pattern.fullmatch(text):
        raise SettingsError(f"{text[:80]!r} is no {what}; write it as {example}")
    return text
