"""A compile command of the user's own: what is filled in, and how it is run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tunewright.backends.c_project import Project, check_reads, loaded_files, traced_files
from tunewright.backends.c_source import parse_make_rules
from tunewright.backends.c_toolchain import run
from tunewright.errors import BackendError

_PLACE = re.compile(r"(?<!\$)\{(\w+)\}")
_OPERATORS = {"&&", "||", "|", ";", ">", ">>", "<", "&"}
_BUILD_FILES = ("GNUmakefile", "makefile", "Makefile", "CMakeLists.txt", "build.ninja", "meson.build")
_ALL = ("macros", "flags")


@dataclass(frozen=True)
class CompileCommand:
    """A command such as `make kernel.so UNROLL={UNROLL}`, and the file it writes if it is not told `{output}`."""

    text: str
    output: str | None = None

    def __post_init__(self) -> None:
        if ("output" in self.places()) == (self.output is not None):
            raise BackendError(
                "compile= must say where the shared library is: write {output} in the command, "
                'or name the file it writes with output="kernel.so" (one of both)'
            )
        if operators := sorted(_OPERATORS & set(self.words())):
            raise BackendError(
                f"compile= is run without a shell, which {operators[0]!r} needs: put the command into a script, "
                "or write compile=\"sh -c '...'\""
            )

    def words(self) -> list[str]:
        """Returns the words of the command."""
        return shlex.split(self.text)

    def places(self) -> set[str]:
        """Returns the names that are filled in."""
        return set(_PLACE.findall(self.text))

    def files(self, project: Project) -> list[Path]:
        """Returns the files that the command reads for certain: scripts that it names, and the Makefile."""
        folder = project.folder or Path.cwd()
        named = [folder / word for word in self.words() if not _PLACE.search(word) and word != self.output]
        return [path.resolve() for path in [*named, *(folder / name for name in _BUILD_FILES)] if path.is_file()]

    def fill(self, values: Mapping[str, str], knobs: Sequence[str]) -> list[str]:
        """Returns the words with values filled in; one that is only the name of options becomes several."""
        places = self.places()
        if unknown := sorted(places - set(values)):
            known = ", ".join(sorted(values))
            raise BackendError(f"compile= has {{{unknown[0]}}}, which is no knob and no size; known: {known}")
        if unused := [name for name in knobs if name not in places and "macros" not in places]:
            raise BackendError(
                f"compile= does not use the knob {unused[0]}, so all its values would build the same: "
                f"write {{{unused[0]}}} in the command, or {{macros}} for all as -D options"
            )
        filled: list[str] = []
        for word in self.words():
            alone = match[1] if (match := _PLACE.fullmatch(word)) else None
            if alone is not None and (alone in _ALL or values[alone].startswith("-") or not values[alone]):
                filled += shlex.split(values[alone])
            else:
                filled.append(_PLACE.sub(lambda place: values[place[1]], word))
        return filled

    def run(self, project: Project, words: Sequence[str], scratch: Path, known: Sequence[Path]) -> Path:
        """Runs the command in the folder of the declaration and returns the library it wrote, in `scratch`.

        Everything is built anew: a Makefile does not know that a knob changed. Raises BackendError if the command read
        or linked a file of the user that is not among the `known` ones.
        """
        import shutil  # noqa: PLC0415 - as in c_toolchain.run

        folder = (project.folder or Path.cwd()).resolve()
        library = scratch / "kernel.so"
        written = library if self.output is None else folder / self.output
        if self.output is not None:
            if written.resolve() in known:
                raise BackendError(f'output="{self.output}" is a source; name the shared library that is written')
            written.unlink(missing_ok=True)
        read = _run_noting_reads(words, folder)
        if not written.is_file():
            hint = "write {output} where it belongs" if self.output is None else "name another with output="
            raise BackendError(f"`{words[0]}` succeeded but wrote no {written.name}; {hint}")
        if written != library:
            shutil.copy(written, library)
        loaded = loaded_files(run([shutil.which("ldd") or "true", str(library)])[0])
        check_reads([*read, *(path for path in loaded if path != library)], known)
        return library


_NOTING_LINKER = """#!/bin/sh
exec {linker} -t "$@" >> {trace}
"""


def _run_noting_reads(words: Sequence[str], folder: Path) -> list[Path]:
    """Runs a command and returns the sources and headers of the user that gcc read for it, and what it linked."""
    import tempfile  # noqa: PLC0415 - as in c_toolchain.run

    with tempfile.TemporaryDirectory() as notes:
        rules, trace = Path(notes) / "rules", Path(notes) / "trace"
        # gcc appends what it reads to this file; make builds all with -B.
        makeflags = f"{os.environ.get('MAKEFLAGS', '')} -B".strip()  # noqa: TID251 - extended and handed on
        environ = {"DEPENDENCIES_OUTPUT": str(rules), "MAKEFLAGS": makeflags, "PWD": str(folder)}
        run(words, folder=folder, environ=environ | _note_links(Path(notes), trace))
        read = parse_make_rules(rules.read_text(errors="replace"), folder) if rules.exists() else []
        linked = traced_files(trace.read_text(errors="replace")) if trace.exists() else ()
        began = (Path(notes) / "ld").stat().st_mtime if trace.exists() else 0.0
        # What the command made itself is newer.
        found = [folder / path for path in linked if (folder / path).is_file()]
        return [*read, *(path for path in found if path.stat().st_mtime < began)]


def _note_links(notes: Path, trace: Path) -> dict[str, str]:
    """Returns the variable by which gcc finds a linker that says what it reads; nothing where there is no linker."""
    import shutil  # noqa: PLC0415 - as in c_toolchain.run

    if (linker := shutil.which("ld")) is None:
        return {}
    script = notes / "ld"
    script.write_text(_NOTING_LINKER.format(linker=shlex.quote(linker), trace=shlex.quote(str(trace))))
    script.chmod(0o755)
    others = os.environ.get("COMPILER_PATH", "")  # noqa: TID251 - extended and handed on
    return {"COMPILER_PATH": os.pathsep.join(filter(None, [str(notes), others]))}
