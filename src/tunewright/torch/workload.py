"""The workload of a call on tensors: how its configs are built, bound to sets of arguments and judged."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tunewright.measure.kernel_workload import MAX_ROTATED_BYTES, SETS
from tunewright.spaces.config import Config
from tunewright.stores.file_lock import exclusive_lock
from tunewright.torch.candidate import BoundLaunch, Launch, TorchCandidate, TorchTimingOptions, reported_failure
from tunewright.torch.oracle import Expect, Oracle
from tunewright.torch.tensor_sets import CallArguments, TensorContents, TensorSet

Bind = Callable[..., Launch]
"""Binds what was built for a config to arguments."""


class TorchWorkload:
    """A call whose configs run in this process, since a graph under compilation cannot be sent to another.

    `build` makes a config callable with the arguments, or with `bind` what takes them; what it made is kept in `built`
    while the config works, since a graph may take minutes. `expect` says what is right on other arguments.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[Config], Any],
        call: CallArguments,
        expect: Expect,
        timing: TorchTimingOptions,
        bind: Bind = partial,
    ) -> None:
        self.name, self._build, self._timing, self._bind = name, build, timing, bind
        self._contents = TensorContents(call)
        self._oracle = Oracle(self._contents, expect)
        self._sets: list[TensorSet] = []
        self.built: dict[Config, Any] = {}

    @property
    def lock(self) -> Path | None:
        """The file that one process at a time holds while it measures."""
        return self._timing.lock

    @property
    def oracle_seconds(self) -> float:
        """About how long the expected results of new contents take."""
        return self._oracle.seconds

    def prepare(self) -> None:
        """Makes the arguments and computes the first expected results. Raises BackendError if that fails."""
        if not self._sets:
            with exclusive_lock(self.lock):
                self._oracle.prepare()
            self._make_sets()

    def renew(self) -> None:
        """Replaces the sets by others, with contents that no candidate has seen; whoever races holds the lock."""
        if not self._sets:
            self._oracle.prepare()
        self._oracle.renew(1 + secrets.randbelow(1 << 30))
        self._make_sets()

    def _make_sets(self) -> None:
        self._sets.clear()
        rotates = 0 < self._contents.nbytes <= MAX_ROTATED_BYTES
        self._sets += [TensorSet(self._contents) for _ in range(SETS if rotates else 1)]

    def build(self, config: Config) -> Any:
        """Returns what was built for a config, now or earlier."""
        if config not in self.built:
            with reported_failure(self._forget(config)):
                self.built[config] = self._build(config)
        return self.built[config]

    def load(self, config: Config, artifact: Any) -> TorchCandidate:
        """Binds what was built to all sets of arguments."""
        forget = self._forget(config)
        with reported_failure(forget):
            bound = [BoundLaunch(self._bind(artifact, *own.values), own, self._timing.threads) for own in self._sets]
        return TorchCandidate(bound, self._oracle, self._timing.sample_seconds, forget)

    def _forget(self, config: Config) -> Callable[[], object]:
        return partial(self.built.pop, config, None)
