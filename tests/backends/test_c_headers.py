"""Headers that a compiler reads: every one is in the key, those of the system too, and asking costs little."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from tunewright import C, Config, In, Out
from tunewright.backends import c_headers, c_project, file_digests
from tunewright.model.signature import Parameter, Signature
from tunewright.ports.backend import Kernel

SOURCE = """#include <vendor/value.h>
void fill(const double *x, double *y) { for (long i = 0; i < N; i++) y[i] = VALUE; }
"""


def fill(x: In("N"), y: Out("N")): ...


@pytest.fixture
def kernel(tmp_path):
    return Kernel("fill", fill, Parameter.of(fill, []), tmp_path / "cache")


@pytest.fixture(autouse=True)
def no_memory():
    c_headers._scans.clear()


@pytest.fixture
def folder(tmp_path):
    """A kernel with a header in `second`, and `first`, where one would be found before."""
    (tmp_path / "fill.c").write_text(SOURCE)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    write(tmp_path / "second", 1)
    return tmp_path


def write(folder, value, *, settled: bool = True) -> None:
    header = folder / "vendor/value.h"
    header.parent.mkdir(exist_ok=True)
    header.write_text(f"#define VALUE {value}\n")
    if settled:  # as a header that was installed a while ago
        then = time.time() - 60 - value
        os.utime(header, (then, then))


def key_of(backend, kernel):
    return backend.key(kernel, Signature.of(kernel.parameters, [np.ones(4), np.ones(4)]), {})


def result(backend, kernel, **knobs) -> float:
    x, y = np.ones(4), np.zeros(4)
    backend.load(kernel, backend.build(kernel, Config(knobs), Signature.of(kernel.parameters, [x, y])))(x, y)
    return float(y[0])


def compiler(folder, *options: str) -> str:
    """A compiler with options of its own, as distributions and CC have; it counts how often it preprocesses."""
    script = folder / "own-cc"
    words = " ".join(options)
    script.write_text(f'#!/bin/sh\ncase "$*" in *-M\\ *) echo run >> {folder}/runs;; esac\nexec cc {words} "$@"\n')
    script.chmod(0o755)
    return str(script)


def runs(folder) -> int:
    return len((folder / "runs").read_text().split())


WAYS = ["CPATH", "C_INCLUDE_PATH", "-I", "-isystem", "-idirafter", "compiler", "system"]


@pytest.fixture(params=WAYS)
def backend(request, folder, monkeypatch):
    """The kernel with folders of headers that the compiler finds in some way."""
    first, second, way = folder / "first", folder / "second", request.param
    if way.isupper():
        monkeypatch.setenv(way, f"{first}:{second}")
    if way == "system":
        monkeypatch.setattr(c_project, "_SYSTEM_PREFIXES", (*c_project._SYSTEM_PREFIXES, f"{folder}/"))
    options = (
        f"-isystem {first} -isystem {second}" if way in ("compiler", "system") else f"{way} {first} {way} {second}"
    )
    flags = f"-O0 {options}" if way.startswith("-") else "-O0"
    return C(folder / "fill.c", flags=flags, compiler=compiler(folder, "" if way not in WAYS[5:] else options))


def test_a_header_that_changes_is_another_key_and_another_build(backend, folder, kernel) -> None:
    before = key_of(backend, kernel)
    assert result(backend, kernel) == 1
    write(folder / "second", 2)
    assert key_of(backend, kernel) != before
    assert result(backend, kernel) == 2
    write(folder / "second", 1)
    assert key_of(backend, kernel) == before
    assert result(backend, kernel) == 1


def test_a_header_that_appears_earlier_in_the_path_is_another_key(backend, folder, kernel) -> None:
    before = key_of(backend, kernel)
    assert result(backend, kernel) == 1
    write(folder / "first", 5)
    assert key_of(backend, kernel) != before
    assert result(backend, kernel) == 5
    (folder / "first/vendor/value.h").unlink()
    assert key_of(backend, kernel) == before
    assert result(backend, kernel) == 1


def test_the_same_text_written_again_is_the_same_key(backend, folder, kernel) -> None:
    before = key_of(backend, kernel)
    write(folder / "second", 1, settled=False)
    assert key_of(backend, kernel) == before


@pytest.fixture
def plain(folder):
    own = compiler(folder, f"-isystem {folder}/second")
    return C(folder / "fill.c", flags=f"-O0 -isystem {folder}/first", compiler=own)


def test_a_header_of_the_system_is_a_field_of_its_own(folder, kernel, plain, monkeypatch) -> None:
    monkeypatch.setattr(c_project, "_SYSTEM_PREFIXES", (*c_project._SYSTEM_PREFIXES, f"{folder}/second/"))
    before = key_of(plain, kernel)
    write(folder / "second", 2)
    assert set(before.differences(key_of(plain, kernel))) == {"toolchain.headers"}


def test_the_compiler_is_asked_once_while_nothing_changes(folder, kernel, plain) -> None:
    before = key_of(plain, kernel)
    assert runs(folder) == 1
    for _ in range(3):
        assert key_of(plain, kernel) == before
    c_headers._scans.clear()  # as in another process
    assert key_of(plain, kernel) == before
    assert runs(folder) == 1
    write(folder / "second", 2)
    assert key_of(plain, kernel) != before
    assert runs(folder) == 2
    write(folder / "first", 3)
    c_headers._scans.clear()
    assert key_of(plain, kernel) != before
    assert runs(folder) == 3


def test_a_header_that_changes_twice_within_the_resolution_of_times_counts(folder, kernel, plain, monkeypatch) -> None:
    for module in (c_headers, file_digests):
        monkeypatch.setattr(module, "looks_of", lambda status: "as before")
    before = key_of(plain, kernel)
    write(folder / "second", 2)
    assert key_of(plain, kernel) != before


def test_a_damaged_note_is_not_believed(kernel, plain) -> None:
    before = key_of(plain, kernel)
    (note,) = (kernel.cache / "headers").iterdir()
    for content in (b"", b"{}", b'{"headers": {"/x": 1}}', note.read_bytes()[:-9]):
        note.write_bytes(content)
        c_headers._scans.clear()
        assert key_of(plain, kernel) == before


def test_a_header_that_only_a_knob_includes_counts(folder, kernel) -> None:
    choice = "#if OWN\n#include <vendor/value.h>\n#else\n#define VALUE 9\n#endif"
    (folder / "fill.c").write_text(SOURCE.replace("#include <vendor/value.h>", choice))
    backend = C(folder / "fill.c", flags="-O0", compiler=compiler(folder, f"-isystem {folder}/second"))
    before = key_of(backend, kernel)
    assert result(backend, kernel, OWN=1) == 1
    assert result(backend, kernel, OWN=0) == 9
    write(folder / "second", 2)
    assert key_of(backend, kernel) != before
    assert result(backend, kernel, OWN=1) == 2


def test_a_header_that_a_source_only_looks_for_counts_when_it_appears(folder, kernel, plain) -> None:
    extra = "#if __has_include(<extra.h>)\n#include <extra.h>\n#else\n#define EXTRA 0\n#endif\n"
    (folder / "fill.c").write_text(extra + SOURCE.replace("VALUE;", "VALUE + EXTRA;"))
    before = key_of(plain, kernel)
    assert result(plain, kernel) == 1
    (folder / "first/extra.h").write_text("#define EXTRA 6\n")
    assert key_of(plain, kernel) != before
    assert result(plain, kernel) == 7


def test_without_a_compiler_there_is_a_key_of_what_the_text_says(folder, kernel, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CC", raising=False)
    assert C(folder / "fill.c")._scan(kernel.cache) == {}


def test_a_static_library_of_the_system_counts_beside_the_shared_one(folder, kernel, monkeypatch) -> None:
    """Options, as -Wl,-Bstatic, decide which of the two is linked."""
    monkeypatch.setattr(c_project, "_SYSTEM_FOLDERS", (folder,))
    monkeypatch.setenv("LIBRARY_PATH", "")

    def archive(value: int) -> None:
        (folder / "own.c").write_text(f"double own(void) {{ return {value}; }}\n")
        commands = ["cc -fPIC -c own.c -o own.o", "ar rcs libown.a own.o", "cc -shared -fPIC own.c -o libown.so"]
        for command in commands[: 2 if (folder / "libown.so").exists() else 3]:
            subprocess.run(command.split(), cwd=folder, check=True)

    archive(1)
    backend = C(folder / "fill.c", flags=f"-O0 -I{folder}/second -Wl,-Bstatic -lown -Wl,-Bdynamic")
    before = key_of(backend, kernel)
    archive(2)
    assert set(before.differences(key_of(backend, kernel))) == {"toolchain.libraries"}


def test_a_fresh_process_sees_a_change_that_was_made_meanwhile(folder, kernel) -> None:
    code = (
        "import sys, pathlib, numpy as np, tunewright as tw; folder = pathlib.Path(sys.argv[1])\n"
        "session = tw.Session(mode='frozen', store='memory:', cache=str(folder / 'cache'))\n"
        "backend = tw.C(folder / 'fill.c', flags='-O0', compiler=f'cc -isystem {folder}/second')\n"
        "def fill(x: tw.In('N'), y: tw.Out('N')): ...\n"
        "fill = tw.tune(tw.Space(tw.Knob('K', [1])), backend=backend, session=session)(fill)\n"
        "x, y = np.ones(4), np.zeros(4); fill(x, y); print(fill.problem([x, y]).key.digest, y[0])"
    )

    def said() -> list[str]:
        command = [sys.executable, "-c", code, str(folder)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    first, again = said(), said()
    write(folder / "second", 2)
    changed = said()
    assert first == again
    assert changed[0] != first[0]
    assert (first[1], changed[1]) == ("1.0", "2.0")
