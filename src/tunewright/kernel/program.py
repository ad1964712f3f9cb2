"""Program races: the whole program that a kernel is for, raced with one config against another."""

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
from tunewright.measure.clock import Sampler
from tunewright.measure.race import Race, RaceOptions, run_race
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.ports.store import Store
from tunewright.session import Session
from tunewright.settings import Mode
from tunewright.spaces.config import Config
from tunewright.stores import locations
from tunewright.stores.memory import MemoryStore
from tunewright.stores.tiered import TieredStore

PROGRAM_RACE = RaceOptions(rounds=60, seconds=120.0)
"""The limits of a race of programs: they are slow, and few runs prove little."""

BOTH = (0, 1)


class PinnableKernel(Protocol):
    """A tuned kernel whose session can be replaced for a while."""

    declaration: Any

    @property
    def session(self) -> Session:
        """The session that makes its decisions."""
        ...

    def pinned(self, session: Session, ready: dict[Hashable, Any]) -> AbstractContextManager[None]:
        """Uses another session within the block."""
        ...


def program_race(kernel: PinnableKernel, key: Key) -> Callable[[Sequence[Config]], Race]:
    """Returns a function that races the kernel's program with different configs for `key`, by the wall clock."""
    program = kernel.declaration.program
    if isinstance(program, str):
        return lambda configs: _race_commands(kernel.session, program, key, configs)
    return lambda configs: run_race(
        [_warm(_call(kernel, program, key, config)) for config in configs], PROGRAM_RACE, protected=BOTH
    )


def _warm(sample: Sampler) -> Sampler:
    """Runs a sampler once, to build and load, and returns it."""
    sample()
    return sample


def _call(kernel: PinnableKernel, program: Callable[[], Any], key: Key, config: Config) -> Sampler:
    """Returns a sampler that runs a function with `config`; other keys get their stored decisions."""
    store = TieredStore(_with_decision(MemoryStore(), Decision(key, config)), kernel.session.store)
    session = Session(msgspec.structs.replace(kernel.session.settings, mode=Mode.FROZEN), store=store)
    ready: dict[Hashable, Any] = {}

    def sample() -> float:
        with kernel.pinned(session, ready):
            start = perf_counter()
            program()
            elapsed = perf_counter() - start
        if not session.counts["exact"] + session.counts["bucket"]:
            raise BackendError(
                f"the program never called {key.kernel} with {key.signature}, so it cannot judge a config for that; "
                "give another `program=`, or none"
            )
        return elapsed

    return sample


def _race_commands(session: Session, command: str, key: Key, configs: Sequence[Config]) -> Race:
    """Races a command; each config gets its own store with all decisions so far, and itself for `key`."""
    with tempfile.TemporaryDirectory() as folder:
        samplers = []
        for number, config in enumerate(configs):
            location = str(Path(folder) / f"{number}.sqlite")
            copy = locations.open_single(location)
            for decision in session.store.decisions():
                copy.put(decision)
            _with_decision(copy, Decision(key, config))
            samplers.append(_warm(_command(command, location, session)))
        return run_race(samplers, PROGRAM_RACE, protected=BOTH)


def _command(command: str, store: str, session: Session) -> Sampler:
    """Returns a sampler that runs a command with its decisions in `store`; it tunes nothing."""
    cache = str(session.settings.cache_path.absolute())
    settings = msgspec.structs.replace(session.settings, store=store, mode=Mode.FROZEN, cache=cache)
    environ = {**os.environ, **settings.environ()}  # noqa: TID251 - handed on

    def sample() -> float:
        start = perf_counter()
        try:
            subprocess.run(shlex.split(command), env=environ, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
            raise BackendError(f"the program {command!r} failed: {lines[-1] if lines else error}") from error
        return perf_counter() - start

    return sample


def _with_decision(store: Store, decision: Decision) -> Store:
    store.put(decision)
    return store
