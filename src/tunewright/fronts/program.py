"""Program: the whole that a kernel is for, run with one config and another, and raced."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import msgspec

from tunewright.errors import BackendError
from tunewright.measure.clock import Visit
from tunewright.measure.race import Race, Terms, run
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.session import Session
from tunewright.settings import Mode
from tunewright.spaces.config import Config
from tunewright.stores import places
from tunewright.stores.layers import Layers
from tunewright.stores.memory import MemoryStore

TERMS = Terms(rounds=60, seconds=120.0)
"""What a race of whole programs may cost: they are slow, and few runs of them tell little."""

BOTH = (0, 1)


class Pinnable(Protocol):
    """A tuned kernel, as far as a program needs it."""

    declared: Any

    @property
    def session(self) -> Session:
        """Where it gets its decisions."""
        ...

    def pinned(self, session: Session, ready: dict[Hashable, Any]) -> AbstractContextManager[None]:
        """Answer from another session within."""
        ...


def whole(kernel: Pinnable, key: Key) -> Callable[[Sequence[Config]], Race]:
    """Races the kernel's program with one config for `key` against the same with another, by the wall clock."""
    program = kernel.declared.program
    if isinstance(program, str):
        return lambda configs: _raced_commands(kernel.session, program, key, configs)
    return lambda configs: run([_warm(_call(kernel, program, key, config)) for config in configs], TERMS, kept=BOTH)


def _warm(visit: Visit) -> Visit:
    """The visit, after a first one that does not count: it builds and loads."""
    visit()
    return visit


def _call(kernel: Pinnable, program: Callable[[], Any], key: Key, config: Config) -> Visit:
    """Runs a function with `config` in force; other keys get what is stored for them."""
    store = Layers(_holding(MemoryStore(), Decision(key, config)), kernel.session.store)
    session = Session(msgspec.structs.replace(kernel.session.settings, mode=Mode.FROZEN), store=store)
    ready: dict[Hashable, Any] = {}

    def visit() -> float:
        with kernel.pinned(session, ready):
            start = perf_counter()
            program()
            took = perf_counter() - start
        if not session.counts["exact"] + session.counts["bucket"]:
            raise BackendError(
                f"the program never called {key.kernel} with {key.signature}, so it cannot judge a config for that; "
                "give another `program=`, or none"
            )
        return took

    return visit


def _raced_commands(session: Session, command: str, key: Key, configs: Sequence[Config]) -> Race:
    """Each config gets a store of its own: everything decided so far, and `config` for `key`."""
    with tempfile.TemporaryDirectory() as folder:
        visits = []
        for number, config in enumerate(configs):
            place = str(Path(folder) / f"{number}.sqlite")
            copy = places.at(place)
            for decision in session.store.decisions():
                copy.put(decision)
            _holding(copy, Decision(key, config))
            visits.append(_warm(_command(command, place, session)))
        return run(visits, TERMS, kept=BOTH)


def _command(command: str, store: str, session: Session) -> Visit:
    """Runs a command that finds its decisions in `store`, and tunes nothing."""
    cache = str(session.settings.cache_path.absolute())
    told = msgspec.structs.replace(session.settings, store=store, mode=Mode.FROZEN, cache=cache)
    environ = {**os.environ, **told.environ()}  # noqa: TID251 - handed on

    def visit() -> float:
        start = perf_counter()
        try:
            subprocess.run(shlex.split(command), env=environ, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            raise BackendError(f"the program {command!r} failed: {said[-1] if said else error}") from error
        return perf_counter() - start

    return visit


def _holding(store: Store, decision: Decision) -> Store:
    store.put(decision)
    return store
