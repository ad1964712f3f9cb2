"""The C and C++ backend: knobs become macros and flags; libraries are loaded with ctypes."""

from __future__ import annotations

import ctypes
import os
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from tunewright.backends.c_command import CompileCommand
from tunewright.backends.c_headers import ScanRequest, describe_headers, scan_headers
from tunewright.backends.c_launch import CLaunch, dim_places
from tunewright.backends.c_project import Project, check_reads, describe_libraries, is_of_system, traced_files
from tunewright.backends.c_source import (
    CArgument,
    check_arrays,
    compiler_options,
    normalize_source,
    parse_make_rules,
    parse_prototype,
)
from tunewright.backends.c_toolchain import (
    SOURCE_SUFFIXES,
    Compiler,
    find_compiler,
    is_cpp,
    language_of,
    parse_flags,
    run,
)
from tunewright.backends.elf import refuse_stale_libraries
from tunewright.backends.host import cpu, digest
from tunewright.backends.libraries import open_copy, open_library
from tunewright.errors import BackendError, SignatureError
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.clock import HostTimer
from tunewright.model.key import Key
from tunewright.model.signature import CallSignature, Signature
from tunewright.ports.backend import Kernel, Launch
from tunewright.spaces.config import Config
from tunewright.stores import artifacts
from tunewright.stores.file_lock import exclusive_lock
from tunewright.stores.scratch import scratch_folder

log = LazyLogger(__name__)

# At the link these would add start-up code that makes the whole process flush denormal numbers to zero.
_NOT_AT_LINK = {"-ffast-math", "-Ofast", "-funsafe-math-optimizations"}


Names = Sequence[str | os.PathLike[str]]


class BuildOptions(TypedDict, total=False):
    """How a C kernel of more than one file is built. Paths are relative to the file that declares the kernel.

    - `sources`: further files; those of C and C++ are compiled, others (a header, a Makefile) only count in the key.
    - `include`: folders of headers.
    - `libraries`: what is linked: names ("openblas") or files ("lib/libdamp.a").
    - `library_paths`: folders in which named libraries are looked for first.
    - `compiler`: by default that of CC or CXX, else the first of cc, gcc and clang that is installed.
    - `compile`: a command that builds instead, run in the folder of the declaring file. It is filled in with knobs and
      sizes (`{UNROLL}`, `{N}`), all of them as -D options (`{macros}`), `{flags}`, and `{output}`, the shared library
      to write.
    - `output`: the file that the command writes, if it is not told `{output}`. It is removed before each build.
    """

    sources: Names
    include: Names
    libraries: Names
    library_paths: Names
    compiler: str | None
    compile: str | None
    output: str | None


class C:
    """A kernel in C or C++: a `void` function with one argument per Python parameter.

    Arrays arrive as pointers, ints as `int64_t`, floats as `double`. Each knob is a macro (`-DTILE=32`); a knob
    whose values begin with a dash is a flag. Each named dimension is a macro too, or with `sizes="arguments"` an
    `int64_t` argument after the others, so that one build serves every size. `flags` replace `-O3 -march=native`;
    `-shared -fPIC` are always added. `BuildOptions` lists the other options.

    Example: `C(sources=["src/heat.cpp", "src/damp.c"], include=["include"], libraries=["openblas"])`
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | None = None,
        function: str | None = None,
        *,
        flags: str = "-O3 -march=native",
        sizes: str = "macros",
        **options: Unpack[BuildOptions],
    ) -> None:
        if sizes not in ("macros", "arguments"):
            raise BackendError(f'sizes= must be "macros" or "arguments", not {sizes!r}')
        if unknown := sorted(set(options) - BuildOptions.__optional_keys__):
            raise BackendError(f"C has no option {unknown[0]!r}; options: {', '.join(BuildOptions.__annotations__)}")
        self._function, self._flags, self._sizes = function, shlex.split(flags), sizes
        self._named_compiler = options.get("compiler")
        command, output = options.get("compile"), options.get("output")
        if command is None and output is not None:
            raise BackendError("output= names what a compile= command writes; give both, or none")
        self._command = None if command is None else CompileCommand(command, output)
        sources = [*([] if source is None else [os.fspath(source)]), *_as_list(options.get("sources", ()))]
        if not sources:
            raise BackendError('C needs a source: C("kernel.c") or C(sources=["kernel.cpp", "helper.cpp"])')
        _refuse_sources(self._flags, sources)
        self._project = Project(
            sources,
            self._flags,
            include=_as_list(options.get("include", ())),
            libraries=_as_list(options.get("libraries", ())),
            library_paths=_as_list(options.get("library_paths", ())),
        )
        self._of_system: dict[Path, bool] = {}

    def relative_to(self, folder: Path) -> None:
        """Prefers files in `folder`, that of the kernel's declaration, over those in the working directory."""
        self._project.folder = folder

    @property
    def path(self) -> Path:
        """The first source file, which must exist."""
        return self._project.require(self._project.sources[0], "source file")

    @cached_property
    def compilers(self) -> dict[str, Compiler]:
        """The compiler of each language of the sources: "c", "c++"."""
        languages = dict.fromkeys(map(language_of, self._project.units())) or {"c": None}
        return {language: find_compiler(language, self._named_compiler) for language in sorted(languages)}

    def _local_version(self) -> str:
        """Returns the versions of the compilers that are installed here."""
        try:
            return "; ".join(compiler.version for compiler in self.compilers.values())
        except BackendError:
            if self._command is None:
                raise
            return "unknown"  # a command of the user's own may need none of them

    def _scan(self, cache: Path) -> dict[Path, str]:
        """Returns the headers that compilers read, with digests; none without a compiler."""
        options = [*self._project.include_options(), *self._project.located(self._flags)]
        units, own = self._project.units(), self._project.headers()
        found: dict[Path, str] = {}
        for language in sorted(set(map(language_of, units))):
            try:
                compiler = self.compilers[language]
            except BackendError:
                continue
            named = [unit for unit in units if language_of(unit) == language]
            found |= scan_headers(ScanRequest(compiler, language, options, named, own), cache)
        return found

    def _is_of_system(self, path: Path) -> bool:
        if path not in self._of_system:
            commands = [compiler.command[0] for compiler in self.compilers.values()]
            self._of_system[path] = any(is_of_system(path, command) for command in commands)
        return self._of_system[path]

    def _read_paths(self, cache: Path) -> tuple[list[Path], list[Path]]:
        """Returns the files of the user that a build reads, except libraries: sources and headers, and other files."""
        headers = [path for path in self._scan(cache) if not self._is_of_system(path)]
        code = list(dict.fromkeys([*self._project.units(), *headers, *self._project.headers()]))
        others = [*self._project.files(), *(self._command.files(self._project) if self._command else ())]
        return code, [path for path in dict.fromkeys(others) if path not in code]

    def _files(self, cache: Path) -> dict[str, str]:
        """Returns the text of sources and headers as it is now, by name seen from the first; of others, a digest."""
        code, others = self._read_paths(cache)
        first = code[0].parent
        texts = {os.path.relpath(path, first): path.read_text(errors="replace") for path in code}
        return texts | {os.path.relpath(path, first): digest(path.read_bytes()) for path in others}

    def signature(self, kernel: Kernel) -> CallSignature:
        """Returns how calls are distinguished."""
        return CallSignature.of(kernel.parameters)

    def key(self, kernel: Kernel, signature: Signature, mode: dict[str, str]) -> Key:
        """Returns a key of the sources without comments, this CPU, the compilers, their flags and what is linked."""
        files = self._files(kernel.cache)
        self._check(kernel, signature, self._prototype(kernel))
        source = self._source_digest(files, self._function or kernel.name)
        return Key(kernel.name, source, signature, cpu(), self._toolchain(kernel, self._tools(kernel)), mode)

    def _prototype(self, kernel: Kernel) -> list[CArgument] | None:
        """Returns the arguments of the function, from the first source that defines it."""
        texts = (path.read_text(errors="replace") for path in self._project.units())
        found = (parse_prototype(text, self._function or kernel.name) for text in texts)
        return next((arguments for arguments in found if arguments is not None), None)

    def _source_digest(self, files: Mapping[str, str], name: str) -> str:
        """Returns a digest of what the compiler sees."""
        return digest(*(f"{part}\n{normalize_source(text)}" for part, text in sorted(files.items())), name, self._sizes)

    def _toolchain(self, kernel: Kernel, tools: Mapping[str, str]) -> dict[str, str]:
        toolchain = {**tools, "flags": " ".join(self._flags)}
        if self._command is not None:
            toolchain["compile"] = " ".join([self._command.text, *filter(None, [self._command.output])])
        if libraries := describe_libraries(self._project.library_digests(self._flags, kernel.cache)):
            toolchain["libraries"] = libraries
        return toolchain

    def _tools(self, kernel: Kernel) -> dict[str, str]:
        """Returns compiler and headers of the system with which the stored artifacts were built, else those here."""
        adopted = artifacts.adopt_toolchain(kernel, partial(self._toolchain, kernel), ["compiler", "headers"])
        return adopted or self._local_tools(kernel)

    def _local_tools(self, kernel: Kernel) -> dict[str, str]:
        scanned = self._scan(kernel.cache).items()
        headers = describe_headers({path: found for path, found in scanned if self._is_of_system(path)})
        return {"compiler": self._local_version()} | ({"headers": headers} if headers else {})

    def _check(self, kernel: Kernel, signature: Signature, arguments: list[CArgument] | None) -> None:
        """Raises SignatureError for arguments that C would misread, since it cannot check them itself."""
        passed = len(kernel.parameters) + (len(signature.dims) if self._sizes == "arguments" else 0)
        if arguments is not None and len(arguments) != passed:
            raise SignatureError(
                f"{self.path.name}: the function takes {len(arguments)} arguments, the kernel passes {passed}"
            )
        check_arrays(kernel.parameters, signature, arguments, self.path.name)

    def build(self, kernel: Kernel, config: Config, signature: Signature) -> Path:
        """Builds a shared library, unless one of the same content exists."""
        options = [*self._flags, *compiler_options(config)]
        if self._sizes == "macros":
            options += [f"-D{name}={size}" for name, size in signature.dims.items()]
        files = self._files(kernel.cache)
        texts = [f"{name}\n{text}" for name, text in sorted(files.items())]
        tools = self._tools(kernel)
        # `-march=native` makes the processor part of the content.
        content = [*options, *texts, *cpu().features, cpu().model, *self._link_content(options, kernel.cache)]
        name = f"{digest(*tools.values(), *content)}.so"
        if stored := artifacts.find_artifact(kernel, name):
            return stored
        if tools != (local_tools := self._local_tools(kernel)):
            message = "%s: no stored build by %s for this call; built here by %s, with which no config was raced"
            log.warning(message, kernel.name, tools["compiler"], local_tools["compiler"])
            name = f"{digest(*local_tools.values(), *content)}.so"
            if stored := artifacts.find_artifact(kernel, name):
                return stored
        source = self._source_digest(files, self._function or kernel.name)
        toolchain = self._toolchain(kernel, local_tools)
        label = artifacts.ArtifactLabel(name, kernel.name, source, config, signature, toolchain)
        return self._compile(kernel, options, files, label)

    def _link_content(self, options: Sequence[str], cache: Path) -> list[str]:
        """Returns what a build depends on besides its options and sources: the libraries, and where they are found."""
        libraries = self._project.library_digests(options, cache)
        command = [] if self._command is None else [self._command.text, self._command.output or ""]
        folders = sorted({str(path.parent) for path in self._project.shared(options)})
        return [*command, *(f"{name} {found}" for name, found in sorted(libraries.items())), *folders]

    def _compile(
        self, kernel: Kernel, options: list[str], files: Mapping[str, str], label: artifacts.ArtifactLabel
    ) -> Path:
        if kernel.artifacts is not None:
            kernel.artifacts.before_compile(kernel.name)
        linked = self._project.library_digests(options, kernel.cache)
        with scratch_folder(kernel.cache) as scratch:
            if self._command is None:
                library = self._compile_sources(options, scratch, kernel.cache)
            else:
                library = self._run_command(self._command, kernel, label, scratch)
            if self._files(kernel.cache) != files or self._project.library_digests(options, kernel.cache) != linked:
                raise BackendError(f"{self.path.name} changed while it was being built; call again")
            return artifacts.save_artifact(kernel.cache, library.read_bytes(), label)

    def _compile_sources(self, options: list[str], scratch: Path, cache: Path) -> Path:
        """Compiles and links the sources; raises BackendError if that reads a file of the user's that is not known."""
        project, library, objects = self._project, scratch / "kernel.so", []
        located = [*project.include_options(), *project.located(options)]
        temporary = {"TMPDIR": str(scratch)}  # what a compiler that is killed leaves is removed with the folder
        for number, unit in enumerate(project.units()):
            objects.append(str(scratch / f"{number}.o"))
            compiler = self.compilers[language_of(unit)]
            rules = ["-MD", "-MF", f"{objects[-1]}.d"]
            run([*compiler.command, *located, "-fPIC", "-c", str(unit), "-o", objects[-1], *rules], environ=temporary)
        linker = self.compilers.get("c++") or self.compilers["c"]
        linked = [option for option in located if option not in _NOT_AT_LINK]
        words = ["-shared", *objects, *linked, *project.link_options(options), "-o", str(library), "-lm", "-Wl,-t"]
        trace, _ = run([*linker.command, *words], environ=temporary)
        known = [*self._known_files(cache), *map(Path, objects)]
        read = parse_make_rules("\n".join(Path(f"{name}.d").read_text(errors="replace") for name in objects))
        check_reads([*read, *traced_files(trace)], [Path(os.path.realpath(path)) for path in known], linker.command[0])
        return library

    def _known_files(self, cache: Path) -> list[Path]:
        """Returns the files of the user that are in the key."""
        code, others = self._read_paths(cache)
        return [*code, *others, *(path for paths in self._project.linked(self._flags).values() for path in paths)]

    def _run_command(
        self, command: CompileCommand, kernel: Kernel, label: artifacts.ArtifactLabel, scratch: Path
    ) -> Path:
        """Builds by the user's command; one at a time, since it may write beside the sources."""
        config, sizes = label.config, label.signature.dims if self._sizes == "macros" else {}
        values = {name: str(int(value) if isinstance(value, bool) else value) for name, value in config.items()}
        macros = [*compiler_options(config), *(f"-D{name}={size}" for name, size in sizes.items())]
        values |= {name: str(size) for name, size in sizes.items()}
        values |= {"output": str(scratch / "kernel.so"), "macros": shlex.join(macros), "flags": shlex.join(self._flags)}
        known = self._known_files(kernel.cache)
        folder = self._project.folder or Path.cwd()
        with exclusive_lock(kernel.cache / "leases" / f"build-{digest(str(folder.resolve()))}.lock"):
            return command.run(self._project, command.fill(values, list(config)), scratch, known)

    def load(self, kernel: Kernel, artifact: Path) -> Launch:
        """Loads the function from the library; it takes numpy arrays and numbers."""
        library = artifacts.load_artifact(
            artifact,
            lambda content: open_library(content, artifact),
            lambda label: self.build(kernel, label.config, label.signature),
        )
        refuse_stale_libraries(self._project.shared(self._flags))
        return self._bind(kernel, library)

    def relocate(self, kernel: Kernel, artifact: Path) -> Launch:
        """Loads the same library once more, at another address and with its own state."""
        return self._bind(kernel, open_copy(artifacts.read_artifact(artifact)[0], artifact.name))

    def _bind(self, kernel: Kernel, library: ctypes.CDLL) -> Launch:
        name = self._function or kernel.name
        try:
            function = library[name]
        except AttributeError as error:
            hint = ' (declare it extern "C")' if any(map(is_cpp, self._project.units())) else ""
            raise BackendError(f"{self.path.name} has no function {name!r}{hint}; name it with `function=`") from error
        function.restype = None
        dims = dim_places(kernel.parameters) if self._sizes == "arguments" else []
        arguments = self._prototype(kernel) or []
        if (
            arguments
            and len(arguments) == len(kernel.parameters) + len(dims)
            and all(argument.ctype for argument in arguments)
        ):
            function.argtypes = [argument.ctype for argument in arguments]
        return CLaunch(function, kernel.parameters, dims)

    def timer(self, launch: Launch, args: Sequence[Any], threads: int) -> HostTimer:
        """Returns a timer of a call as the user makes it, with the conversion of its arguments."""
        return HostTimer(partial(launch, *args), threads)


def _as_list(names: Names | str | os.PathLike[str]) -> list[str]:
    """Returns a list of names; one name alone is a list of one."""
    return [os.fspath(name) for name in ([names] if isinstance(names, str | os.PathLike) else names)]


def _refuse_sources(flags: Sequence[str], sources: Sequence[str]) -> None:
    """Raises BackendError if flags name a source, which would be compiled with the options of another."""
    named = [flag.value for flag in parse_flags(flags) if not flag.option and flag.value.endswith(SOURCE_SUFFIXES)]
    if named:
        all_sources = ", ".join(f'"{name}"' for name in [*sources, *named])
        raise BackendError(
            f"flags= names the source {named[0]}; several sources are written as sources=[{all_sources}]"
        )
