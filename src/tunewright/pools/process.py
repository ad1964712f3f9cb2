"""A pool of worker processes of our own: one that dies costs its trial, not the pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from selectors import EVENT_READ, DefaultSelector

from tunewright.errors import PluginError
from tunewright.model.trial import Entry, Trial
from tunewright.pools.isolate import GLANCE, Isolated, Worker
from tunewright.ports.pool import Attempt
from tunewright.spaces.config import Config


class ProcessPool:
    """Up to `width` isolated workers. They build side by side; the device lease lets one of them time."""

    def __init__(self, width: int = 2) -> None:
        self.width = max(1, width)
        self._busy: list[Worker] = []
        self._idle: list[Worker] = []
        self._retried: set[Config] = set()

    def run(self, attempt: Attempt, entries: Iterable[Entry]) -> Iterator[Trial]:
        """Trials as they finish; a worker that died, hung or wrote where it must not is replaced."""
        if not isinstance(attempt, Isolated):
            raise PluginError('the process pool runs attempts that can travel; use pool="serial" for this one')
        source = iter(entries)
        try:
            exhausted = not self._fill(attempt, source)
            while self._busy:
                yield from self._collect()
                if not exhausted:
                    exhausted = not self._fill(attempt, source)
        finally:
            self.close()

    def _fill(self, attempt: Isolated, source: Iterator[Entry]) -> bool:
        """Give every free place an entry; False when there are no more."""
        while len(self._busy) < self.width:
            entry = next(source, None)
            if entry is None:
                return False
            worker = self._idle.pop() if self._idle else Worker(attempt)
            worker.give(entry)
            self._busy.append(worker)
        return True

    def _collect(self) -> Iterator[Trial]:
        """Wait until something happens; the trials that are finished by then."""
        with DefaultSelector() as selector:
            for worker in self._busy:
                selector.register(worker, EVENT_READ)
            selector.select(GLANCE)
        for worker in list(self._busy):
            if (trial := worker.collect()) is not None:
                self._busy.remove(worker)
                if worker.unborn and trial.config not in self._retried:
                    self._again(worker)
                    continue
                if worker.spent:
                    worker.close()
                else:
                    self._idle.append(worker)
                yield trial

    def _again(self, dead: Worker) -> None:
        """Give an entry whose worker never began to another, once."""
        dead.close()
        assert dead.entry is not None
        self._retried.add(dead.entry.config)
        worker = Worker(dead.attempt)
        worker.give(dead.entry)
        self._busy.append(worker)

    def close(self) -> None:
        """End every worker."""
        for worker in self._busy + self._idle:
            worker.close()
        self._busy, self._idle = [], []
