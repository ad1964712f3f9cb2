"""Artifacts in the cache: only the bytes that were built are loaded; all else is built again."""

import itertools
import os
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import pytest

import tunewright as tw
from tunewright.backends.libraries import open_copy, open_library
from tunewright.errors import BackendError, BundleError
from tunewright.model.signature import Parameter, Signature
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import Config
from tunewright.stores import artifact_retention, artifacts, serialization
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.scratch import remove_abandoned, scratch_folder

OTHER_USER = 65533
NUMBERS = itertools.count(100)  # for artifacts that no test before has loaded into this process


def add(x: tw.In("N"), y: tw.Out("N")): ...


@pytest.fixture
def kernel(tmp_path):
    source = "void add(const double *x, double *y) { for (long i = 0; i < N; i++) y[i] = x[i] + K; }"
    (tmp_path / "add.c").write_text(source)
    return Kernel("add", add, Parameter.of(add, []), tmp_path / "cache")


class Counting(tw.C):
    """A C backend that counts its builds."""

    builds = 0

    def _compile(self, *args):
        self.builds += 1
        return super()._compile(*args)


@pytest.fixture
def backend(tmp_path):
    return Counting(tmp_path / "add.c", flags="-O0")


def build(backend, kernel, number: int = 3) -> Path:
    return backend.build(kernel, Config(K=number), Signature.of(kernel.parameters, [np.ones(4), np.ones(4)]))


def result(backend, kernel, number: int = 3) -> float:
    x, y = np.ones(4), np.zeros(4)
    backend.load(kernel, build(backend, kernel, number))(x, y)
    return float(y[0])


def label_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def forge(path: Path, content: bytes, **changes) -> None:
    """Replace an artifact and make its label fit."""
    label = serialization.decode(label_of(path).read_bytes(), ArtifactLabel)
    path.write_bytes(content)
    changes.setdefault("digest", sha256(content).hexdigest())
    label_of(path).write_bytes(serialization.encode(msgspec.structs.replace(label, **changes)))


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a flipped bit": flip,
    "no label": lambda path: label_of(path).unlink(),
    "an empty label": lambda path: label_of(path).write_bytes(b""),
    "a label without a digest": lambda path: forge(path, path.read_bytes(), digest=""),
    "a label of another": lambda path: forge(path, path.read_bytes(), name="ab" * 16 + ".so"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: path.symlink_to(path.rename(path.with_name("moved"))),
    "a link in place of the label": lambda path: label_of(path).symlink_to(
        label_of(path).rename(path.with_name("moved"))
    ),
    "others may write it": lambda path: path.chmod(0o666),
    "others may write its label": lambda path: label_of(path).chmod(0o662),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_built_again(kernel, backend, damage) -> None:
    assert result(backend, kernel) == 4
    path = build(backend, kernel)
    assert backend.builds == 1, "an intact one is not built again"
    DAMAGE[damage](path)
    if damage == "a folder":
        path.rmdir()
    assert not artifacts.is_intact(path)
    assert result(backend, kernel) == 4
    assert backend.builds == 2
    assert artifacts.is_intact(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("which", ["library", "label", "both"])
def test_files_of_another_user_are_not_loaded_even_if_they_fit(kernel, backend, which) -> None:
    path = build(backend, kernel)
    planted = build(backend, kernel, 7).read_bytes()
    forge(path, planted)
    for file in {"library": [path], "label": [label_of(path)], "both": [path, label_of(path)]}[which]:
        os.chown(file, OTHER_USER, OTHER_USER)
    assert result(backend, kernel) == 4


def test_an_umask_that_lets_the_group_write_is_no_obstacle(kernel, backend) -> None:
    before = os.umask(0o002)
    try:
        path = build(backend, kernel)
    finally:
        os.umask(before)
    assert artifacts.is_intact(path)
    assert not path.stat().st_mode & 0o022


def test_a_library_that_fits_its_label_and_cannot_be_loaded_is_built_again(kernel, backend) -> None:
    path = build(backend, kernel)
    forge(path, b"this is no library")
    assert build(backend, kernel) == path
    assert backend.builds == 1
    assert result(backend, kernel) == 4
    assert backend.builds == 2


def test_one_that_is_swapped_between_build_and_load_is_not_loaded(kernel, backend) -> None:
    path = build(backend, kernel)
    path.write_bytes(build(backend, kernel, 7).read_bytes())
    y = np.zeros(4)
    backend.load(kernel, path)(np.ones(4), y)
    assert y[0] == 4


def test_a_swap_between_check_and_load_changes_nothing(kernel, backend, monkeypatch) -> None:
    """The bytes that were checked are loaded, not the file: in place, renamed or cut, it no longer matters."""
    path, other = build(backend, kernel), build(backend, kernel, 7).read_bytes()
    read = artifacts.read_artifact

    def read_then_swap(artifact):
        found = read(artifact)
        artifact.write_bytes(other)
        return found

    monkeypatch.setattr(artifacts, "read_artifact", read_then_swap)
    x, y = np.ones(4), np.zeros(4)
    launch = backend.load(kernel, path)
    path.write_bytes(b"")
    launch(x, y)
    assert y[0] == 4, "a library in use does not read the file any more"


def test_loading_again_gives_the_same_library_and_a_copy_another(kernel, backend) -> None:
    path = build(backend, kernel)
    content = path.read_bytes()
    first = open_library(content, path)
    assert open_library(content, path) is first
    copies = [open_copy(content, path.name) for _ in range(20)]
    handles = {library._handle for library in [first, *copies]}
    assert len(handles) == 21, "numbers of files are used again, and must not stand for an earlier library"
    other = open_copy(build(backend, kernel, 7).read_bytes(), "other.so")
    assert other._handle not in handles


def test_loading_leaves_no_open_file(kernel, backend) -> None:
    content = build(backend, kernel).read_bytes()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        open_copy(content, "copy.so")
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_memory_cannot_be_executed_a_private_copy_is_loaded(kernel, backend, monkeypatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert result(backend, kernel) == 4
    with pytest.raises(BackendError, match="cannot be loaded"):
        open_copy(b"nothing", "x.so")


def test_an_artifact_from_elsewhere_must_fit_its_label(tmp_path, kernel, backend) -> None:
    content, label = artifacts.read_artifact(build(backend, kernel))
    artifacts.unpack(tmp_path / "there", content, label)
    assert artifacts.is_intact(artifacts.artifact_path(tmp_path / "there", label.name))
    with pytest.raises(BundleError, match="other bytes"):
        artifacts.unpack(tmp_path / "there", content + b"x", label)


def test_a_tuned_kernel_survives_a_library_that_a_power_cut_left_empty(tmp_path, kernel) -> None:
    session = tw.Session(mode="frozen", store="memory:", cache=str(tmp_path / "own"))
    tuned = tw.tune(tw.Space(tw.Knob("K", [3])), backend=tw.C(tmp_path / "add.c", flags="-O0"), session=session)(add)
    x, y = np.ones(4), np.zeros(4)
    tuned(x, y)
    (library,) = (tmp_path / "own").rglob("*.so")
    library.write_bytes(b"")
    tuned._ready.clear()
    y[:] = 0
    tuned(x, y)
    assert y[0] == 4
    assert session.counts["compiles"] == 2


# Retention


def aged(cache: Path, days: float) -> None:
    then = time.time() - days * 86400
    for path in cache.rglob("*"):
        os.utime(path, (then, then))


@pytest.fixture
def kept(tmp_path, kernel, backend):
    """An artifact that a bundle brought, with its label and the record of the bundle, all of them old."""
    path = build(backend, kernel, next(NUMBERS))
    artifacts.record_applied(kernel.cache, "f" * 64, [artifacts.read_artifact(path)[1]])
    aged(kernel.cache, 60)
    return path


def records(kernel) -> list[ArtifactLabel]:
    return artifacts.read_applied(kernel.cache, "add")


def test_what_nobody_uses_goes_with_its_label(kernel, kept) -> None:
    count, freed = artifact_retention.remove_stale_artifacts(kernel.cache, None)
    assert (count, freed > 1000) == (1, True)
    assert not [path for path in kernel.cache.rglob("*") if path.is_file()]


def test_what_was_used_keeps_its_label_though_only_the_library_was_read(kernel, kept) -> None:
    os.utime(kept, (time.time(), kept.stat().st_mtime))
    assert artifact_retention.remove_stale_artifacts(kernel.cache, None)[0] == 0
    assert artifacts.is_intact(kept)
    assert records(kernel)


def test_a_load_counts_as_use_even_where_the_file_system_does_not_note_reads(kernel, kept) -> None:
    artifacts.read_artifact(kept)
    os.utime(kept, (0, kept.stat().st_mtime))
    assert artifact_retention.remove_stale_artifacts(kernel.cache, None)[0] == 0
    assert artifacts.is_intact(kept)


def test_what_a_living_process_has_loaded_keeps_its_label(kernel, kept) -> None:
    code = (
        "import sys, pathlib; from tunewright.backends.libraries import open_copy\n"
        "path = pathlib.Path(sys.argv[1]); open_copy(path.read_bytes(), path.name)\n"
        "print('loaded', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(kept)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "loaded\n"
        aged(kernel.cache, 60)
        assert artifact_retention.remove_stale_artifacts(kernel.cache, None)[0] == 0
        assert artifacts.is_intact(kept)
        process.stdin.close()
        process.wait()
    aged(kernel.cache, 60)
    assert artifact_retention.remove_stale_artifacts(kernel.cache, None)[0] == 1
    assert not records(kernel)


# What killed builds leave


def test_what_killed_builds_left_is_removed_by_the_next(kernel, backend, tmp_path) -> None:
    code = (
        "import os, sys, pathlib; from tunewright.stores.scratch import scratch_folder\n"
        "with scratch_folder(pathlib.Path(sys.argv[1])) as folder:\n"
        "    (folder / 'kernel.o').write_bytes(bytes(1 << 16)); os.kill(os.getpid(), 9)"
    )
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code, str(kernel.cache)], check=False)
        assert len(list((kernel.cache / "scratch").iterdir())) == 1, "each removes what the one before left"
    with scratch_folder(kernel.cache) as own:
        assert remove_abandoned(kernel.cache) == 0, "one that is in use stays"
        assert list((kernel.cache / "scratch").iterdir()) == [own]
    build(backend, kernel)
    assert not list((kernel.cache / "scratch").iterdir())


def test_temporary_files_of_killed_writers_are_removed(kernel, kept) -> None:
    left = kept.with_name(f".{kept.name}.123.456.part")
    left.write_bytes(b"half")
    os.utime(kept)
    artifact_retention.remove_stale_artifacts(kernel.cache, None)
    assert left.exists(), "its writer may still be at it"
    os.utime(left, (0, 0))
    artifact_retention.remove_stale_artifacts(kernel.cache, None)
    assert not left.exists()
    assert artifacts.is_intact(kept)


def test_two_builds_with_other_bytes_never_mix(kernel, backend) -> None:
    """Processes that save different bytes under one name leave a label and a library that belong together."""
    path = build(backend, kernel)
    _, label = artifacts.read_artifact(path)
    code = (
        "import sys, pathlib, msgspec; from tunewright.stores import artifacts, serialization\n"
        "label = serialization.decode(sys.argv[2], artifacts.ArtifactLabel)\n"
        "for i in range(200): artifacts.save_artifact(pathlib.Path(sys.argv[1]), sys.argv[3].encode() * (i + 1), label)"
    )
    command = [sys.executable, "-c", code, str(kernel.cache), serialization.encode(label).decode()]
    writers = [subprocess.Popen([*command, name]) for name in ("one", "two")]
    while any(writer.poll() is None for writer in writers):
        assert artifacts.is_intact(path)
    assert all(writer.wait() == 0 for writer in writers)
    assert artifacts.is_intact(path)
