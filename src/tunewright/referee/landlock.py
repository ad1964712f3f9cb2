"""Landlock, where the kernel has it: which files a contestant may use; on newer kernels also TCP and signals."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from tunewright.referee import syscalls
from tunewright.referee.seccomp import forbid_new_privileges

_VERSION_QUERY = 1
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _DEVICE_CONTROL = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
"""Rights that a rule for a file, not a folder, may have."""

_TCP, _OUTSIDE = 0b11, 0b11
"""Binding and connecting; abstract sockets and signals of processes outside."""


SINCE = {2: "links between folders", 3: "truncation", 4: "TCP", 5: "device control", 6: "signals"}
"""What versions of Landlock began to restrict."""


def lacking(abi: int) -> dict[str, str]:
    """Returns what this version does not restrict, with the reason."""
    reason = "the kernel has version {} of Landlock, and it came with {}"
    return {f"landlock for {what}": reason.format(abi, since) for since, what in SINCE.items() if abi < since}


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathAttributes(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Returns which version of Landlock the kernel has; raises OSError if it has none."""
    return syscalls.system_call("landlock_create_ruleset", None, 0, _VERSION_QUERY)


def all_file_rights(abi: int) -> int:
    """Returns the rights that rules of this version know; whatever is not allowed is denied."""
    count = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    return (1 << count) - 1


def restrict(readable: Iterable[str], writable: Iterable[str]) -> int:
    """Lets this process read and write only below these paths; returns the version that does it."""
    abi = version()
    rights = all_file_rights(abi)
    attributes = _RulesetAttributes(rights, _TCP if abi >= 4 else 0, _OUTSIDE if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = syscalls.system_call("landlock_create_ruleset", ctypes.byref(attributes), size, 0)
    try:
        for path in readable:
            _allow(ruleset, path, _READ)
        for path in writable:
            _allow(ruleset, path, rights & ~_DEVICE_CONTROL)
        forbid_new_privileges()
        syscalls.system_call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        beneath = _PathAttributes(rights if os.path.isdir(path) else rights & _OF_FILES, folder)
        syscalls.system_call("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, ctypes.byref(beneath), 0)
    finally:
        os.close(folder)
