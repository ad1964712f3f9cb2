"""Main of the process that starts the workers of Triton kernels, and of a worker: it runs the configs of one call.

The former imports torch and Triton and touches no device; the latter are forked from it. A worker has a context of the
device of its own. If a config loses that, the worker ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tunewright.backends import gpu_state
from tunewright.errors import BackendError
from tunewright.measure.evaluator import Evaluator, StageListener
from tunewright.model.trial import Stage, Trial, TrialRequest
from tunewright.pools.fork_server import serve_forks
from tunewright.pools.judging import GridQuestion
from tunewright.pools.kernel_loader import load_target
from tunewright.pools.worker_main import ParentLink, WorkerMessage, serve
from tunewright.pools.worker_process import Channel
from tunewright.stores import serialization
from tunewright.triton import adapter
from tunewright.triton.configs import ConfigSpace, space_from_configs, triton_config
from tunewright.triton.installing import installed
from tunewright.triton.launching import LaunchCall
from tunewright.triton.observed_evaluator import ObservedEvaluator
from tunewright.triton.sent_arguments import (
    AskedGrid,
    CallSetup,
    SentCall,
    SentDtype,
    SentFloat,
    SentMemory,
    SentTensor,
    SentTuple,
    SentValue,
)
from tunewright.triton.tuner import TritonTuner
from tunewright.triton.workload import TritonWorkload, WorkloadOptions

RANDOM_SEED = 1
RANDOM_CHUNK = 1 << 24
"""Elements that are made at a time, to save memory."""


class WorkerEvaluator(ObservedEvaluator):
    """Evaluates configs in a worker."""

    def prepare(self) -> None:
        """Does nothing: the first trial does it, and a config that fails meanwhile is known to the parent."""

    def __call__(self, request: TrialRequest, on_stage: StageListener = lambda stage: None) -> Trial:
        """Evaluates one config."""
        on_stage(Stage.LOAD)  # what is prepared takes the time of a run
        return super().__call__(request, on_stage)


class _CallersGrid:
    """The grid of a launch, as a function of the caller in another process says."""

    def __init__(self, link: ParentLink) -> None:
        self._link = link
        self._known: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def __call__(self, named: dict[str, Any]) -> tuple[int, ...]:
        key = tuple([value for value in named.values() if _is_plain(value)])
        if key not in self._known:
            values = {name: value for name, value in named.items() if _is_plain(value)}
            reply = self._link.ask(GridQuestion(values, tuple(name for name in named if name not in values)))
            if reply.problem is not None:
                raise ValueError(reply.problem)
            self._known[key] = reply.grid
        return self._known[key]


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (bool, int, float, str)


def rebuild_call(sent: SentCall, names: Sequence[str], place: Any, link: ParentLink) -> LaunchCall:
    """Returns the call with tensors of this process."""
    with open(sent.file, "rb") as file:
        memories = [_make_memory(memory, file, place) for memory in sent.memories]

    def rebuild(value: SentValue) -> Any:
        match value:
            case SentTensor():
                empty = torch.empty(0, dtype=getattr(torch, value.dtype), device=place)
                storage = memories[value.memory].untyped_storage()
                return empty.set_(storage, value.offset, value.shape, value.stride)
            case SentTuple():
                return (list if value.is_list else tuple)(map(rebuild, value.parts))
            case SentFloat():
                return float.fromhex(value.text)
            case SentDtype():
                return adapter.Dtype(value.name)
            case AskedGrid():
                return _CallersGrid(link)
            case _:
                return value

    args = tuple(map(rebuild, sent.args))
    kwargs = {name: rebuild(value) for name, value in sent.kwargs.items()}
    return LaunchCall(args, kwargs, dict(zip(names, args, strict=False)))


def _make_memory(sent: SentMemory, file: Any, place: Any) -> Any:
    """Returns memory of this process: copied, random or zero."""
    if sent.place is not None:
        copied = np.fromfile(file, np.uint8, sent.nbytes, offset=sent.place - file.tell())
        return torch.from_numpy(copied).to(place)
    if not sent.random:
        return torch.zeros(sent.nbytes, dtype=torch.uint8, device=place)
    dtype, generator = getattr(torch, sent.random), torch.Generator(device=place).manual_seed(RANDOM_SEED)
    memory = torch.empty(sent.nbytes // dtype.itemsize, dtype=dtype, device=place)
    for part in memory.split(RANDOM_CHUNK):
        part.copy_(torch.randn(part.shape, generator=generator, device=place))
    return memory


def _configs_of(tuner: TritonTuner, setup: CallSetup, call: LaunchCall) -> ConfigSpace | None:
    """Returns the configs of a list, after pruning; None for those of a space."""
    if not setup.listed:
        return None
    tuner.nargs = dict(call.named)
    try:
        configs = space_from_configs(tuner.prune_configs(dict(call.kwargs)))
    finally:
        tuner.nargs = None
    if tuple(map(str, configs.triton_configs)) != setup.listed:
        raise BackendError("its list of configs is another one in a worker")
    return configs


def make_evaluator(setup: CallSetup, link: ParentLink) -> Evaluator:
    """Returns the evaluator of a call; raises BackendError if the call is not the same in this process."""
    with installed():
        tuner = load_target(setup.target)
    if not isinstance(tuner, TritonTuner):
        raise BackendError(f"{setup.target} is no tuned kernel in a worker")
    call = rebuild_call(setup.call, tuner.arg_names, adapter.use_device(setup.device), link)
    named = {name: value for name, value in call.all_named.items() if name in tuner.arg_names}
    if tuner.key.key(tuner.key.signature(named, tuner.key.buckets)).digest != setup.key:
        raise BackendError("its key is another one in a worker: the source, the device or the settings differ")
    configs = _configs_of(tuner, setup, call)
    options = WorkloadOptions(
        setup.default,
        tuner.options,
        lock=Path(setup.lock) if setup.lock else None,
        judged=setup.judged,
        fingerprints=setup.fingerprints,
    )
    workload = TritonWorkload(tuner, call, configs.to_triton if configs else triton_config, options)
    workload.avoided = setup.blamed
    workload.guard.on_turn = lambda config: link.send(WorkerMessage(turn=config))
    return WorkerEvaluator(workload)


def serve_call(channel: Channel) -> None:
    """Runs configs of the call that the first message describes, until the parent hangs up."""
    body = channel.wait_message()
    if body is None:
        return
    setup, link = serialization.decode(body, CallSetup), ParentLink(channel)
    sys.path[:] = setup.path
    os.environ.clear()  # noqa: TID251 - as the parent has it now
    os.environ.update(setup.environ)  # noqa: TID251
    gpu_state.callers.add(setup.parent)
    adapter.set_cache_folder(Path(setup.triton_cache))
    with _installed_driver(setup.driver):
        serve(link, lambda: _make_or_refuse(setup, link), setup.limits)
    os._exit(0)


def _make_or_refuse(setup: CallSetup, link: ParentLink) -> Evaluator:
    try:
        return make_evaluator(setup, link)
    except Exception as error:
        raise BackendError(f"{type(error).__name__}: {error}") from error


def _installed_driver(installer: tuple[str, ...]) -> AbstractContextManager[Any]:
    """Makes the simulated driver that the parent has; does nothing if its driver is a real one."""
    if not installer:
        return nullcontext()
    place, *arguments = installer
    context: AbstractContextManager[Any] = load_target(place)(*arguments)
    return context


def main() -> None:
    """Entry of the process that starts workers."""
    adapter.library_digest()  # reads all of Triton's library, once for all workers
    serve_forks(serve_call)
