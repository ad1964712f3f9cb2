"""Ray actors of the pool: a BuildActor builds on any machine, a TimingActor times on its device."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import ray
from ray.exceptions import RayError

from tunewright.fleet.ray.job import AttemptJob, BuildReport
from tunewright.lazy_logging import LazyLogger
from tunewright.model.trial import Trial, TrialRequest
from tunewright.pools.worker import IsolatedAttempt, Worker
from tunewright.stores import artifacts, serialization

log = LazyLogger(__name__)

FETCH_TIMEOUT = 60.0
"""Seconds a timing actor waits for artifacts built elsewhere, before it builds them itself."""

RemoteArtifacts = tuple[tuple[str, ...], list[Any]]
"""Names of artifacts, and a reference to their bytes: in a list, so that Ray fetches them only when asked."""


class WorkerActor:
    """An isolated worker on some machine, replaced when it misbehaves."""

    label: ClassVar[str] = "worker"
    build_only: ClassVar[bool] = False

    def __init__(self, job: bytes) -> None:
        decoded = serialization.decode(job, AttemptJob)
        self._attempt: IsolatedAttempt = decoded.to_attempt(build_only=self.build_only)
        self._worker: Worker | None = None
        self._busy = False

    def ready(self) -> tuple[str, int]:
        """Returns the machine's address and the process id."""
        return ray.util.get_node_ip_address(), os.getpid()

    def overdue(self) -> float:
        """Seconds by which the present attempt is past its deadline; large if its worker cannot be killed."""
        worker = self._worker
        return worker.seconds_overdue() if worker is not None and self._busy else 0.0

    def _submit(self, request: TrialRequest) -> Worker:
        """Gives the request to a worker, started if there is none."""
        worker = self._worker = self._worker or Worker(self._attempt)
        worker.submit(request)
        self._busy = True
        return worker

    def _release(self, worker: Worker) -> None:
        self._busy = False
        if worker.retired:
            self._worker = None
            worker.close()


class BuildActor(WorkerActor):
    """Builds configs, and keeps the artifacts for whoever times them."""

    label = "build actor"
    build_only = True

    def build(self, entry: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """Returns the build report, and labels with contents, which stay here until they are asked for."""
        request = serialization.decode(entry, TrialRequest)
        began = time.perf_counter()
        worker, trial = self._submit(request), None
        while worker.built_names is None and trial is None:
            trial = worker.poll(worker.remaining_seconds())
        names = worker.built_names or ()
        self._release(worker)
        report = BuildReport(names, time.perf_counter() - began, trial)
        return serialization.encode(report), [self._read_artifact(name) for name in names]

    def _read_artifact(self, name: str) -> tuple[bytes, bytes]:
        content, label = artifacts.read_artifact(artifacts.artifact_path(self._attempt.cache, name))
        return serialization.encode(label), content


class TimingActor(WorkerActor):
    """Tries configs on one device, one at a time."""

    label = "timing actor"

    def attempt(self, entry: bytes, remote_artifacts: Sequence[RemoteArtifacts]) -> bytes:
        """Returns the trial of a request; artifacts built elsewhere are put into this machine's cache first."""
        for names, references in remote_artifacts:
            self._fetch(names, references)
        trial = self._try(serialization.decode(entry, TrialRequest))
        return serialization.encode(trial)

    def _try(self, request: TrialRequest) -> Trial:
        for is_last in (False, True):
            worker, trial = self._submit(request), None
            while trial is None:
                trial = worker.poll(worker.remaining_seconds())
            never_started = worker.never_started
            self._release(worker)
            if is_last or not never_started:
                break
        assert trial is not None
        return trial

    def _fetch(self, names: Sequence[str], references: Sequence[Any]) -> None:
        """Fetches artifacts that are not in this machine's cache; if they are lost, the worker builds them."""
        cache = self._attempt.cache
        if all(artifacts.is_intact(artifacts.artifact_path(cache, name)) for name in names):
            return
        try:
            for label, content in ray.get(references[0], timeout=FETCH_TIMEOUT):
                artifacts.unpack(cache, content, serialization.decode(label, artifacts.ArtifactLabel))
        except RayError as error:
            log.warning("artifacts built elsewhere did not arrive and are built here: %s", error)
