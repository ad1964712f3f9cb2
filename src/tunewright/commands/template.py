"""Templates of commands: placeholders are filled per word, so that no value is split or interpreted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import NamedTuple

from tunewright.errors import SpaceError

SHELL = "/bin/sh"

VARIABLE = "TW_VALUE_"
"""Begins the names of the variables by which a shell gets values: what a variable holds is never read as code."""

_OPERATOR = re.compile(r"\|\|?|&&?|;|\d?(>>?|<)(&\d)?\S*")
"""Words that only a shell understands."""


class Piece(NamedTuple):
    """A literal text, followed by the value of a placeholder if it has a name."""

    literal: str
    name: str | None
    format: str


class CommandTemplate:
    """A command with placeholders: words, or a script for a shell.

    A word that consists of one placeholder is left out if the value is empty: so a flag may be absent.
    """

    def __init__(self, text: str, *, shell: bool = False) -> None:
        self.text, self.is_shell = text, shell
        try:
            words = [text] if shell else shlex.split(text)
        except ValueError as error:
            raise SpaceError(f"cannot split the command into words: {error}: {text!r}") from error
        if not words or not text.strip():
            raise SpaceError('a command needs a program: Command("zstd -{level} {input} -o {output}")')
        if not shell and (operator := _find_operator(text)):
            raise SpaceError(
                f"{operator!r} means something only to a shell, and commands run without one; "
                "pass shell=True, or quote it if it is an argument"
            )
        self._words = [parse_word(word) for word in words]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all placeholders, in order."""
        return tuple(dict.fromkeys(piece.name for word in self._words for piece in word if piece.name is not None))

    @property
    def program(self) -> Sequence[Piece]:
        """The pieces of the first word."""
        return self._words[0]

    @property
    def literal_words(self) -> list[str]:
        """The words without placeholders; in a script, whatever looks like a word."""
        if self.is_shell:
            return re.findall(r"[\w./+-]+", "".join(piece.literal + " " for piece in self._words[0]))
        return [word[0].literal for word in self._words if len(word) == 1 and word[0].name is None]

    def fill(self, values: Mapping[str, object]) -> list[str]:
        """Returns the words of a command with these values."""
        if self.is_shell:
            return [SHELL, "-c", _script(self._words[0])]
        return [text for word in self._words if (text := fill_word(word, values)) or not _is_placeholder(word)]

    def variables(self, values: Mapping[str, object]) -> dict[str, str]:
        """Returns the variables that the script of a shell reads; none without a shell."""
        if not self.is_shell:
            return {}
        pieces = [piece for piece in self._words[0] if piece.name is not None]
        return {f"{VARIABLE}{piece.name}": fill_word([piece._replace(literal="")], values) for piece in pieces}


def parse_word(word: str) -> list[Piece]:
    """Returns the pieces of a word."""
    try:
        parsed = list(Formatter().parse(word)) or [("", None, None, None)]
    except ValueError as error:
        raise SpaceError(f"{error} in {word!r}; write {{{{ or }}}} for a brace that is no placeholder") from error
    for _, name, _, conversion in parsed:
        if name is not None and (not name.isidentifier() or conversion):
            raise SpaceError(
                f"{{{name}}} in {word!r} is no placeholder: they are names, as in {{level}}; "
                "write {{ or }} for a brace that is none"
            )
    return [Piece(literal, name, spec or "") for literal, name, spec, _ in parsed]


def fill_word(word: Sequence[Piece], values: Mapping[str, object]) -> str:
    """Returns a word with its values."""
    parts = []
    for literal, name, spec in word:
        parts.append(literal)
        if name is not None:
            parts.append(format(values.get(name, ""), spec))
    text = "".join(parts)
    if "\0" in text:
        raise SpaceError(f"{text!r} has a zero byte, which no argument of a program can have")
    return text


def _is_placeholder(word: Sequence[Piece]) -> bool:
    return len(word) == 1 and not word[0].literal and word[0].name is not None


def _script(pieces: Sequence[Piece]) -> str:
    """Returns a script that reads its values from variables, in double quotes wherever they stand."""
    parts, quote = [], ""
    for literal, name, _ in pieces:
        parts.append(literal)
        quote = _quote_after(literal, quote)
        if name is not None:
            variable = f"${{{VARIABLE}{name}}}"
            parts.append({"": f'"{variable}"', '"': variable, "'": f"'\"{variable}\"'"}[quote])
    return "".join(parts)


def _quote_after(text: str, quote: str) -> str:
    """Returns the quote that is open after a text; empty if none is."""
    escaped = False
    for character in text:
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif character in "'\"" and quote in ("", character):
            quote = "" if quote else character
    return quote


def _find_operator(text: str) -> str | None:
    """Returns a word that only a shell understands and that is not quoted."""
    lexer = shlex.shlex(text, posix=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return next((word for word in lexer if _OPERATOR.fullmatch(word)), None)
    except ValueError:  # quotes within words, which only the other mode of this lexer understands
        return None
