"""The backend of commands: `Command`, its key, its runs, and the short form that needs no function."""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from tunewright.backends.host import cpu, digest
from tunewright.commands.checks import Check, NoCheck, make_check
from tunewright.commands.files import path_digest, size_of
from tunewright.commands.metrics import Metric, Regex
from tunewright.commands.options import CheckedOptions, CommandOptions, check_names, env_pieces
from tunewright.commands.runner import describe_status
from tunewright.commands.template import CommandTemplate, fill_word
from tunewright.commands.workload import CommandWorkload
from tunewright.errors import BackendError, SignatureError, SpaceError
from tunewright.kernel.declaration import TuneOptions
from tunewright.kernel.tuned import Tuned, tune
from tunewright.measure.clock import HostTimer
from tunewright.measure.kernel_workload import TimingOptions
from tunewright.model.key import Key
from tunewright.model.signature import NO_DEFAULT, CallSignature, Parameter, Signature
from tunewright.pools.worker_process import THREAD_VARIABLES
from tunewright.ports.backend import Kernel, Launch
from tunewright.report import formatting
from tunewright.spaces.config import Config

NOT_GIVEN = ""
"""The default of a file of a call: then an input is the declared one."""

_NOT_FOR_COMMANDS = ("reference", "tolerance", "inputs", "cases", "buckets", "program")


class Command:
    """A command whose flags are tuned: `{name}` is a knob, an input file or an output. `CommandOptions` lists options.

    It is split into words as a shell would, and run without one. Each run gets copies of its files in a folder of its
    own, and leaves nothing behind.

    Example:
        compress = Command(
            "zstd -q -{level} -T{threads} {input} -o {output}",
            space=Space(Knob("level", [3, 1, 6]), Knob("threads", [1, 2])),
            files={"input": "corpus.txt"},
            check="zstd -qdc {output} | cmp - {input}",
        ).tuned(name="compress")
        compress(output="corpus.zst")
    """

    def __init__(self, template: str, **options: Unpack[CommandOptions]) -> None:
        try:
            self.options = CheckedOptions(**options)
        except TypeError as error:
            names = ", ".join(CheckedOptions.__struct_fields__)
            raise SpaceError(f"{error}; Command takes a template and {names}") from error
        self.template = CommandTemplate(template, shell=self.options.shell)
        self.outputs = self.options.output_names(self.template)
        self.names_in_folder = self.options.names_in_folder(self.outputs)
        self._env = env_pieces(self.options)
        self._base = Path()
        self._space, self._threads = self.options.space, 1
        if self._space is not None:
            check_names(self.template, self.options, self._space)

    @property
    def metric(self) -> Metric:
        """What is minimized."""
        metric: Metric = self.options.metric
        return metric

    def make_check(self) -> Check:
        """Returns a new check of outputs."""
        return make_check(self.options.check)

    @property
    def notes(self) -> tuple[str, ...]:
        """What every decision says."""
        notes = ["outputs were not checked (check=None)"] if isinstance(self.make_check(), NoCheck) else []
        if isinstance(self.metric, Regex):
            what = self.metric.unit or "the printed number"
            notes.append(f"seconds are 1e-6 {'/' if self.metric.best == 'high' else '*'} {what}")
        return tuple(notes)

    def relative_to(self, folder: Path) -> None:
        """Reads relative paths from this folder, where the command is declared."""
        self._base = folder

    def _locate(self, path: str | os.PathLike[str]) -> Path:
        """Returns a path beside the declaration, or else in the current folder."""
        path = Path(path).expanduser()
        beside = self._base / path
        return Path(os.path.abspath(beside if beside.exists() else path))

    @property
    def input_paths(self) -> dict[str, Path]:
        """The files of the user, by name."""
        return {name: self._locate(path) for name, path in self.options.files.items()}

    def declare(self, kernel: Tuned) -> tuple[Parameter, ...]:
        """Checks a declaration; returns its parameters, none of which must be given."""
        self._space = kernel.full_space
        check_names(self.template, self.options, kernel.full_space)
        if wrong := [name for name in _NOT_FOR_COMMANDS if getattr(kernel.declaration, name)]:
            raise SpaceError(f"{wrong[0]}= is not for commands; files= has inputs, check= says what is right")
        if kernel.declaration.regime != "hot":
            raise SpaceError('regime= is not for commands: what they read is in the caches of files, which is "hot"')
        if unknown := [p.name for p in kernel.parameters if p.name not in self.names_in_folder]:
            raise SignatureError(
                f"{kernel.name} takes {unknown[0]!r}, which is no file or output of the command; "
                f"there are {', '.join(self.names_in_folder) or 'none'}"
            )
        self._threads = kernel.declaration.threads
        defaults = {p.name: NOT_GIVEN if p.default is NO_DEFAULT else p.default for p in kernel.parameters}
        return tuple(Parameter(name, default=default) for name, default in defaults.items())

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns that all calls are alike: one decision, for the declared files, serves any."""
        return CallSignature("()", {})

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the template, the bytes of the program and of the inputs, and this CPU."""
        options, inputs = self.options, []
        for name, path in self.input_paths.items():
            if not path.exists():
                raise BackendError(f"there is no {path}, the file {{{name}}} of {kernel.name}")
            inputs.append(f"{name}={path_digest(path, known=True)[:12]} ({formatting.size(size_of(path))})")
        env = [f"{name}={text}" for name, text in sorted(options.env.items())]
        outputs = [f"{name}={file}" for name, file in sorted(self.outputs.items())]
        parts = [self.template.text, str(options.shell), options.stdin or "", *env, "", *outputs]
        mode = {**mode, "check": self.make_check().by, **self.metric.mode()}
        return Key(kernel.name, digest(*parts), Signature(tuple(inputs)), cpu(), self._toolchain(), mode)

    def _toolchain(self) -> dict[str, str]:
        """Returns digests of the programs that the command names. Raises BackendError if it is not installed."""
        found = {word: path_digest(path, known=True)[:12] for word in self._programs() if (path := self._find(word))}
        if not found and not self.template.program[0].name:
            program = next(iter(self._programs()), self.template.text)
            raise BackendError(f"there is no program {program!r}; install it, or check PATH")
        return {Path(word).name: text for word, text in found.items()}

    def _programs(self) -> list[str]:
        """Returns the words that may be programs: the first one with each value of its knobs, or any of a script."""
        pieces = self.template.program
        if self.template.is_shell:
            return list(dict.fromkeys(self.template.literal_words))
        names = {piece.name for piece in pieces if piece.name}
        if names & set(self.names_in_folder) or self._space is None:
            return []
        all_knobs = [*self._space.knobs, *(knob for variant in self._space.variants for knob in variant.knobs)]
        values: list[dict[str, Any]] = [{}]
        for knob in all_knobs:
            if knob.name in names:
                values = [{**before, knob.name: value} for before in values for value in knob.values]
        return [fill_word(pieces, each) for each in values]

    def _find(self, word: str) -> Path | None:
        """Returns the program of this name."""
        if os.sep in word:
            path = self._locate(word)
            return path if path.is_file() else None
        found = shutil.which(word)
        return Path(found).resolve() if found else None

    def fill(self, config: Config, paths: Mapping[str, str], threads: int) -> tuple[list[str], dict[str, str]]:
        """Returns the words of a config on these files, and what it adds to the environment."""
        values = {**config, **paths}
        words = self.template.fill(values)
        first = self.template.program[0]
        if not self.template.is_shell and first.name in paths and os.sep not in words[0]:
            words[0] = f"./{words[0]}"
        elif not self.template.is_shell and os.sep in words[0] and first.name not in paths:
            words[0] = str(self._locate(words[0]))
        own = {name: fill_word(pieces, config) for name, pieces in self._env.items()}
        limits = dict.fromkeys(THREAD_VARIABLES, str(threads))
        return words, {**limits, **own, **self.template.variables(values)}

    def command_line(self, config: Config, **paths: str) -> str:
        """Returns a config as a line for a shell; files that are not given are the declared ones."""
        given = {name: str(path) for name, path in self.options.files.items()}
        values = {**config, **self.names_in_folder, **given, **paths}
        variables = {name: fill_word(pieces, config) for name, pieces in self._env.items()}
        variables |= self.template.variables(values)
        before = [f"{name}={shlex.quote(text)}" for name, text in variables.items()]
        return " ".join([*before, shlex.join(self.template.fill(values))])

    def hint(self) -> str:
        """Returns what may be wrong if a command fails: it names a file that is not in the folder of a run."""
        for word in self.template.literal_words:
            if word not in self._programs() and not os.path.isabs(word) and self._locate(word).is_file():
                return (
                    f"; it runs in a folder of its own, where there is no {word!r}: "
                    f'write {{script}} instead, and files={{"script": {word!r}}}'
                )
        return ""

    def workload(self, kernel: Kernel, default: Config, timing: TimingOptions) -> CommandWorkload:
        """Returns what evaluates configs of this command."""
        return CommandWorkload(self, kernel.name, default, timing)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Config:
        """Returns the config: a command needs no build."""
        return config

    def load(self, kernel: Kernel, artifact: Config) -> Launch:
        """Returns a function that runs the command with a config on the files that it is called with."""
        return partial(self._run, tuple(parameter.name for parameter in kernel.parameters), artifact)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """Returns a timer of a call, for other tools; runs of a workload are timed by another process."""
        return HostTimer(partial(launch, *args), 2)

    def _run(self, names: Sequence[str], config: Config, *args: Any) -> subprocess.CompletedProcess[bytes]:
        given = {name: os.fspath(path) for name, path in zip(names, args, strict=True) if path}
        if missing := [name for name in self.outputs if name not in given and name not in self.options.files]:
            raise SignatureError(f"say where to write {{{missing[0]}}}: give {missing[0]}=PATH")
        inputs = {name: str(path) for name, path in self.input_paths.items()}
        paths = {name: f"./{path}" if path.startswith("-") else path for name, path in {**inputs, **given}.items()}
        words, variables = self.fill(config, paths, self._threads)
        environment = {**os.environ, **variables}  # noqa: TID251 - handed on
        with open(paths[self.options.stdin] if self.options.stdin else os.devnull, "rb") as stdin:
            done = subprocess.run(words, stdin=stdin, env=environment, capture_output=True, check=False)
        if problem := describe_status(done.returncode):
            lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise BackendError(f"{shlex.join(words)}: {problem}: {'; '.join(lines[-4:])}")
        return done

    def tuned(self, **options: Unpack[TuneOptions]) -> Tuned:
        """Returns the command as a tuned function of its files; options are those of `tune`.

        Call it with other files by name, or none: `compress(output="corpus.zst")`. It uses all cores unless `threads`
        says otherwise.
        """
        if self._space is None:
            raise SpaceError("give the command a space=: Command(..., space=Space(Knob(...)))")
        name = options.get("name") or (self._programs() or ["command"])[0].rpartition(os.sep)[2]
        frame = sys._getframe(1)
        function = _make_function(name, list(self.names_in_folder), frame.f_globals.get("__name__", ""))
        function.__code__ = function.__code__.replace(co_filename=frame.f_code.co_filename)
        declared: TuneOptions = {"threads": os.cpu_count() or 1, **options, "name": name, "backend": self}
        return tune(self._space, **declared)(function)


def _make_function(name: str, parameters: Sequence[str], module: str) -> Any:
    """Returns a function that declares the files of a command, and does nothing."""

    def command() -> None: ...

    command.__name__ = command.__qualname__ = name
    command.__module__ = module
    command.__doc__ = f"Runs {name} with its tuned flags."
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    command.__signature__ = inspect.Signature([inspect.Parameter(one, kind) for one in parameters])  # type: ignore[attr-defined]
    return command
