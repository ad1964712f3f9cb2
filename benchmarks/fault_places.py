"""Where the faults of `faults.py` happen: mounts of our own, a network that can be cut, a clock that can be set."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NEW_MOUNTS, NEW_NETWORK = 0x00020000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *ahead;

static int64_t jumped(void) {
    if (!ahead) {
        int file = open(getenv("FAULT_CLOCK"), O_RDONLY);
        ahead = file < 0 ? MAP_FAILED : mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
        if (ahead == MAP_FAILED) abort();
    }
    return *ahead;
}

int clock_gettime(clockid_t clock, struct timespec *told) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, told);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) told->tv_sec += jumped();
    return failed;
}

int gettimeofday(struct timeval *restrict told, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
"""
"""Stands before the C library: the clock on the wall is ahead by what a file says, all other clocks go right."""


def run(*command: str | Path) -> None:
    """Run a program that must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")


def mounts_apart() -> bool:
    """Give this process mounts of its own, which end when it does, however it does; whether that is permitted."""
    if _libc.unshare(NEW_MOUNTS):
        return False
    try:
        run("mount", "--make-rprivate", "/")
    except OSError:
        return False
    return True


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A small disk."""
    folder.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tunewright", folder)
    try:
        yield folder
    finally:
        run("umount", "-l", folder)


def set_writable(folder: Path, *, writable: bool) -> None:
    """Whether anything on a disk can be changed, also by root."""
    run("mount", "-o", f"remount,{'rw' if writable else 'ro'}", folder)


class Clock:
    """The clock on the wall of processes that are started with `environment`."""

    def __init__(self, folder: Path) -> None:
        self.file, source, shim = folder / "ahead", folder / "clock.c", folder / "clock.so"
        source.write_text(SHIM)
        run("cc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl")
        self.file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(shim), "FAULT_CLOCK": str(self.file)}


def set_ahead(file: Path, seconds: int) -> None:
    """Let the clock be ahead by that much from now on: written over in place, since processes have it mapped."""
    with file.open("r+b") as out:
        out.write(struct.pack("q", seconds))


class Network:
    """A network namespace at the end of one cable, which can be cut in several ways."""

    WAYS = ("near end down", "far end down", "packets dropped")

    def __init__(self) -> None:
        self.name = f"tunewright{os.getpid()}"
        self.near, self.far = f"twn{os.getpid()}", f"twf{os.getpid()}"
        subnet = f"10.231.{os.getpid() % 250}"
        self.address, self._here, self.subnet = f"{subnet}.2", f"{subnet}.1", f"{subnet}.0/30"

    def lay(self) -> None:
        """Make it; an OSError where that is not permitted."""
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.near, "type", "veth", "peer", "name", self.far, "netns", self.name)
        run("ip", "addr", "add", f"{self._here}/30", "dev", self.near)
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/30", "dev", self.far)
        run("ip", "link", "set", self.near, "up")
        for link in (self.far, "lo"):
            run("ip", "-n", self.name, "link", "set", link, "up")

    def remove(self) -> None:
        """Take it away, as far as it was made."""
        for command in (("link", "del", self.near), ("netns", "del", self.name)):
            with suppress(OSError):
                run("ip", *command)

    def cut(self, way: str, *, mend: bool = False) -> None:
        """Cut the cable: at either end, or so that whatever is sent disappears."""
        if way == "packets dropped":
            # A bucket that holds less than any packet.
            bucket = () if mend else ("tbf", "rate", "8bit", "burst", "1", "latency", "1ms")
            run("tc", "qdisc", "del" if mend else "add", "dev", self.near, "root", *bucket)
        else:
            place = (self.near,) if way == "near end down" else (self.far,)
            space = () if way == "near end down" else ("-n", self.name)
            run("ip", *space, "link", "set", *place, "up" if mend else "down")

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread starts meanwhile has that network, and no other."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(here)
        finally:
            os.close(here)
            os.close(there)


def _enter(network: int) -> None:
    if _libc.setns(network, NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "this network namespace cannot be entered")
