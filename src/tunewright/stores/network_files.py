"""Network file systems: files there are shared by hosts, which some locks and databases do not stand."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tunewright.lazy_logging import LazyLogger

log = LazyLogger(__name__)

NETWORK_TYPES = {
    0x6969: "NFS",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x517B: "SMB",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x01021997: "9P",
    0x7461636F: "OCFS2",
    0x01161970: "GFS2",
    0xAAD7AAEA: "PanFS",
}
"""Names of network file systems by their number (`f_type` of `statfs`)."""

Probe = Callable[[Path], int]
"""Returns the number of the file system of a path; 0 if it is unknown."""

_told: set[str] = set()


def filesystem_type(path: Path) -> int:
    """Returns the number of the file system of an existing path, from the operating system; 0 if it is unknown."""
    if not sys.platform.startswith("linux"):
        return 0
    import ctypes  # noqa: PLC0415 - slow to import, and only needed for mirrors and locks

    buffer = ctypes.create_string_buffer(512)  # more than a `struct statfs`, which begins with its type, has anywhere
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), buffer) != 0:
        return 0
    return int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) & 0xFFFFFFFF


def network_filesystem(path: Path, probe: Probe = filesystem_type) -> str:
    """Returns the name of the network file system that `path` is or will be on; "" if it is a local one."""
    path = path.expanduser().absolute()
    existing = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    return NETWORK_TYPES.get(probe(existing), "")


def host_path(path: Path, probe: Probe = filesystem_type) -> Path:
    """Returns `path`; on a network file system, one for this host alone, and says so once."""
    name = network_filesystem(path, probe)
    if not name:
        return path
    if name not in _told:
        _told.add(name)
        log.warning("%s is on %s: each host has its own files there; set `cache` to a local folder", path.parent, name)
    return path.with_name(f"{path.stem}-{os.uname().nodename}{path.suffix}")
