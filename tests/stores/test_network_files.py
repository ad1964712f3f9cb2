"""Where hosts share files, each has its own mirror and lock, and says so once."""

import fcntl
import logging
import os

import pytest

from tunewright.stores import network_files
from tunewright.stores.file_lock import exclusive_lock
from tunewright.stores.locations import mirror_path
from tunewright.stores.network_files import filesystem_type, host_path, network_filesystem

NFS, LUSTRE, EXT4, TMPFS = 0x6969, 0x0BD00BD0, 0xEF53, 0x01021994


@pytest.mark.parametrize(("number", "name"), [(NFS, "NFS"), (LUSTRE, "Lustre"), (0xFF534D42, "CIFS"), (EXT4, "")])
def test_a_network_file_system_is_known_by_its_number(tmp_path, number, name) -> None:
    assert network_filesystem(tmp_path / "not" / "yet", lambda path: number) == name


def test_the_nearest_existing_folder_is_asked(tmp_path) -> None:
    asked = []
    network_filesystem(tmp_path / "a" / "b", lambda path: asked.append(path) or 0)
    assert asked == [tmp_path]


def test_the_operating_system_answers(tmp_path) -> None:
    assert filesystem_type(tmp_path) not in (0, NFS)
    assert filesystem_type(tmp_path / "missing") == 0
    if os.path.isdir("/proc/self"):
        assert filesystem_type(network_files.Path("/proc")) == 0x9FA0


def test_each_host_has_its_own_mirror_there(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(network_files, "_told", set())
    local = mirror_path("redis://host/0", tmp_path, lambda path: EXT4)
    with caplog.at_level(logging.WARNING):
        shared = [mirror_path("redis://host/0", tmp_path, lambda path: NFS) for _ in range(3)]
    assert shared[0] == local.with_name(f"{local.stem}-{os.uname().nodename}.sqlite")
    assert sum("is on NFS" in record.message for record in caplog.records) == 1
    assert host_path(tmp_path / "cpu.lock", lambda path: LUSTRE).name == f"cpu-{os.uname().nodename}.lock"


def test_a_lock_is_opened_for_writing_as_nfs_demands(tmp_path, monkeypatch) -> None:
    modes = []
    monkeypatch.setattr(fcntl, "flock", lambda file, how: modes.append(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE))
    with exclusive_lock(tmp_path / "leases" / "cpu.lock"):
        pass
    assert modes == [os.O_RDWR]


def test_a_file_system_without_locks_is_no_reason_to_fail(tmp_path, monkeypatch, caplog) -> None:
    def refuse(file, how):
        raise OSError("Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with exclusive_lock(tmp_path / "cpu.lock"):
        pass
    assert "cannot be locked" in caplog.text
