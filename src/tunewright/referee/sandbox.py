"""The sandbox of a contestant, entered by its process before any of its code is loaded."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tunewright.pools.worker_process import limit_memory
from tunewright.referee import landlock, namespaces, seccomp, syscalls
from tunewright.referee.messages import ContestantSetup, SandboxReport

SCRATCH = "/tmp"
"""The only folder that a contestant can write to, in memory; it is gone with the process."""

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/sys/devices/system")
MAX_DESCRIPTORS = 64
ADDRESS_SLACK = 4 << 30
"""Bytes of addresses beyond the memory limit: libraries reserve more than they use."""

_CAPABILITY_VERSION = 0x20080522
_DROP_BOUND, _LAST_CAPABILITY = 24, 63


class SandboxBuilder:
    """Restricts this process part by part, and notes what was missing."""

    def __init__(self, setup: ContestantSetup, missing_namespaces: dict[str, str]) -> None:
        self._setup = setup
        self.active: dict[str, str] = {}
        self.missing = {f"{name} namespace": reason for name, reason in missing_namespaces.items()}
        self._has_namespace = {name: name not in missing_namespaces for name in namespaces.NAMESPACES}
        for name, has in self._has_namespace.items():
            if has:
                self.active[f"{name} namespace"] = "its own"

    @property
    def report(self) -> SandboxReport:
        """What is in force, and what is not."""
        return SandboxReport(self.active, self.missing)

    def enter_files(self) -> None:
        """Hides all files but those of the system and of Python, which become read-only."""
        os.chdir(self._setup.scratch)
        if not self._has_namespace["pid"]:
            self.missing["own file system"] = "needs a PID namespace"
            return
        self._apply("own file system", self._build_root)

    def _build_root(self) -> str:
        readable = [*readable_paths(), *self._setup.readable]
        namespaces.build_root(self._setup.scratch, readable, SCRATCH, self._setup.limits.files)
        os.chdir(SCRATCH)
        return "read-only, but for a scratch folder in memory"

    def enter_limits(self) -> None:
        """Sets limits; those on memory count from what the process has now."""
        limits = self._setup.limits
        self._apply("limits", self._limit)
        if limits.memory:
            self._apply("memory limit", self._limit_memory)

    def _limit(self) -> str:
        limits = self._setup.limits
        for kind, most in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, limits.files),
            (resource.RLIMIT_NOFILE, MAX_DESCRIPTORS),
            (resource.RLIMIT_MEMLOCK, 1 << 20),
        ):
            resource.setrlimit(kind, (most, most))
        return f"files of {limits.files >> 20} MiB, {MAX_DESCRIPTORS} descriptors, no core dumps"

    def _limit_memory(self) -> str:
        limit_memory(self._setup.limits.memory)
        now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        most = now + self._setup.limits.memory + ADDRESS_SLACK
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
        resource.setrlimit(resource.RLIMIT_DATA, (soft, soft))
        return f"{self._setup.limits.memory >> 20:,} MiB"

    def enter_rights(self) -> None:
        """Gives up privileges, files and system calls; the last step before the contestant is loaded."""
        self._apply("no capabilities", drop_capabilities)
        self._apply("landlock", self._enter_landlock)
        self._apply("seccomp", self._enter_seccomp)

    def _enter_landlock(self) -> str:
        readable = [*readable_paths(), *self._setup.readable, "/proc", "/dev"]
        own = self.active.get("own file system")
        writable = [SCRATCH, "/dev/shm", "/dev/null"] if own else [self._setup.scratch, "/dev/null"]
        version = landlock.restrict(readable, writable)
        self.missing |= landlock.lacking(version)
        return f"version {version}"

    def _enter_seccomp(self) -> str:
        processes = self._setup.limits.processes
        seccomp.restrict(processes=processes, own_namespace=self._has_namespace["pid"])
        return "no network, ptrace, mounts or clocks" + ("" if processes else ", no processes")

    def _apply(self, name: str, step: Callable[[], str]) -> None:
        if name in self._setup.without:
            self.missing[name] = "left out on purpose"
            return
        try:
            self.active[name] = step()
        except (OSError, ValueError, KeyError) as error:
            self.missing[name] = getattr(error, "strerror", None) or str(error)


def readable_paths() -> list[str]:
    """Returns the folders that Python and the libraries of the system need."""
    package = Path(__file__).resolve().parents[2]
    return [*SYSTEM_FOLDERS, sys.prefix, sys.base_prefix, sys.exec_prefix, str(package)]


def drop_capabilities() -> str:
    """Gives up all capabilities, for this process and the programs it may execute."""
    for number in range(_LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):  # a number that the kernel does not have, or no right to drop it
            syscalls.call("prctl", _DROP_BOUND, number, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    syscalls.call("capset", header, (ctypes.c_uint32 * 6)())
    return "none are left"


def die_with_parent(parent: int) -> None:
    """Makes this process end when its parent does."""
    syscalls.call("prctl", seccomp.SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() not in (parent, 0):  # 0: the parent is outside the namespace
        os._exit(1)


def keep_only(descriptor: int) -> int:
    """Closes all descriptors but one, which gets number 3; input and output go nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    os.dup2(descriptor, 3)
    os.closerange(4, max(int(name) for name in os.listdir("/proc/self/fd")) + 1)
    return 3
