"""The process pool: trials run in isolated worker processes; one that dies costs its trial, not the pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from selectors import EVENT_READ, DefaultSelector

from tunewright.errors import PluginError
from tunewright.model.trial import Trial, TrialRequest
from tunewright.pools.worker import IsolatedAttempt, Worker
from tunewright.pools.worker_process import POLL_SECONDS
from tunewright.ports.pool import Attempt
from tunewright.spaces.config import Config


class ProcessPool:
    """Up to `width` isolated workers. They build side by side; the device lease lets one of them time."""

    def __init__(self, width: int = 2) -> None:
        self.width = max(1, width)
        self._busy: list[Worker] = []
        self._idle: list[Worker] = []
        self._retried: set[Config] = set()

    def run(self, attempt: Attempt, entries: Iterable[TrialRequest]) -> Iterator[Trial]:
        """Yields trials as they finish; a worker that died, hung or wrote where it must not is replaced."""
        if not isinstance(attempt, IsolatedAttempt):
            raise PluginError('the process pool runs isolated attempts only; use pool="serial" for this one')
        requests = iter(entries)
        try:
            exhausted = not self._fill(attempt, requests)
            while self._busy:
                yield from self._collect()
                if not exhausted:
                    exhausted = not self._fill(attempt, requests)
        finally:
            self.close()

    def _fill(self, attempt: IsolatedAttempt, requests: Iterator[TrialRequest]) -> bool:
        """Gives every free worker a request; False when there are no more."""
        while len(self._busy) < self.width:
            request = next(requests, None)
            if request is None:
                return False
            worker = self._idle.pop() if self._idle else Worker(attempt)
            worker.submit(request)
            self._busy.append(worker)
        return True

    def _collect(self) -> Iterator[Trial]:
        """Waits until a worker reports something; yields the trials that are finished by then."""
        with DefaultSelector() as selector:
            for worker in self._busy:
                selector.register(worker, EVENT_READ)
            selector.select(POLL_SECONDS)
        for worker in list(self._busy):
            if (trial := worker.poll()) is not None:
                self._busy.remove(worker)
                if worker.never_started and trial.config not in self._retried:
                    self._retry(worker)
                    continue
                if worker.retired:
                    worker.close()
                else:
                    self._idle.append(worker)
                yield trial

    def _retry(self, dead: Worker) -> None:
        """Gives the request of a worker that never started to another, once."""
        dead.close()
        assert dead.request is not None
        self._retried.add(dead.request.config)
        worker = Worker(dead.attempt)
        worker.submit(dead.request)
        self._busy.append(worker)

    def close(self) -> None:
        """Ends every worker."""
        for worker in self._busy + self._idle:
            worker.close()
        self._busy, self._idle = [], []
