"""Main of a pool's worker process: loads the kernel, tries configs, reports stages and trials."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tunewright.cases.inputs import Inputs
from tunewright.errors import BackendError, TunewrightError
from tunewright.measure.evaluator import Evaluator, Limits
from tunewright.measure.race import Race, RaceOptions
from tunewright.model.trial import Failure, Kind, Stage, Trial, TrialRequest
from tunewright.pools.kernel_loader import load_target
from tunewright.pools.worker_process import Channel, configure_child_process, limit_memory, open_child_channel
from tunewright.spaces.config import Config
from tunewright.stores import serialization


class WorkerSetup(msgspec.Struct, frozen=True):
    """The first message to a spawned worker: where the kernel is, its inputs and limits."""

    path: list[str]
    target: str
    cases: tuple[Inputs, ...]
    limits: Limits
    cache: str
    build_only: bool = False


class RaceTask(msgspec.Struct, frozen=True):
    """A race among configs that are known to work."""

    configs: tuple[Config, ...]
    options: RaceOptions
    protected: tuple[int, ...] = ()


class WorkerTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a worker: try a config, or run a race."""

    request: TrialRequest | None = None
    race: RaceTask | None = None


class WorkerMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message from a worker: it is ready, it reached a stage, it has a result, or the program itself is `broken`.

    A worker that only builds names the artifacts it `built`.
    """

    ready: bool = False
    stage: Stage | None = None
    trial: Trial | None = None
    race: Race | None = None
    built: tuple[str, ...] | None = None
    broken: str | None = None


def serve(
    channel: Channel, make_evaluator: Callable[[], Evaluator], limits: Limits, *, build_only: bool = False
) -> None:
    """Answers requests with trials, or with the names of built artifacts, until the parent hangs up."""
    try:
        evaluator = make_evaluator()
        if not build_only:
            evaluator.prepare()
    except TunewrightError as error:
        channel.send(WorkerMessage(broken=str(error)))
        return
    channel.send(WorkerMessage(ready=True))
    while (body := channel.wait_message()) is not None:
        # Comparing results takes memory too, in double precision, and is not the candidate's doing.
        limit_memory(limits.memory + 10 * evaluator.nbytes)
        task = serialization.decode(body, WorkerTask)
        try:
            if task.request is not None and build_only:
                message = _build(evaluator, task.request.config)
            elif task.request is not None:
                message = WorkerMessage(
                    trial=evaluator(task.request, lambda stage: channel.send(WorkerMessage(stage=stage)))
                )
            elif task.race is not None:
                message = WorkerMessage(race=evaluator.race(task.race.configs, task.race.options, task.race.protected))
        except TunewrightError as error:
            channel.send(WorkerMessage(broken=str(error)))
            return
        channel.send(message)


def _build(evaluator: Evaluator, config: Config) -> WorkerMessage:
    """Names the artifacts of a config that are files in the cache; a refusal of the backend is a failed trial."""
    began = time.perf_counter()
    try:
        artifacts = [getattr(artifact, "inner", artifact) for artifact in evaluator.build_artifacts(config)]
    except TunewrightError as error:
        failure = Failure(Stage.BUILD, Kind.REFUSED, str(error))
        return WorkerMessage(trial=Trial(config, failure, time.perf_counter() - began, at=time.time()))
    names = dict.fromkeys(artifact.name for artifact in artifacts if isinstance(artifact, Path))
    return WorkerMessage(built=tuple(names))


def main() -> None:
    """Entry of a spawned worker."""
    configure_child_process()
    channel = open_child_channel()
    body = channel.wait_message()
    if body is None:
        return
    setup = serialization.decode(body, WorkerSetup)
    sys.path[:] = setup.path

    def make_evaluator() -> Evaluator:
        try:
            evaluator: Evaluator = load_target(setup.target).make_evaluator(setup.cases, Path(setup.cache))
        except TunewrightError:
            raise
        except Exception as error:
            raise BackendError(f"loading {setup.target} raised {type(error).__name__}: {error}") from error
        return evaluator

    serve(channel, make_evaluator, setup.limits, build_only=setup.build_only)
