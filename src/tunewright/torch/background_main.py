"""The child that tunes a graph for another process: it reads the graph, tunes it, and sends the decisions back."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from tunewright.engine.budget import Budget
from tunewright.pools.worker_process import Channel, configure_child_process, open_child_channel
from tunewright.session import Session
from tunewright.settings import Settings
from tunewright.stores import serialization
from tunewright.torch.background import TuningReply, TuningRequest

NICENESS = 10
"""How far the priority is lowered: the model that is served comes first."""


def main() -> None:
    """Serves one request."""
    configure_child_process()
    signal.signal(signal.SIGTERM, _interrupt)
    os.nice(NICENESS)
    channel = open_child_channel()
    body = channel.wait_message()
    if body is None:
        return
    _reply(channel, serialization.decode(body, TuningRequest))
    os._exit(0)  # no pool of the compiler is waited for


def _interrupt(*_: Any) -> NoReturn:
    """Ends the search: it decides with what it has."""
    raise KeyboardInterrupt


def _reply(channel: Channel, request: TuningRequest) -> None:
    """Sends what was decided; any other error ends the process, and its parent tells the last lines of output."""
    decisions: dict[str, Any] = {}
    try:
        _tune(request, decisions)
        reply = TuningReply(decisions)
    except KeyboardInterrupt:
        reply = TuningReply(decisions, "" if request.name in decisions else "its budget ended before it was decided")
    channel.send(reply)


def _tune(request: TuningRequest, decisions: dict[str, Any]) -> None:
    """Tunes the graph of a request, and adds what was decided."""
    import torch  # noqa: PLC0415 - after the priority was lowered

    from tunewright.torch.compile_model import GraphTuner, TuningBackend  # noqa: PLC0415 - loads torch
    from tunewright.torch.inductor import traces  # noqa: PLC0415 - loads torch
    from tunewright.torch.saved_graph import LoadedGraph  # noqa: PLC0415 - loads torch

    torch.set_num_threads(request.threads)
    request.state.apply()
    graph = LoadedGraph(Path(request.folder))
    shutil.rmtree(request.folder, ignore_errors=True)  # weights may be large, and this process may be killed
    settings = msgspec.convert(request.settings, Settings)
    session = Session(settings)
    budget = _remaining(request)
    backend = TuningBackend(session, overrides=request.overrides, budget=budget, each=request.each)

    def tune(module: Any, inputs: Sequence[Any]) -> Any:
        tuner = GraphTuner.for_request(backend, module, inputs, request)
        try:
            tuner.compile()
        finally:
            if (found := session.find_decision(tuner.problem)) is not None:  # also where the search was interrupted
                decisions[request.name] = found
        return module

    try:
        if graph.symbolic:
            traces.trace_again(graph.module, graph.inputs, tune, weights=graph.weights, symbolic=graph.symbolic)
        else:
            traces.propagate_sizes(graph.module, graph.inputs)
            with torch.no_grad():
                tune(graph.module, graph.inputs)
    finally:
        overridden = backend.graph_resolver.overrides.used
        decisions |= {name: found for name, found in backend.decisions.items() if name not in overridden}


def _remaining(request: TuningRequest) -> str:
    """Returns what is left of the budget, since the request was made."""
    budget = Budget.parse(request.budget)
    trials = [] if budget.trials is None else [str(budget.trials)]
    seconds = [] if budget.seconds is None else [f"{max(0.0, request.deadline - time.time()):.3f}s"]
    return ",".join([*trials, *seconds])
