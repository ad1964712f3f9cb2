"""Power cuts: unsafe writers are caught, safe ones are not blamed, and the shim misses nothing."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the shim is for Linux")


@pytest.fixture
def power(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import power

    yield power
    for name in [name for name in sys.modules if name.split("_")[0] == "power" or name == "figures"]:
        del sys.modules[name]


@pytest.fixture
def shim(power, tmp_path):
    return power.build_shim(tmp_path)


def cut(power, shim, name: str, limit: int = 150):
    counts, shown = power.cut(name, limit, 7, shim)
    return counts, "\n".join(shown)


def test_a_writer_that_neither_syncs_nor_renames_is_caught(power, shim) -> None:
    counts, shown = cut(power, shim, "in_place")
    assert counts["states"] >= 60
    assert counts["lost"] >= 15
    assert counts["torn"] >= 40
    assert "torn ['file 0']" in shown


def test_a_rename_before_the_content_is_on_the_disk_is_caught(power, shim) -> None:
    counts, shown = cut(power, shim, "renamed")
    assert counts["torn"] >= 40
    assert "names without contents" in shown


@pytest.mark.slow
def test_commits_that_are_acknowledged_before_they_are_synced_are_lost_but_not_torn(power, shim) -> None:
    counts, _ = cut(power, shim, "sqlite_unsynced")
    assert counts["lost"] >= 40
    assert counts["torn"] == 0


@pytest.mark.parametrize("name", ["sqlite", "sqlite_relaxed", "mirror", "artifact", "bundle", "audit"])
def test_what_we_acknowledge_survives_and_nothing_torn_is_served(power, shim, name) -> None:
    if name == "mirror":
        pytest.importorskip("redis")
    if name == "audit":
        pytest.importorskip("litestar")
    counts, shown = cut(power, shim, name, 40)
    assert counts["states"] >= 20
    assert (counts["lost"], counts["torn"]) == (0, 0), shown


def test_what_the_service_answers_survives(power, shim) -> None:
    pytest.importorskip("litestar")
    counts, shown = cut(power, shim, "service", 60)
    assert counts["acknowledged"] >= 12
    assert (counts["lost"], counts["torn"]) == (0, 0), shown


EVERY_CALL = """
import os, sys
root = sys.argv[1]
os.chdir(root)
os.mkdir("a"); folder = os.open("a", os.O_RDONLY)
file = os.open("one", os.O_RDWR | os.O_CREAT, dir_fd=folder)
os.write(file, b"x" * 3000); os.pwrite(file, b"y" * 10, 100); os.writev(file, [b"ab", b"cd"])
os.pwritev(file, [b"ef", b"gh"], 700); os.posix_fallocate(file, 4000, 500); os.ftruncate(file, 4200)
os.fdatasync(file); os.fsync(folder)
other = os.open("two", os.O_RDWR | os.O_CREAT)
os.sendfile(other, file, 0, 1000); os.copy_file_range(file, other, 500, 0, 2000)
os.truncate("two", 1500); os.link("two", "three"); os.rename("three", "a/four"); os.replace("a/four", "a/five")
os.rename("five", "six", src_dir_fd=folder, dst_dir_fd=folder); os.unlink("one", dir_fd=folder)
with open("log", "ab") as log: log.write(b"1")
with open("log", "ab") as log: log.write(b"2")
with open("two", "wb") as again: again.write(b"new")
os.mkdir("gone"); os.rmdir("gone"); os.remove("log"); os.write(file, b"after its name is gone")
"""


def test_every_kind_of_call_is_recorded(power, shim, tmp_path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    _, operations = power.record(["-c", EVERY_CALL, str(root)], root, shim)
    kinds = {operation.kind for operation in operations}
    assert kinds == {"mkdir", "create", "write", "truncate", "fsync", "fsync-folder", "link", "rename", "unlink"}


@pytest.mark.parametrize(
    "code",
    [
        "import ctypes; file = open('a', 'wb'); ctypes.CDLL(None).syscall(1, file.fileno(), b'unseen', 6)",
        "import mmap; file = open('a', 'wb+'); file.write(b'x'); file.flush(); mmap.mmap(file.fileno(), 1)[0] = 0",
    ],
)
def test_a_change_that_the_shim_cannot_see_is_not_passed_over(power, shim, tmp_path, code) -> None:
    from power_record import Missed

    if not hasattr(ctypes.CDLL(None), "syscall"):
        pytest.skip("no raw system calls here")
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(Missed, match="a"):
        power.record(["-c", f"import os; os.chdir({str(root)!r}); {code}"], root, shim)


def test_the_model_keeps_to_what_was_synced(power, shim, tmp_path) -> None:
    from power_model import Disk
    from power_states import all_of, none_of

    code = (
        "import os; root = {!r}; file = os.open(root + '/a', os.O_WRONLY | os.O_CREAT); os.write(file, b'1' * 1024);"
        "os.fsync(file); os.write(file, b'2' * 1024); os.rename(root + '/a', root + '/b')"
    )
    root = tmp_path / "root"
    root.mkdir()
    _, operations = power.record(["-c", code.format(str(root))], root, shim)
    disk = Disk()
    for operation in operations:
        disk.apply(operation)
    assert disk.state(none_of, all_of) == {}, "no name was synced"
    assert disk.state(all_of, none_of) == {"b": b"1" * 1024}
    torn = disk.state(all_of, lambda file, number, sector: sector == 1)
    assert torn == {"b": b"1" * 1024 + bytes(512) + b"2" * 512}
    assert disk.state(lambda number: number == 0, none_of) == {"a": b"1" * 1024}


@pytest.mark.slow
def test_the_benchmark_reports_every_path(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "power.py"), "--quick", "--json"], capture_output=True, text=True, check=True
    )
    figures = json.loads(done.stdout)
    assert figures["power_states"] >= 300
    assert (figures["power_lost"], figures["power_torn"]) == (0, 0)
    assert {"sqlite", "mirror", "service", "artifact", "bundle", "audit"} < figures.keys()


@pytest.mark.slow
def test_a_new_file_is_whole_at_every_moment_of_its_making(power, shim) -> None:
    root, path = shim.parent / "new", power.PATHS["sqlite_relaxed"]
    root.mkdir()
    child = [str(BENCHMARKS / "power_paths.py"), "sqlite_relaxed", str(root)]
    disk, operations = power.record(child, root, shim)
    making = [state for seed in range(4) for state in power.states(disk, operations[:28], 400, 100 * seed)]
    assert len(making) >= 100
    assert not any(power.judge(path, state, [], shim.parent / "state").torn for state in making)
