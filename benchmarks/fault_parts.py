"""What the faults of `faults.py` share: counts, a yard with servers in it, and processes that do not outlive it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fault_places import Network, mounts_apart

from tunewright.testing import servers

SLACK = 5.0
"""Seconds beyond what is stated that a busy machine may take."""

HANG = 60.0
"""Seconds after which a process that should have ended hangs."""

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["fault_children", "tunewright.stores.postgres", "tunewright.stores.redis", "redis"])


@dataclass
class Tally:
    """Faults of one kind: how many, how many survived, and what went wrong."""

    injected: int = 0
    survived: int = 0
    worst: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def note(self, fault: str, wrong: Sequence[str], seconds: float = 0.0) -> None:
        """Count a fault, with what went wrong and how long it held someone up."""
        self.injected += 1
        self.survived += not wrong
        self.worst = max(self.worst, seconds)
        self.wrong += [f"{fault}: {said}" for said in dict.fromkeys(wrong)]
        if wrong:
            print(self.wrong[-1], file=sys.stderr)

    def plain(self) -> dict[str, Any]:
        return {"injected": self.injected, "survived": self.survived, "worst_seconds": round(self.worst, 2)}


class Crew:
    """Processes, of which none is left when it ends."""

    def __init__(self) -> None:
        self._members: list[BaseProcess] = []

    def start(self, does: Callable[..., None], *given: Any) -> BaseProcess:
        member = FORKS.Process(target=_quietly, args=(does, *given), daemon=True)
        member.start()
        self._members.append(member)
        return member

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members:
            member.kill()
            member.join()


def _quietly(does: Callable[..., None], *given: Any) -> None:
    """Do something without the warnings that are due, each in every process."""
    logging.disable(logging.WARNING)
    does(*given)


def kill(member: BaseProcess) -> None:
    """End it at once, wherever it is."""
    member.kill()


def ended(member: BaseProcess, until: float) -> list[str]:
    """Wait for a process; what is wrong with how it ended."""
    member.join(max(0.0, until - time.monotonic()))
    if member.exitcode is None:
        return ["a process hangs"]
    return [] if member.exitcode == 0 else [f"a process ended with {member.exitcode}"]


@dataclass
class Yard:
    """Where faults are injected: a folder, a PostgreSQL that keeps what it acknowledges, and a Redis."""

    folder: Path
    rng: random.Random
    quick: bool
    mounts: bool
    network: Network | None
    postgres: servers.Server
    redis: servers.Server
    numbers: Iterator[int] = field(default_factory=count)

    def times(self, quick: int, full: int) -> int:
        """How often to do something."""
        return quick if self.quick else full

    def fresh(self, name: str) -> Path:
        """A folder of its own."""
        made = self.folder / f"{name}{next(self.numbers)}"
        made.mkdir()
        return made

    @contextmanager
    def within(self) -> Iterator[None]:
        """Start servers here, where their network is."""
        if self.network is None:
            yield
        else:
            with self.network.inside():
                yield


@contextmanager
def yard(seed: int, *, quick: bool) -> Iterator[Yard]:
    """A yard, all of which is gone afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        folder.chmod(0o755)
        mounts = os.geteuid() == 0 and mounts_apart()
        network = Network() if mounts else None
        if network is not None:
            stack.callback(network.remove)
            try:
                network.lay()
            except OSError as error:
                print(f"no network namespace: {error}", file=sys.stderr)
                network = None
        made = Yard(folder, random.Random(seed), quick, mounts, network, None, None)  # type: ignore[arg-type]
        with made.within():
            everywhere = ("--bind", "0.0.0.0", "--protected-mode", "no") if network else ()
            made.redis = stack.enter_context(servers.redis(folder / "redis", *everywhere))
            made.postgres = stack.enter_context(
                servers.postgres(folder / "postgres", *(["listen_addresses=*"] if network else []))
            )
        if network is not None:
            with (folder / "postgres" / "data" / "pg_hba.conf").open("a") as rights:
                rights.write(f"\nhost all all {network.subnet} trust\n")
            os.kill(made.postgres.pids[0], signal.SIGHUP)
            for server in (made.redis, made.postgres):
                server.location = server.location.replace("127.0.0.1", network.address)
            time.sleep(0.2)
        yield made
