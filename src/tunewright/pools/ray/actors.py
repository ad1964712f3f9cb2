"""Actors: what runs on the machines of a cluster: a Builder builds, a Station times on its device."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from tunewright.model.trial import Entry, Trial
from tunewright.pools.isolate import Isolated, Worker
from tunewright.pools.ray.errand import Built, Errand
from tunewright.remarks import Remarks
from tunewright.sharing import artefacts, wire

log = Remarks(__name__)

FETCH_SECONDS = 60.0
"""How long a station waits for what was built elsewhere, before it builds that itself."""

Parcel = tuple[tuple[str, ...], list[Any]]
"""Names of artefacts, and where Ray has their bytes: in a list, so that Ray brings them when they are asked for."""


class Actor:
    """An isolated worker on some machine, replaced when it misbehaves."""

    builds = False

    def __init__(self, errand: bytes) -> None:
        self._attempt: Isolated = wire.decode(errand, Errand).isolated(builds=self.builds)
        self._worker: Worker | None = None
        self._busy = False

    def ready(self) -> tuple[str, int]:
        """Where this is: the machine's address and the process."""
        return ray.util.get_node_ip_address(), os.getpid()

    def overdue(self) -> float:
        """Seconds by which the present attempt is past its deadline: what a worker that cannot be ended looks like."""
        worker = self._worker
        return worker.overdue() if worker is not None and self._busy else 0.0

    def _given(self, entry: Entry) -> Worker:
        """A worker that has the entry."""
        worker = self._worker = self._worker or Worker(self._attempt)
        worker.give(entry)
        self._busy = True
        return worker

    def _put_away(self, worker: Worker) -> None:
        self._busy = False
        if worker.spent:
            self._worker = None
            worker.close()


class Builder(Actor):
    """Builds configs, and holds what it built for whoever times it."""

    builds = True

    def build(self, entry: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """What was built, in two parts: the report, and labels with contents, which stay until they are asked for."""
        given = wire.decode(entry, Entry)
        began = time.perf_counter()
        worker, trial = self._given(given), None
        while worker.built is None and trial is None:
            trial = worker.collect(worker.patience())
        names = worker.built or ()
        self._put_away(worker)
        report = Built(names, time.perf_counter() - began, trial)
        return wire.encode(report), [self._packed(name) for name in names]

    def _packed(self, name: str) -> tuple[bytes, bytes]:
        there = artefacts.place(self._attempt.cache, name)
        return there.with_name(name + artefacts.LABEL).read_bytes(), there.read_bytes()


class Station(Actor):
    """Tries configs on one device, one at a time."""

    def attempt(self, entry: bytes, parcels: Sequence[Parcel]) -> bytes:
        """The trial of an entry; what was built for it elsewhere is put into this machine's cache first."""
        for names, held in parcels:
            self._unpack(names, held)
        given = wire.decode(entry, Entry)
        trial = self._tried(given)
        return wire.encode(trial)

    def _tried(self, entry: Entry) -> Trial:
        for last in (False, True):
            worker, trial = self._given(entry), None
            while trial is None:
                trial = worker.collect(worker.patience())
            unborn = worker.unborn
            self._put_away(worker)
            if last or not unborn:
                break
        assert trial is not None
        return trial

    def _unpack(self, names: Sequence[str], held: Sequence[Any]) -> None:
        """What is not in this machine's cache yet comes once; if it is lost, the worker builds it."""
        cache = self._attempt.cache
        if all(artefacts.place(cache, name).is_file() for name in names):
            return
        try:
            for label, content in ray.get(held[0], timeout=FETCH_SECONDS):
                artefacts.unpack(cache, content, wire.decode(label, artefacts.Label))
        except RayError as error:
            log.warning("what was built elsewhere did not arrive, and is built here: %s", error)
