"""Libraries in the cache that are damaged, swapped or planted, and what removes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np

import tunewright as tw
from hostile_corpus.case import LOSS, REFUSED, WRONG_CONFIG, Finding, NotPossibleHere, Workspace, attack, held, honest
from tunewright.model.signature import Parameter, Signature
from tunewright.ports.backend import Kernel
from tunewright.stores import artifacts, serialization
from tunewright.stores.artifact_retention import remove_stale_artifacts
from tunewright.stores.artifacts import ArtifactLabel
from tunewright.stores.scratch import remove_abandoned

SOURCE = "void add(const double *x, double *y) { for (long i = 0; i < N; i++) y[i] = x[i] + K; }\n"
STRANGER = 65533


def add(x: tw.In("N"), y: tw.Out("N")) -> None: ...  # type: ignore[valid-type]


class Victim:
    """A user with a kernel whose library is in the cache, built earlier."""

    def __init__(self, workspace: Workspace, cache: Path | None = None) -> None:
        if shutil.which("cc") is None:
            raise NotPossibleHere("needs a C compiler")
        (workspace.folder / "add.c").write_text(SOURCE)
        self.kernel = Kernel("add", add, Parameter.of(add, []), cache or workspace.folder / "cache")
        self.backend = tw.C(workspace.folder / "add.c", flags="-O0")
        self.path = self.build()

    @property
    def label(self) -> Path:
        return self.path.with_name(self.path.name + artifacts.LABEL_SUFFIX)

    def build(self, number: int = 3) -> Path:
        signature = Signature.of(self.kernel.parameters, [np.ones(4), np.ones(4)])
        return self.backend.build(self.kernel, tw.Config(K=number), signature)

    def launch(self) -> float:
        x, y = np.ones(4), np.zeros(4)
        self.backend.load(self.kernel, self.build())(x, y)
        return float(y[0])

    def forge_label(self, content: bytes, **changes: str) -> None:
        """Writes a label that fits some bytes."""
        label = serialization.decode(self.label.read_bytes(), ArtifactLabel)
        changes = {"digest": sha256(content).hexdigest(), **changes}
        self.label.write_bytes(serialization.encode(msgspec.structs.replace(label, **changes)))

    def finding(self) -> Finding:
        value = self.launch()
        return held("built again") if value == 4 else Finding(WRONG_CONFIG, f"got {value}")


def evil_library(workspace: Workspace) -> bytes:
    """A library whose constructor runs code, and whose function computes something else."""
    source, library = workspace.folder / "evil.c", workspace.folder / "evil.so"
    source.write_text(workspace.c + SOURCE.replace("K;", "66;"))
    subprocess.run(["cc", "-shared", "-fPIC", "-DN=4", str(source), "-o", str(library)], check=True)
    return library.read_bytes()


def damaged(workspace: Workspace, change: Callable[[bytes], bytes]) -> Finding:
    victim = Victim(workspace)
    victim.path.write_bytes(change(victim.path.read_bytes()))
    return victim.finding()


@attack
def a_library_of_zero_length(workspace: Workspace) -> Finding:
    """What a power cut leaves of a file that was renamed and not synced."""
    return damaged(workspace, lambda content: b"")


@attack
def a_truncated_library(workspace: Workspace) -> Finding:
    """The first half: its pages beyond the end would end the process by SIGBUS."""
    return damaged(workspace, lambda content: content[: len(content) // 2])


@attack
def a_flipped_bit_in_the_code(workspace: Workspace) -> Finding:
    """One bit in the middle of the library."""

    def flip(content: bytes) -> bytes:
        middle = len(content) // 2
        return content[:middle] + bytes([content[middle] ^ 16]) + content[middle + 1 :]

    return damaged(workspace, flip)


@attack
def a_swapped_library_with_a_constructor(workspace: Workspace) -> Finding:
    """Another library under the name of the one that was built; loading it runs code."""
    evil = evil_library(workspace)
    return damaged(workspace, lambda content: evil)


@attack
def the_library_of_another_config(workspace: Workspace) -> Finding:
    """A library that this user built, with its label, under the name of another."""
    victim = Victim(workspace)
    other = victim.build(7)
    shutil.copy(other, victim.path)
    shutil.copy(other.with_name(other.name + artifacts.LABEL_SUFFIX), victim.label)
    return victim.finding()


@attack
def a_forged_label(workspace: Workspace) -> Finding:
    """A label with the digest of another library than the one beside it."""
    victim, evil = Victim(workspace), evil_library(workspace)
    victim.forge_label(evil)
    return victim.finding()


@attack
def a_forged_pair_of_another_user(workspace: Workspace) -> Finding:
    """Library and label both forged, in a folder that another user owns, as a cache in /tmp."""
    if os.geteuid() != 0:
        raise NotPossibleHere("needs root, to make files of another user")
    victim, evil = Victim(workspace), evil_library(workspace)
    victim.path.write_bytes(evil)
    victim.forge_label(evil)
    for path in (victim.path.parent, victim.path, victim.label):
        os.chown(path, STRANGER, STRANGER)
    return victim.finding()


@attack
def a_forged_pair_that_all_may_write(workspace: Workspace) -> Finding:
    """Library and label both forged through rights that the files should not have."""
    victim, evil = Victim(workspace), evil_library(workspace)
    victim.path.write_bytes(evil)
    victim.forge_label(evil)
    victim.path.chmod(0o666)
    victim.label.chmod(0o666)
    return victim.finding()


@attack
def a_link_in_place_of_the_library(workspace: Workspace) -> Finding:
    """A symbolic link to a library elsewhere, with a label that fits."""
    victim, evil = Victim(workspace), evil_library(workspace)
    victim.forge_label(evil)
    victim.path.unlink()
    victim.path.symlink_to(workspace.folder / "evil.so")
    return victim.finding()


@attack
def a_link_in_place_of_the_label(workspace: Workspace) -> Finding:
    """The library swapped, and its label a link to one that fits."""
    victim, evil = Victim(workspace), evil_library(workspace)
    victim.path.write_bytes(evil)
    victim.forge_label(evil)
    victim.label.symlink_to(victim.label.rename(workspace.folder / "label"))
    return victim.finding()


@attack
def a_pipe_in_place_of_the_library(workspace: Workspace) -> Finding:
    """A named pipe, which would be waited for without end."""
    victim = Victim(workspace)
    victim.path.unlink()
    os.mkfifo(victim.path)
    return victim.finding()


@attack
def a_library_of_a_terabyte(workspace: Workspace) -> Finding:
    """A sparse file, which would take up all memory."""
    victim = Victim(workspace)
    os.truncate(victim.path, 1 << 40)
    return victim.finding()


@attack
def a_label_of_nested_brackets(workspace: Workspace) -> Finding:
    """A label that a parser would recurse into."""
    victim = Victim(workspace)
    victim.label.write_bytes(b"[" * 500_000)
    return victim.finding()


@attack
def a_library_that_is_swapped_all_the_time(workspace: Workspace) -> Finding:
    """Another thread writes the library in place, again and again, between check and load."""
    victim, evil = Victim(workspace), evil_library(workspace)
    good, stop = victim.path.read_bytes(), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for content in (evil, good):
                victim.path.write_bytes(content)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        values = set()
        for _ in range(20):
            try:
                values.add(victim.launch())
            except tw.TunewrightError:
                continue  # it was swapped again before it was loaded
    finally:
        stop.set()
        thread.join()
    return held("never loaded") if values <= {4.0} else Finding(WRONG_CONFIG, f"got {values}")


@attack
def an_attached_library_that_does_not_fit_its_label(workspace: Workspace) -> Finding:
    """Bytes from elsewhere under a label of the ones that were built."""
    victim, evil = Victim(workspace), evil_library(workspace)
    label = serialization.decode(victim.label.read_bytes(), ArtifactLabel)
    artifacts.unpack(victim.kernel.cache, evil, label)
    return victim.finding()


@attack
def a_link_in_the_cache_that_leads_elsewhere(workspace: Workspace) -> Finding:
    """Folders of the cache that are links to the user's own, when old artifacts are removed."""
    victim, own = Victim(workspace), workspace.folder / "documents"
    (own / "letters").mkdir(parents=True)
    for path in (own / "thesis.txt", own / "letters/one.txt"):
        path.write_text("years of work")
        os.utime(path, (0, 0))
    shutil.rmtree(victim.kernel.cache / "scratch")
    for name in ("scratch", "headers", "digests", "artifacts/zz", "artifacts/applied"):
        shutil.rmtree(victim.kernel.cache / name, ignore_errors=True)
        (victim.kernel.cache / name).symlink_to(own)
    remove_stale_artifacts(victim.kernel.cache, 0.0)
    remove_abandoned(victim.kernel.cache)
    left = [path for path in own.rglob("*") if path.is_file()]
    return held("left alone") if len(left) == 2 else Finding(LOSS, f"only {left} is left")


@honest
def a_library_that_was_built_before(workspace: Workspace) -> Finding:
    """The plain case: found, checked, loaded, not built again."""
    victim = Victim(workspace)
    before = victim.path.stat().st_ino
    value = victim.launch()
    return held() if value == 4 and victim.path.stat().st_ino == before else Finding(REFUSED, "it was built again")


@honest
def a_cache_behind_a_link(workspace: Workspace) -> Finding:
    """A cache that is a link to a larger disk."""
    (workspace.folder / "disk").mkdir()
    (workspace.folder / "linked").symlink_to(workspace.folder / "disk")
    victim = Victim(workspace, workspace.folder / "linked")
    before = victim.path.stat().st_ino
    value = victim.launch()
    return held() if value == 4 and victim.path.stat().st_ino == before else Finding(REFUSED, "it was built again")


@honest
def a_library_built_with_an_open_umask(workspace: Workspace) -> Finding:
    """Distributions let the group write by default."""
    before = os.umask(0o002)
    try:
        victim = Victim(workspace)
    finally:
        os.umask(before)
    inode = victim.path.stat().st_ino
    value = victim.launch()
    return held() if value == 4 and victim.path.stat().st_ino == inode else Finding(REFUSED, "it was built again")


@honest
def a_library_that_root_installed(workspace: Workspace) -> Finding:
    """An image built by root, whose programs run as another user; its cache cannot be written."""
    if os.geteuid() != 0:
        raise NotPossibleHere("needs root, to become another user")
    victim = Victim(workspace)
    inode = victim.path.stat().st_ino
    os.seteuid(STRANGER)
    try:
        x, y = np.ones(4), np.zeros(4)
        victim.backend.load(victim.kernel, victim.path)(x, y)
    finally:
        os.seteuid(0)
    return held() if y[0] == 4 and victim.path.stat().st_ino == inode else Finding(REFUSED, f"got {y[0]}")


@honest
def an_old_library_that_is_in_use(workspace: Workspace) -> Finding:
    """Built two months ago, loaded now: retention leaves it and its label."""
    victim = Victim(workspace)
    then = time.time() - 60 * 86400
    for path in (victim.path, victim.label):
        os.utime(path, (then, then))
    victim.launch()
    remove_stale_artifacts(victim.kernel.cache, None)
    return held() if artifacts.is_intact(victim.path) else Finding(REFUSED, "it was removed")
