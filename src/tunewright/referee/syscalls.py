"""System calls that Python has no function for, by ctypes; Linux on x86-64 and 64-bit ARM."""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from typing import Any

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""How seccomp names a processor, by machine."""

_X86 = {
    "accept": 43, "accept4": 288, "acct": 163, "add_key": 248, "adjtimex": 159, "bind": 49, "bpf": 321,
    "clock_adjtime": 305, "clock_settime": 227, "clone": 56, "connect": 42, "delete_module": 176, "execve": 59,
    "execveat": 322, "finit_module": 313, "fork": 57, "init_module": 175, "ioprio_set": 251, "kcmp": 312,
    "kexec_load": 246, "keyctl": 250, "kill": 62, "listen": 50, "mount": 165, "msgget": 68, "open_by_handle_at": 304,
    "perf_event_open": 298, "personality": 135, "pivot_root": 155, "prctl": 157, "prlimit64": 302,
    "process_vm_readv": 310, "process_vm_writev": 311, "ptrace": 101, "quotactl": 179, "reboot": 169,
    "request_key": 249, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "sched_setaffinity": 203,
    "sched_setattr": 314, "sched_setparam": 142, "sched_setscheduler": 144, "seccomp": 317, "semget": 64,
    "setdomainname": 171, "sethostname": 170, "setns": 308, "setpriority": 141, "settimeofday": 164, "shmget": 29,
    "socket": 41, "swapoff": 168, "swapon": 167, "syslog": 103, "tgkill": 234, "tkill": 200, "umount2": 166,
    "unshare": 272, "userfaultfd": 323, "vfork": 58,
}  # fmt: skip
_ARM = {
    "accept": 202, "accept4": 242, "acct": 89, "add_key": 217, "adjtimex": 171, "bind": 200, "bpf": 280,
    "clock_adjtime": 266, "clock_settime": 112, "clone": 220, "connect": 203, "delete_module": 106, "execve": 221,
    "execveat": 281, "finit_module": 273, "init_module": 105, "ioprio_set": 30, "kcmp": 272, "kexec_load": 104,
    "keyctl": 219, "kill": 129, "listen": 201, "mount": 40, "msgget": 186, "open_by_handle_at": 265,
    "perf_event_open": 241, "personality": 92, "pivot_root": 41, "prctl": 167, "prlimit64": 261,
    "process_vm_readv": 270, "process_vm_writev": 271, "ptrace": 117, "quotactl": 60, "reboot": 142,
    "request_key": 218, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "sched_setaffinity": 122,
    "sched_setattr": 274, "sched_setparam": 118, "sched_setscheduler": 119, "seccomp": 277, "semget": 190,
    "setdomainname": 162, "sethostname": 161, "setns": 268, "setpriority": 140, "settimeofday": 170, "shmget": 194,
    "socket": 198, "swapoff": 225, "swapon": 224, "syslog": 116, "tgkill": 131, "tkill": 130, "umount2": 39,
    "unshare": 97, "userfaultfd": 282,
}  # fmt: skip
_EVERYWHERE = {
    "clone3": 435, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "io_uring_enter": 426, "io_uring_register": 427,
    "io_uring_setup": 425, "landlock_add_rule": 445, "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
    "memfd_secret": 447, "mount_setattr": 442, "move_mount": 429, "open_tree": 428, "pidfd_getfd": 438,
    "pidfd_open": 434, "pidfd_send_signal": 424, "process_madvise": 440,
}  # fmt: skip
"""Calls that are as young as common numbers."""


def numbers() -> dict[str, int]:
    """Returns the numbers of system calls on this machine, by name; raises OSError where they are not known."""
    own = {"x86_64": _X86, "aarch64": _ARM}.get(platform.machine())
    if own is None:
        raise OSError(f"the system calls of {platform.machine()} are not known here")
    return own | _EVERYWHERE


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Any) -> int:
    """Calls a function of the C library; raises OSError with its error number."""
    return _checked(name, getattr(_library(), name)(*arguments))


def system_call(name: str, *arguments: Any) -> int:
    """Makes a system call by its number; raises OSError with its error number."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(name, _library().syscall(ctypes.c_long(numbers()[name]), *words))


def _checked(name: str, result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
