"""The options of `Command`, and whether they agree with the template and the space."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from tunewright.commands.checks import CheckFunction, CommandCheck, make_check
from tunewright.commands.metrics import Metric, Seconds
from tunewright.commands.template import CommandTemplate, Piece, parse_word
from tunewright.errors import SpaceError
from tunewright.spaces.space import Space

STREAMS = ("stdout", "stderr")
IMPLIED_OUTPUT = "output"


class CommandOptions(TypedDict, total=False):
    """The options of `Command`; all may be omitted.

    - `space`: what may be chosen, for `Command.tuned`; with `@tune` it is given there.
    - `files`: inputs by name, files or folders. Each run gets copies in a folder of its own, where it is run.
    - `outputs`: names of what is written, or file names by name; `{output}` need not be declared. An input that is
      changed may be named here too.
    - `check`: what makes outputs right: "same" (equal to those of the default config byte for byte), a function of
      their paths by name, a command for a shell whose exit status says it, or None: not checked. Without outputs,
      what is printed to standard output is checked.
    - `metric`: what is minimized: `Seconds()`, `CpuSeconds()`, or a printed number, as in
      `Regex(r"([0-9.]+) MB/s", best="high")`.
    - `stdin`: the name of the file that is read from standard input.
    - `env`: environment variables, with placeholders too.
    - `constant`: names of files that runs only read, so that they are linked and not copied each time.
    - `shell`: run the command by a shell. Values are passed as variables, so that none is read as code.
    - `timeout`: seconds after which a run is killed; by default 20 times those of the default config, at least 10.
    - `scratch`: the folder in which runs get their folders; by default that for temporary files.
    """

    space: Space | None
    files: Mapping[str, str | os.PathLike[str]]
    outputs: Mapping[str, str] | Sequence[str]
    check: CheckFunction | Literal["same"] | str | None
    metric: Metric
    stdin: str | None
    env: Mapping[str, str]
    constant: Sequence[str]
    shell: bool
    timeout: float | None
    scratch: str | os.PathLike[str] | None


class CheckedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options with their defaults; `CommandOptions` explains them."""

    space: Space | None = None
    files: Mapping[str, str | os.PathLike[str]] = {}
    outputs: Mapping[str, str] | Sequence[str] = ()
    check: Any = "same"
    metric: Any = Seconds()
    stdin: str | None = None
    env: Mapping[str, str] = {}
    constant: Sequence[str] = ()
    shell: bool = False
    timeout: float | None = None
    scratch: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.outputs, str) or isinstance(self.constant, str):
            raise SpaceError('outputs= and constant= are lists of names, as in outputs=["archive"]')
        if isinstance(self.files, str | os.PathLike) or not isinstance(self.files, Mapping):
            raise SpaceError('files= maps names to paths, as in files={"input": "corpus.txt"}')
        if not hasattr(self.metric, "cost"):
            raise SpaceError(f"metric= is Seconds(), CpuSeconds() or Regex(...), not {self.metric!r}")
        if self.timeout is not None and self.timeout <= 0:
            raise SpaceError(f"timeout= is a number of seconds, not {self.timeout!r}")
        if unknown := [name for name in (*self.constant, *filter(None, [self.stdin])) if name not in self.files]:
            raise SpaceError(f"{unknown[0]!r} is no file; files: {', '.join(self.files) or 'none'}")
        if changed := [name for name in self.constant if name in self.outputs]:
            raise SpaceError(f"{changed[0]!r} is an output, so it cannot be constant")
        make_check(self.check)

    def output_names(self, template: CommandTemplate) -> dict[str, str]:
        """Returns the file name of each output; that of an input which is changed is the input's."""
        named = self.outputs if isinstance(self.outputs, Mapping) else {name: name for name in self.outputs}
        outputs = {name: Path(self.files[name]).name if name in self.files else file for name, file in named.items()}
        if IMPLIED_OUTPUT in template.names and IMPLIED_OUTPUT not in {**self.files, **outputs}:
            outputs[IMPLIED_OUTPUT] = IMPLIED_OUTPUT
        return outputs

    def names_in_folder(self, outputs: Mapping[str, str]) -> dict[str, str]:
        """Returns the name that each file has in the folder of a run; a dash cannot make it look like a flag."""
        names = {**{name: Path(path).name for name, path in self.files.items()}, **outputs}
        if outside := [file for file in outputs.values() if Path(file).name != file or file in (".", "..")]:
            raise SpaceError(f"{outside[0]!r} is no file name: outputs lie in the folder of a run")
        if len({*names.values()}) < len(names):
            raise SpaceError(f"two files share a name in the folder of a run: {', '.join(sorted(names.values()))}")
        return {name: f"./{file}" if file.startswith("-") else file for name, file in names.items()}


def check_names(template: CommandTemplate, options: CheckedOptions, space: Space) -> None:
    """Raises SpaceError for a placeholder that nothing fills, or a knob that fills none."""
    knobs, files = set(space.names), {*options.files, *options.output_names(template)}
    if twice := (knobs & files) | ((knobs | files) & set(STREAMS)):
        raise SpaceError(f"{sorted(twice)[0]!r} has two meanings: a knob, a file, an output or a stream; rename one")
    used = {*template.names, *(piece.name for pieces in env_pieces(options).values() for piece in pieces)}
    _require_known(template.names, knobs | files, "the command")
    _require_known([name for name in used if name and name not in template.names], knobs, "env=")
    if unused := [name for name in space.names if name not in used]:
        raise SpaceError(
            f"the command does not use the knob{'s' if len(unused) > 1 else ''} {', '.join(unused)}; "
            f"write {{{unused[0]}}} where it belongs: {template.text}"
        )
    check = make_check(options.check)
    if isinstance(check, CommandCheck):
        _require_known(check.template.names, {*knobs, *files, *STREAMS}, "the check")


def _require_known(names: Iterable[str], known: set[str], where: str) -> None:
    if unknown := [name for name in names if name not in known]:
        raise SpaceError(
            f"{where} has {', '.join(f'{{{name}}}' for name in unknown)}, which is no knob, file or output; "
            f"there are {', '.join(sorted(known)) or 'none'} (write {{{{ and }}}} for braces)"
        )


def env_pieces(options: CheckedOptions) -> dict[str, list[Piece]]:
    """Returns the environment variables with their placeholders."""
    return {name: parse_word(str(text)) for name, text in options.env.items()}
