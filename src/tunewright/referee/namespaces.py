"""Namespaces: processes, network and files of a contestant's own, as root or as any user where that is allowed."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from tunewright.referee import syscalls

NAMESPACES = {"pid": 0x20000000, "network": 0x40000000, "ipc": 0x08000000, "host name": 0x04000000}
"""The kinds that a contestant has for itself, with the flag of each; mounts come later, in its own process."""

_USER, _MOUNTS = 0x10000000, 0x00020000
_NO_SETUID, _NO_DEVICES, _NO_EXECUTION = 2, 4, 8
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_DETACH = 2
_AT_CWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY_ATTRIBUTE, _NO_SETUID_ATTRIBUTE = 1, 2
_DEVICES = ("null", "zero", "full", "random", "urandom")


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user"))


def enter() -> dict[str, str]:
    """Puts what this process does next into namespaces of its own; returns why for each kind that it could not.

    The next child is the first process of its PID namespace: whatever it starts dies with it.
    """
    with contextlib.suppress(OSError):
        syscalls.call("unshare", sum(NAMESPACES.values()))
        return {}
    ids = os.geteuid(), os.getegid()
    with contextlib.suppress(OSError):
        syscalls.call("unshare", _USER)
        _map_ids(*ids)
    missing = {}
    for name, flag in NAMESPACES.items():
        try:
            syscalls.call("unshare", flag)
        except OSError as error:
            missing[name] = error.strerror or str(error)
    return missing


def _map_ids(user: int, group: int) -> None:
    """Keeps the numbers of user and group in a user namespace; others do not exist in it."""
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def build_root(root: str, readable: Sequence[str], scratch: str, scratch_bytes: int) -> None:
    """Makes a file system the root of this process that has only these paths, read-only, and an empty scratch folder.

    Needs a PID namespace and an empty folder `root`. Raises OSError if a mount is refused.
    """
    syscalls.call("unshare", _MOUNTS)  # here, not in the parent, whose root would change too
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NO_SETUID | _NO_DEVICES, "size=16m,mode=755")
    _folder(root, "/proc")
    _mount("proc", f"{root}/proc", "proc", _NO_SETUID | _NO_DEVICES | _NO_EXECUTION)
    for folder in ("/dev/shm", scratch):
        _folder(root, folder)
        _mount("tmpfs", root + folder, "tmpfs", _NO_SETUID | _NO_DEVICES, f"size={scratch_bytes},mode=700")
    for path in outermost(readable):  # after the scratch folder, below which some may lie
        _bind(path, root)
    for name in _DEVICES:
        _bind(f"/dev/{name}", root)
    old = _folder(root, "/.old")
    syscalls.system_call("pivot_root", root.encode(), old.encode())
    os.chdir("/")
    syscalls.call("umount2", b"/.old", _DETACH)
    os.rmdir("/.old")
    _make_read_only("/", recursive=False)


def outermost(paths: Sequence[str]) -> list[str]:
    """Returns the existing paths of which none lies below another, and for links also where they lead."""
    both = {form(path) for path in paths for form in (os.path.normpath, os.path.realpath) if os.path.exists(path)}
    existing = sorted(both)
    kept: list[str] = []
    for path in existing:
        if not any(path == above or path.startswith(f"{above.rstrip('/')}/") for above in kept):
            kept.append(path)
    return kept


def _bind(path: str, root: str) -> None:
    """Shows a path below the new root, read-only; a link stays a link."""
    target = root + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    _mount(path, target, None, _BIND | _RECURSIVE)
    if not path.startswith("/dev/"):
        _make_read_only(target, recursive=True)


def _folder(root: str, path: str) -> str:
    os.makedirs(root + path, exist_ok=True)
    return root + path


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [text.encode() if text is not None else None for text in (source, target, kind)]
    syscalls.call("mount", *texts, ctypes.c_ulong(flags), data.encode() if data else None)


def _make_read_only(path: str, *, recursive: bool) -> None:
    attributes = _MountAttributes(_READ_ONLY_ATTRIBUTE | _NO_SETUID_ATTRIBUTE, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    words = (ctypes.byref(attributes), ctypes.sizeof(attributes))
    syscalls.system_call("mount_setattr", _AT_CWD, path.encode(), flags, *words)
