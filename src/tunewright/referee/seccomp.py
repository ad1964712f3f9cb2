"""A seccomp filter: the system calls that a contestant may not make. Everything else is allowed."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterable, Sequence

from tunewright.referee import syscalls

FORBIDDEN = (
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_open", "pidfd_getfd",
    "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tkill",
    "socket", "connect", "bind", "listen", "accept", "accept4", "shmget", "msgget", "semget",
    "mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "mount_setattr",
    "unshare", "setns", "open_by_handle_at", "quotactl", "swapon", "swapoff", "acct",
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "memfd_secret",
    "keyctl", "add_key", "request_key", "init_module", "finit_module", "delete_module", "kexec_load", "reboot",
    "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname", "syslog",
    "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "setpriority", "ioprio_set",
    "personality",
)  # fmt: skip
"""Other processes, the network, mounts, the clock, the scheduler, and whatever works in the kernel unseen."""

PROCESSES = ("fork", "vfork", "execve", "execveat")
"""How processes start, besides `clone`."""

TO_SELF = ("kill", "tgkill")
"""Signals, which may go to the process itself alone."""

CLONE_THREAD = 0x10000
SET_PARENT_DEATH_SIGNAL = 1

_LOAD, _EQUAL, _ANY_BIT, _GREATER, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32 = 0x40000000
_NO_NEW_PRIVILEGES, _SET_FILTER, _ALL_THREADS = 38, 1, 1

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, and operand, as the kernel's `sock_filter`."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def build_filter(*, processes: bool, pid: int | None) -> list[Instruction]:
    """Returns the filter; with `processes` children may be started, and signaled unless `pid` is the only one."""
    known = syscalls.numbers()
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, syscalls.ARCHITECTURES[platform.machine()]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_GREATER, 0, 1, _X32),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    program += _refuse((known[name] for name in FORBIDDEN if name in known), errno.EPERM)
    program += _refuse([known["clone3"]], errno.ENOSYS)  # its flags are out of reach: the C library uses clone then
    if not processes:
        program += _refuse((known[name] for name in PROCESSES if name in known), errno.EPERM)
        program += _refuse_unless(known["clone"], (_ANY_BIT, 1, 0, CLONE_THREAD))
    if pid is not None:
        for name in TO_SELF:
            program += _refuse_unless(known[name], (_EQUAL, 1, 0, pid))
        program += _refuse_unless(known["prlimit64"], (_EQUAL, 1, 0, 0))
    program += _refuse_unless(known["prctl"], (_EQUAL, 0, 1, SET_PARENT_DEATH_SIGNAL))
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _refuse(calls: Iterable[int], error: int) -> list[Instruction]:
    return [each for number in calls for each in ((_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | error))]


def _refuse_unless(number: int, test: Instruction) -> list[Instruction]:
    """Refuses a call unless a test of its first argument jumps over the refusal."""
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        test,
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
    ]


def forbid_new_privileges() -> None:
    """Makes this process and its children gain no privileges by executing programs."""
    syscalls.call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def install(program: Sequence[Instruction]) -> None:
    """Puts all threads of this process under a filter, for ever; raises OSError if the kernel has no filters."""
    packed = b"".join(
        code.to_bytes(2, "little") + bytes((true, false)) + operand.to_bytes(4, "little")
        for code, true, false, operand in program
    )
    buffer = ctypes.create_string_buffer(packed, len(packed))
    whole = _Program(len(program), ctypes.addressof(buffer))
    forbid_new_privileges()
    syscalls.system_call("seccomp", _SET_FILTER, _ALL_THREADS, ctypes.byref(whole))


def restrict(*, processes: bool, own_namespace: bool) -> None:
    """Restricts this process: no other processes unless allowed, and no signals to those outside."""
    install(build_filter(processes=processes, pid=None if processes and own_namespace else os.getpid()))
