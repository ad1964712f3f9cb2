"""C kernels of several files, libraries and commands: what is built, and that all that is read is in the key."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tunewright import C, Config, In, Knob, Out, Session, Space, tune
from tunewright.backends import file_digests
from tunewright.backends.c_project import traced_files
from tunewright.backends.elf import needed_libraries
from tunewright.errors import BackendError
from tunewright.model.signature import Parameter, Signature
from tunewright.ports.backend import Kernel

HEAT = """#include "stencil.hpp"
extern "C" void heat(const double *u, double *v) {
    for (long i = 0; i < N; i += U) for (long j = i; j < i + U && j < N; j++) v[j] = damp(u[j]) + OFFSET;
}
"""
DAMP = "double damp(double x) { return 3 * x; }\n"
PLAIN = """double damp(double);
void heat(const double *u, double *v) {
    for (long i = 0; i < N; i += U) for (long j = i; j < i + U && j < N; j++) v[j] = damp(u[j]);
}
"""
MAKEFILE = """CFLAGS = -O1
kernel.so: heat.o damp.o
\tcc -shared -o $@ heat.o damp.o $(LIBS)
%.o: %.c
\tcc $(CFLAGS) -DU=$(U) -DN=$(N) -fPIC -c $< -o $@
"""


def heat(u: In("N"), v: Out("N")): ...


@pytest.fixture
def kernel(tmp_path):
    return Kernel("heat", heat, Parameter.of(heat, []), tmp_path / "cache")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A C++ kernel with a header in include/ and a helper in C, declared in a folder that is not the working one."""
    folder = tmp_path / "project"
    for part in ("src", "include", "lib"):
        (folder / part).mkdir(parents=True)
    (folder / "src/heat.cpp").write_text(HEAT)
    (folder / "include/stencil.hpp").write_text('#define OFFSET 1\nextern "C" double damp(double);\n')
    (folder / "src/damp.c").write_text(DAMP)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def plain(project):
    (project / "heat.c").write_text(PLAIN)
    (project / "damp.c").write_text(DAMP)
    (project / "Makefile").write_text(MAKEFILE)
    return project


def declared(folder: Path, *args, **options) -> C:
    backend = C(*args, **options)
    backend.relative_to(folder)
    return backend


def archive(folder: Path, factor: int, name: str = "damp") -> Path:
    (folder / f"{name}.c").write_text(f"double {name}(double x) {{ return {factor} * x; }}\n")
    subprocess.run(["cc", "-fPIC", "-c", f"{name}.c", "-o", f"{name}.o"], cwd=folder, check=True)
    (folder / f"lib{name}.a").unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", f"lib{name}.a", f"{name}.o"], cwd=folder, check=True)
    (folder / f"{name}.o").unlink()
    return folder / f"lib{name}.a"


def shared(folder: Path, factor: int, name: str = "damp", *needs: str) -> Path:
    inner = "".join(f"double {need}(double);" for need in needs)
    scaled = "".join(f" * {need}(1)" for need in needs)
    (folder / f"{name}.c").write_text(f"{inner} double {name}(double x) {{ return {factor} * x{scaled}; }}\n")
    library = folder / f"lib{name}.so"
    library.unlink(missing_ok=True)
    links = ["-L.", *(f"-l{need}" for need in needs)]
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library.name, f"{name}.c", *links]
    subprocess.run(command, cwd=folder, check=True)
    return library


def key_of(backend, kernel):
    return backend.key(kernel, Signature.of(kernel.parameters, [np.ones(8), np.ones(8)]), {})


def result(backend, kernel, **knobs) -> float:
    u, v = np.ones(8), np.zeros(8)
    artifact = backend.build(kernel, Config(U=1, **knobs), Signature.of(kernel.parameters, [u, v]))
    backend.load(kernel, artifact)(u, v)
    assert (v == v[0]).all()
    return float(v[0])


def in_a_process(code: str, **environ: str) -> str:
    """Run code that prints one line, in a process of its own: a library that is loaded here stays as it is."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Several sources


def test_c_and_cpp_are_built_together_relative_to_the_declaring_file(project, kernel) -> None:
    backend = declared(project, sources=["src/heat.cpp", "src/damp.c"], include=["include"], flags="-O1")
    assert result(backend, kernel) == 4
    one_and_more = declared(project, "src/heat.cpp", sources=["src/damp.c"], include="include", flags="-O1")
    assert key_of(one_and_more, kernel) == key_of(backend, kernel)
    assert len(key_of(backend, kernel).toolchain["compiler"].split("; ")) == 2


@pytest.mark.parametrize("file", ["src/damp.c", "include/stencil.hpp", "src/heat.cpp"])
def test_every_file_counts(project, kernel, file) -> None:
    backend = declared(project, sources=["src/heat.cpp", "src/damp.c"], include=["include"], flags="-O1")
    before = key_of(backend, kernel)
    assert result(backend, kernel) == 4
    text = (project / file).read_text()
    (project / file).write_text(
        text.replace("3 * x", "5 * x").replace("OFFSET 1", "OFFSET 3").replace("+ O", "+ 2 + O")
    )
    assert set(before.differences(key_of(backend, kernel))) == {"source"}
    assert result(backend, kernel) == 6


def test_paths_in_flags_are_relative_to_the_declaring_file_too(project, kernel) -> None:
    archive(project / "lib", 7)
    backend = declared(project, "src/heat.cpp", flags="-O1 -Iinclude -L lib -ldamp")
    assert result(backend, kernel) == 8


def test_moving_a_project_changes_no_key(project, kernel, tmp_path) -> None:
    archive(project / "lib", 7)
    options = dict(include=["include"], libraries=["damp"], library_paths=["lib"], flags="-O1")
    before = key_of(declared(project, "src/heat.cpp", **options), kernel)
    shutil.copytree(project, tmp_path / "elsewhere")
    assert key_of(declared(tmp_path / "elsewhere", "src/heat.cpp", **options), kernel) == before


def test_a_source_in_the_flags_is_an_error_that_says_where_it_belongs(project) -> None:
    with pytest.raises(BackendError, match=r'written as sources=\["src/heat.cpp", "src/damp.c"\]'):
        C("src/heat.cpp", flags="-Iinclude src/damp.c")
    C("src/heat.cpp", flags="-x c++ -include extra.h -D NAME.c")


def test_what_is_missing_is_said(project, kernel) -> None:
    for options, said in [
        ({"sources": ["src/none.c"]}, "no source file src/none.c"),
        ({"include": ["none"]}, "no folder none"),
        ({"libraries": ["lib/none.a"], "include": ["include"]}, "no library lib/none.a"),
        ({"output": "k.so"}, "give both, or none"),
        ({"links": ["x"]}, "no option 'links'"),
    ]:
        with pytest.raises(BackendError, match=said):
            result(declared(project, "src/heat.cpp", **options), kernel)
    with pytest.raises(BackendError, match="C needs a source"):
        C()


def test_the_function_is_checked_wherever_it_is_defined(project, kernel) -> None:
    backend = declared(project, sources=["src/damp.c", "src/heat.cpp"], include=["include"])
    with pytest.raises(Exception, match="float64"):
        backend.key(kernel, Signature.of(kernel.parameters, [np.ones(8, np.float32), np.ones(8)]), {})


# Headers


def test_a_header_that_only_the_environment_finds_counts(project, kernel, monkeypatch) -> None:
    monkeypatch.setenv("C_INCLUDE_PATH", str(project / "include"))
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(project / "include"))
    (project / "src/heat.cpp").write_text(HEAT.replace('"stencil.hpp"', "<stencil.hpp>"))
    backend = declared(project, sources=["src/heat.cpp", "src/damp.c"], flags="-O1")
    before = key_of(backend, kernel)
    assert result(backend, kernel) == 4
    header = project / "include/stencil.hpp"
    header.write_text(header.read_text().replace("OFFSET 1", "OFFSET 9"))
    assert key_of(backend, kernel) != before
    assert result(backend, kernel) == 12


def test_a_header_that_nobody_could_know_of_is_refused_until_it_is_named(project, kernel) -> None:
    (project / "src/heat.cpp").write_text(HEAT.replace("#include", "#include HEADER\n#include"))
    (project / "include/chosen.h").write_text("#define CHOSEN 1\n")
    sources, options = ["src/heat.cpp", "src/damp.c"], {"include": ["include"], "flags": "-O1"}
    with pytest.raises(BackendError, match=r"read chosen.h, which is not in the key.*sources="):
        result(declared(project, sources=sources, **options), kernel, HEADER='"chosen.h"')
    named = declared(project, sources=[*sources, "include/chosen.h"], **options)
    before = key_of(named, kernel)
    assert result(named, kernel, HEADER='"chosen.h"') == 4
    (project / "include/chosen.h").write_text("#define CHOSEN 2\n")
    assert key_of(named, kernel) != before


# Libraries


@pytest.mark.parametrize("make", [archive, shared])
@pytest.mark.parametrize(
    "options",
    [
        {"flags": "-O1 -Iinclude -Llib -ldamp"},
        {"flags": "-O1", "include": ["include"], "libraries": ["damp"], "library_paths": ["lib"]},
        {"flags": "-O1", "include": ["include"], "libraries": ["lib/libdamp{suffix}"]},
        {"flags": "-O1 -Iinclude lib/libdamp{suffix}"},
        {"flags": "-O1 -Iinclude -Llib -l:libdamp{suffix}"},
    ],
)
def test_a_library_that_changes_is_another_key_and_another_build(project, kernel, make, options) -> None:
    suffix = make(project / "lib", 3).suffix
    options = {
        name: [word.format(suffix=suffix) for word in value] if isinstance(value, list) else value.format(suffix=suffix)
        for name, value in options.items()
    }
    backend = declared(project, "src/heat.cpp", **options)
    before = key_of(backend, kernel)
    signature = Signature.of(kernel.parameters, [np.ones(8), np.ones(8)])
    first = backend.build(kernel, Config(U=1), signature)
    make(project / "lib", 5)
    assert set(before.differences(key_of(backend, kernel))) == {"toolchain.libraries"}
    second = backend.build(kernel, Config(U=1), signature)
    assert second != first
    if make is archive:
        assert result(backend, kernel) == 6
        make(project / "lib", 3)
        assert key_of(backend, kernel) == before
        return
    code = (
        "import ctypes, numpy as np; v = np.zeros(8); u = np.ones(8);"
        "at = lambda array: ctypes.c_void_p(array.ctypes.data);"
        f"ctypes.CDLL({str(second)!r}).heat(at(u), at(v)); print(v[0])"
    )
    assert in_a_process(code, LD_LIBRARY_PATH=str(project)) == "6.0"


def test_a_shared_library_that_is_rebuilt_under_a_running_process_is_not_mistaken_for_the_new_one(
    project, kernel
) -> None:
    shared(project / "lib", 3)
    backend = declared(project, "src/heat.cpp", flags="-O1 -Iinclude -Llib -ldamp")
    assert result(backend, kernel) == result(backend, kernel) == 4
    shared(project / "lib", 5)
    with pytest.raises(BackendError, match="restart the process"):
        result(backend, kernel)


def test_what_a_shared_library_needs_counts_as_well(project, kernel) -> None:
    shared(project / "lib", 2, "inner")
    library = shared(project / "lib", 3, "damp", "inner")
    assert "libinner.so" in needed_libraries(library)
    backend = declared(project, "src/heat.cpp", flags="-O1 -Iinclude -Llib -ldamp")
    before = key_of(backend, kernel)
    shared(project / "lib", 5, "inner")
    assert set(before.differences(key_of(backend, kernel))) == {"toolchain.libraries"}


def test_a_library_that_a_knob_brings_in_is_refused_until_it_is_named(project, kernel) -> None:
    archive(project / "lib", 3)
    with pytest.raises(BackendError, match=r"read libdamp.a, which is not in the key"):
        result(declared(project, "src/heat.cpp", include=["include"]), kernel, lib="-Llib -ldamp")
    named = declared(project, "src/heat.cpp", sources=["lib/libdamp.a"], include=["include"])
    before = key_of(named, kernel)
    assert result(named, kernel, lib="-Llib -ldamp") == 4
    archive(project / "lib", 5)
    assert key_of(named, kernel) != before
    assert result(named, kernel, lib="-Llib -ldamp") == 6


def test_libraries_of_the_system_need_no_naming(project, kernel) -> None:
    archive(project / "lib", 3)
    (project / "src/heat.cpp").write_text("#include <cmath>\n#include <omp.h>\n" + HEAT)
    backend = declared(project, "src/heat.cpp", flags="-O1 -fopenmp -Iinclude -Llib -ldamp -lm -lpthread")
    assert result(backend, kernel) == 4
    assert key_of(backend, kernel).toolchain["libraries"].startswith("damp ")
    assert "pthread" not in key_of(backend, kernel).toolchain["libraries"]


def test_kernels_without_libraries_have_the_key_they_had(plain, kernel) -> None:
    (plain / "heat.c").write_text(PLAIN.replace("double damp(double);", DAMP))
    assert set(key_of(declared(plain, "heat.c"), kernel).toolchain) == {"compiler", "flags"}


def test_the_trace_of_a_linker_is_read() -> None:
    trace = "/usr/lib/crti.o\n(lib/liba.a)m.o\nlib/libb.a(m.o)\nlib/libc.so\n\n"
    assert list(map(str, traced_files(trace))) == ["/usr/lib/crti.o", "lib/liba.a", "lib/libb.a", "lib/libc.so"]


# Digests of large files


def test_a_large_file_is_read_once_and_again_when_it_changes(tmp_path, monkeypatch) -> None:
    library, old = tmp_path / "lib.so", time.time() - 100
    library.write_bytes(b"a" * (file_digests.SMALL + 1))
    os.utime(library, (old, old))
    wait = file_digests.SETTLED_SECONDS
    monkeypatch.setattr(file_digests.time, "time", lambda: time.monotonic() + 1e12)
    first = file_digests.file_digest(library, tmp_path / "cache")
    (note,) = (tmp_path / "cache/digests").iterdir()
    monkeypatch.setattr(file_digests, "_remembered", {})
    assert file_digests.file_digest(library, tmp_path / "cache") == first
    note.write_text(note.read_text().replace(first, "0" * 32))
    assert file_digests.file_digest(library, tmp_path / "cache") == "0" * 32, "the note is used"
    # The same size and the same time of change: only the inode's own time tells.
    library.write_bytes(b"b" * (file_digests.SMALL + 1))
    os.utime(library, (old, old))
    assert file_digests.file_digest(library, tmp_path / "cache") not in (first, "0" * 32)
    assert wait > 0


def test_a_file_that_was_just_written_is_not_believed_to_stay(tmp_path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"a" * (file_digests.SMALL + 1))
    file_digests.file_digest(library, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


# Compilers of the environment


def wrapper(folder: Path, name: str, real: str) -> Path:
    path = folder / name
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) echo "{name} 1.0"; exit;; esac\n'
        f'echo "$@" >> {folder}/{name}.log\nexec {real} "$@"\n'
    )
    path.chmod(0o755)
    return path


def test_cc_and_cxx_of_the_environment_are_used_and_in_the_key(project, kernel, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CC", str(wrapper(tmp_path, "mycc", "cc")))
    monkeypatch.setenv("CXX", f"{wrapper(tmp_path, 'mycxx', 'c++')} -DEXTRA")

    def made(**options):
        return declared(project, sources=["src/heat.cpp", "src/damp.c"], include=["include"], flags="-O1", **options)

    assert key_of(made(), kernel).toolchain["compiler"] == "mycc 1.0; mycxx 1.0 -DEXTRA"
    assert result(made(), kernel) == 4
    assert "damp.c" in (tmp_path / "mycc.log").read_text()
    assert "-shared" in (tmp_path / "mycxx.log").read_text()
    assert key_of(made(compiler="g++"), kernel).toolchain["compiler"].startswith("g++")
    monkeypatch.setenv("CC", "nonesuch-cc")
    with pytest.raises(BackendError, match="looked for nonesuch-cc in CC"):
        key_of(made(), kernel)


# Commands of the user's own


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("make kernel.so U={U} N={N}", "kernel.so"),
        ("cc -O1 {macros} -shared -fPIC heat.c damp.c -o {output}", None),
        ("sh -c 'make kernel.so U={U} N={N} && mv kernel.so {output}'", None),
    ],
)
def test_a_command_builds(plain, kernel, command, output) -> None:
    backend = declared(plain, sources=["heat.c", "damp.c"], compile=command, output=output)
    before = key_of(backend, kernel)
    assert result(backend, kernel) == 3
    (plain / "damp.c").write_text(DAMP.replace("3", "4"))
    assert key_of(backend, kernel) != before
    assert result(backend, kernel) == 4


def test_make_never_serves_what_it_built_for_other_knobs(plain, kernel) -> None:
    (plain / "heat.c").write_text(PLAIN.replace("damp(u[j])", "U"))
    backend = declared(plain, "heat.c", sources=["damp.c"], compile="make kernel.so U={U} N={N}", output="kernel.so")
    signature = Signature.of(kernel.parameters, [np.ones(8), np.ones(8)])
    for wide in (1, 2, 4, 1):
        v = np.zeros(8)
        backend.load(kernel, backend.build(kernel, Config(U=wide), signature))(np.ones(8), v)
        assert v[0] == wide


def test_the_makefile_and_scripts_count(plain, kernel) -> None:
    (plain / "build.sh").write_text('exec cc "$@"\n')
    command = "sh build.sh {macros} -shared -fPIC heat.c damp.c -o {output}"
    backend = declared(plain, sources=["heat.c", "damp.c"], compile=command)
    before = key_of(backend, kernel)
    (plain / "Makefile").write_text(MAKEFILE.replace("-O1", "-O2"))
    after = key_of(backend, kernel)
    (plain / "build.sh").write_text('exec cc -O2 "$@"\n')
    assert len({before, after, key_of(backend, kernel)}) == 3


def test_what_a_command_reads_in_secret_is_refused(plain, kernel) -> None:
    (plain / "heat.c").write_text("#include SECRET\n" + PLAIN)
    (plain / "secret.h").write_text("\n")
    command = "cc -DSECRET='\"secret.h\"' {macros} -shared -fPIC heat.c damp.c -o {output}"
    with pytest.raises(BackendError, match=r"the build read secret.h, which is not in the key"):
        result(declared(plain, sources=["heat.c", "damp.c"], compile=command), kernel)
    named = declared(plain, sources=["heat.c", "secret.h"], compile=command)
    before = key_of(named, kernel)
    assert result(named, kernel) == 3
    (plain / "damp.c").write_text(DAMP.replace("3", "4"))
    assert key_of(named, kernel) != before, "the command names it"


def test_a_static_library_that_a_makefile_links_in_secret_is_refused_and_one_that_it_makes_is_not(
    plain, kernel
) -> None:
    library = archive(plain / "lib", 3)
    os.utime(library, (1e9, 1e9))
    linked = "kernel.so:\n\tcc -DU=$(U) -DN=$(N) -fPIC -shared heat.c -o $@ -Llib -ldamp\n"
    (plain / "Makefile").write_text(linked)
    command = {"compile": "make kernel.so U={U} N={N}", "output": "kernel.so"}
    with pytest.raises(BackendError, match=r"the build read libdamp.a, which is not in the key"):
        result(declared(plain, "heat.c", **command), kernel)
    named = declared(plain, "heat.c", libraries=["lib/libdamp.a"], **command)
    before = key_of(named, kernel)
    assert result(named, kernel) == 3
    archive(plain / "lib", 5)
    assert key_of(named, kernel) != before
    assert result(named, kernel) == 5
    (plain / "Makefile").write_text(
        linked.replace("kernel.so:", "kernel.so: lib/libdamp.a")
        + "lib/libdamp.a: damp.c\n\tcc -fPIC -c damp.c -o damp.o\n\trm -f $@\n\tar rcs $@ damp.o\n"
    )
    assert result(declared(plain, "heat.c", sources=["damp.c"], **command), kernel) == 3


def test_a_library_that_a_makefile_links_in_secret_is_refused(plain, kernel) -> None:
    shared(plain / "lib", 3)
    (plain / "Makefile").write_text(
        "kernel.so:\n\tcc -DU=$(U) -DN=$(N) -fPIC -shared heat.c -o $@ -Llib -ldamp -Wl,-rpath,$(PWD)/lib\n"
    )
    options = {"compile": "make kernel.so U={U} N={N}", "output": "kernel.so"}
    with pytest.raises(BackendError, match=r"read libdamp.so, which is not in the key"):
        result(declared(plain, "heat.c", **options), kernel)
    named = declared(plain, "heat.c", sources=["lib/libdamp.so"], **options)
    before = key_of(named, kernel)
    assert result(named, kernel) == 3
    shared(plain / "lib", 5)
    assert key_of(named, kernel) != before


@pytest.mark.parametrize(
    ("command", "output", "said"),
    [
        ("make kernel.so", None, "must say where the shared library is"),
        ("cc -o {output}", "k.so", "must say where the shared library is"),
        ("make && cp k.so {output}", None, "run without a shell"),
        ("make kernel.so N={N}", "kernel.so", r"does not use the knob U.*write \{U\}"),
        ("make kernel.so U={U} M={M}", "kernel.so", r"has \{M\}, which is no knob and no size; known: N, U"),
        ("make none.so U={U}", "none.so", "No rule to make target"),
        ("true {U}", "kernel.so", "succeeded but wrote no kernel.so"),
        ("nonesuch-build {U}", "kernel.so", "cannot run nonesuch-build"),
        ("true {U}", "heat.c", "is a source"),
    ],
)
def test_a_command_that_cannot_work_says_why(plain, kernel, command, output, said) -> None:
    with pytest.raises(BackendError, match=said):
        result(declared(plain, sources=["heat.c", "damp.c"], compile=command, output=output), kernel)
    assert (plain / "heat.c").exists()


# All together, in processes as users have them


SCRIPT = """
import numpy as np, tunewright as tw
@tw.tune(tw.Space(tw.Knob("U", [1, 2])), backend=tw.C("heat.c", flags="-O2 -L. -ldamp"))
def heat(u: tw.In("N"), v: tw.Out("N")): ...
u = np.ones(8); v = np.zeros(8); heat(u, v)
counts = tw.current_session().counts
print(v[0], "measured" if counts["measurements"] else "", *(tier for tier in ("exact", "default") if counts[tier]))
"""


@pytest.mark.slow
def test_a_rebuilt_library_is_never_answered_by_what_was_decided_before(plain, tmp_path) -> None:
    script = plain / "heat.py"
    script.write_text(SCRIPT)
    run = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    archive(plain, 3)
    assert in_a_process(run).split() == ["3.0", "measured"]
    assert in_a_process(run).split() == ["3.0", "exact"]
    archive(plain, 5)
    assert in_a_process(run, TUNEWRIGHT_MODE="frozen").split() == ["5.0", "default"]
    assert in_a_process(run).split() == ["5.0", "measured"]


def test_a_tuned_kernel_of_several_files_runs(project) -> None:
    backend = C(project / "src/heat.cpp", sources=[project / "src/damp.c"], include=[project / "include"], flags="-O1")
    tuned = tune(Space(Knob("U", [1, 2])), backend=backend, session=Session(pool="serial", trials=2))(heat)
    v = np.zeros(8)
    tuned(np.ones(8), v)
    assert v[0] == 4
