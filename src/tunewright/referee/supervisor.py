"""The supervisor of a contestant: starts it in its sandbox, lets it run for one request at a time, and takes the time.

It is a process of its own that runs no code of the contestant and has neither inputs nor expected results. Between
requests the contestant is stopped, with all its threads and processes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time

from tunewright.pools.worker_process import Channel, configure_child_process, describe_exit, resident_bytes
from tunewright.referee import namespaces, process_tree, syscalls
from tunewright.referee.contestant_main import HEADER, MAX_TEXT, NONCE, contest
from tunewright.referee.messages import (
    BatchTimes,
    ContestantSetup,
    LaunchBatch,
    LaunchTimes,
    SandboxReport,
    Started,
)
from tunewright.referee.sandbox import die_with_parent
from tunewright.referee.staging import LaunchMemory
from tunewright.stores import serialization

POLL_SECONDS = 0.02
"""Seconds between looks at the memory and the processes of a contestant that runs."""

ADOPT_ORPHANS = 36
"""The option of `prctl` that makes this process the parent of orphans below it."""

MAX_PROCESSES = 64
"""Processes that a contestant may have at once, if it may have any."""


class Supervisor:
    """Starts one contestant and times its launches."""

    def __init__(self, setup: ContestantSetup, descriptors: list[int]) -> None:
        self._setup, self._descriptors = setup, descriptors
        self._memory: LaunchMemory | None = None
        self._pid = 0
        self._exit = ""
        self._base_memory = 0
        self._others: list[int] = []
        self._is_stopped, self._charged = True, 0
        self._sock, self._their_sock = socket.socketpair()

    def start(self) -> Started:
        """Starts the contestant and has it load its code; it is stopped then."""
        without = "namespaces" in self._setup.without
        missing = dict.fromkeys(namespaces.NAMESPACES, "left out on purpose") if without else namespaces.enter()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            self._sock.close()
            os.setsid()
            die_with_parent(parent)
            contest(self._setup, self._their_sock, self._descriptors[:2], missing)
        _, results, inputs, staging = self._descriptors
        self._memory = LaunchMemory(self._setup.memory, inputs, results, staging)
        self._their_sock.close()
        channel = Channel(self._sock)
        self._sock.settimeout(self._setup.limits.start_seconds)
        try:
            body = channel.wait_message()  # said before any code of the contestant is loaded
        except TimeoutError:
            self._kill()
            return Started(error=f"its process was not ready after {self._setup.limits.start_seconds:g} s")
        if body is None:
            return Started(error=f"its process did not start: {self._reap()}")
        report = serialization.decode(body, SandboxReport)
        self._base_memory = resident_bytes(self._pid)
        times = self._exchange(b"", self._setup.limits.start_seconds)
        return Started(report, times.error, times.misbehavior)

    def launch(self, batch: LaunchBatch) -> BatchTimes:
        """Lets the contestant run a batch; afterwards it is stopped.

        Within a batch it is not stopped, which takes longer than short launches. So the results of each are kept when
        it says that they are there, and the inputs of the next come after that.
        """
        assert self._memory is not None
        done: list[LaunchTimes] = []
        for number, staged in enumerate(batch.launches):
            if self._exit:
                return BatchTimes((*done, LaunchTimes(error=self._exit)))
            self._memory.deliver(number, staged)
            is_last = number + 1 == len(batch.launches)
            body = serialization.encode(staged.launch)
            done.append(self._exchange(body, self._setup.limits.seconds, stop=is_last))
            self._memory.collect(number, staged)
            if done[-1].error or done[-1].misbehavior:
                break
        return BatchTimes(tuple(done))

    def _exchange(self, body: bytes, seconds: float, *, stop: bool = True) -> LaunchTimes:
        """Sends a request and waits for its answer; times from the request until it came, or everything is stopped.

        CPU time is counted from the end of the launch before, so that whatever runs in between is charged.
        """
        nonce = os.urandom(NONCE)
        frame = (NONCE + len(body)).to_bytes(4, "little") + nonce + body
        if self._has_spoken():
            self._kill()
            return LaunchTimes(misbehavior="it answered a request before there was one")
        others = self._others
        cpu, began = self._cpu() if self._is_stopped else self._charged, time.perf_counter_ns()
        try:
            self._sock.sendall(frame)
        except OSError:
            return LaunchTimes(error=self._reap())
        if self._is_stopped:
            for pid in (self._pid, *others):
                _signal(pid, signal.SIGCONT)
        error, misbehavior = self._wait_answer(nonce, seconds)
        self._is_stopped = stop or bool(error or misbehavior)
        if not self._exit and self._is_stopped:
            self._stop()
        wall, self._charged = time.perf_counter_ns() - began, self._cpu()
        used = self._charged - cpu
        if misbehavior or error.startswith(OVER):
            self._kill()
        return LaunchTimes(wall, max(used, 0), error or self._exit, misbehavior, 1 + len(self._others))

    def _has_spoken(self) -> bool:
        return bool(select.select([self._sock], [], [], 0)[0]) and bool(self._sock.recv(1, socket.MSG_PEEK))

    def _wait_answer(self, nonce: bytes, seconds: float) -> tuple[str, str]:
        """Waits for the answer with this nonce; returns an error, and what no honest contestant does."""
        deadline, data = time.monotonic() + seconds, b""
        while True:
            if select.select([self._sock], [], [], POLL_SECONDS)[0]:
                part = self._sock.recv(HEADER.size + MAX_TEXT)
                if not part:
                    return self._reap(), ""
                data += part
                if len(data) >= HEADER.size:
                    echoed, fine, length = HEADER.unpack_from(data)
                    if echoed != nonce or length > MAX_TEXT or len(data) > HEADER.size + length:
                        return "", "it sent what is not the answer to the request"
                    if len(data) == HEADER.size + length:
                        return ("" if fine else data[HEADER.size :].decode(errors="replace") or "an error"), ""
            elif trouble := self._find_trouble(deadline, seconds):
                return trouble, ""

    def _find_trouble(self, deadline: float, seconds: float) -> str:
        """Returns which limit the running contestant is over; empty if none."""
        limits = self._setup.limits
        if time.monotonic() > deadline:
            return f"{OVER}it did not end within {seconds:g} s"
        pids = self._find_processes() if limits.processes else [self._pid]
        if len(pids) > MAX_PROCESSES:
            return f"{OVER}it had more than {MAX_PROCESSES} processes"
        used = sum(resident_bytes(pid) for pid in pids) - self._base_memory
        return f"{OVER}it used more than {limits.memory >> 20:,} MiB" if used > limits.memory else ""

    def _stop(self) -> None:
        """Stops the contestant with all threads, then the processes that it started, until there are no new ones."""
        _signal(self._pid, signal.SIGSTOP)
        _, status = os.waitpid(self._pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._exit = describe_exit(os.waitstatus_to_exitcode(status))
            return
        if not self._setup.limits.processes:
            return
        stopped: set[int] = set()
        while new := set(self._find_processes()) - {self._pid} - stopped:
            for pid in new:
                _signal(pid, signal.SIGSTOP)
            stopped |= new
        self._others = sorted(stopped)

    def _find_processes(self) -> list[int]:
        """Returns the contestant and all processes that it started; orphans come to it, or to this process."""
        return process_tree.descendants(os.getpid())

    def _cpu(self) -> int:
        if not self._setup.limits.processes:
            return process_tree.cpu_nanoseconds(self._pid)
        alive = sum(map(process_tree.cpu_nanoseconds, (self._pid, *self._others)))
        return alive + process_tree.reaped_nanoseconds(self._pid)

    def _reap(self) -> str:
        """Waits for the end of the contestant, and says how it ended."""
        if not self._exit:
            if self._hangs():
                _signal(self._pid, signal.SIGKILL)
            self._exit = describe_exit(os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]))
        return self._exit

    def _hangs(self) -> bool:
        """Whether the contestant closed its socket and goes on."""
        for _ in range(50):
            if os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _kill(self) -> None:
        if not self._exit:
            _signal(self._pid, signal.SIGKILL)
            self._reap()
        while left := self._find_processes():
            for pid in left:
                _signal(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    def close(self) -> None:
        """Ends the contestant and whatever it started."""
        if self._pid:
            self._kill()


OVER = "limit: "
"""Begins the errors of contestants that were ended."""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def main() -> None:
    """Serves the referee that started this process; arguments are descriptors of the socket and of shared memory.

    That is: inputs for reading only, results, inputs, and staged launches.
    """
    configure_child_process()
    syscalls.call("prctl", ADOPT_ORPHANS, 1, 0, 0, 0)
    channel, memory = Channel(socket.socket(fileno=int(sys.argv[1]))), [int(text) for text in sys.argv[2:]]
    body = channel.wait_message()
    if body is None:
        return
    supervisor = Supervisor(serialization.decode(body, ContestantSetup), memory)
    channel.send(supervisor.start())
    while (body := channel.wait_message()) is not None:
        channel.send(supervisor.launch(serialization.decode(body, LaunchBatch)))
    supervisor.close()
