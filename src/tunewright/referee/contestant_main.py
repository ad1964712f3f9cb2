"""The life of a contestant's process: it enters the sandbox, loads the candidate, and answers requests.

Nothing that it says is trusted once the candidate is loaded: time is taken and results are compared by others.
"""

from __future__ import annotations

import importlib
import mmap
import os
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tunewright.cases.inputs import parse_dtype
from tunewright.pools.worker_process import Channel
from tunewright.referee.entries import load_entry
from tunewright.referee.messages import ArrayPlace, ContestantSetup, PlacedLaunch
from tunewright.referee.sandbox import SandboxBuilder, keep_only
from tunewright.stores import serialization

NONCE = 16
"""Bytes that begin a request, and the answer to it."""

REQUEST_BYTES = 2048
"""Bytes that are read at once; most requests are smaller, and room for more takes time."""

MAX_TEXT = 2000
"""Characters of an error that are sent."""

HEADER = struct.Struct("<16sBH")
"""Of an answer: nonce, whether it went well, and the length of the text that follows."""


def contest(setup: ContestantSetup, sock: socket.socket, memory: Sequence[int], missing: dict[str, str]) -> NoReturn:
    """Runs a contestant in this process, which was forked for it; `memory` has descriptors of inputs and outputs."""
    status = 1
    try:
        _prepare(setup, sock, memory, missing)
        status = 0
    finally:
        os._exit(status)


def _prepare(setup: ContestantSetup, sock: socket.socket, memory: Sequence[int], missing: dict[str, str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inputs = mmap.mmap(memory[0], 0, mmap.MAP_SHARED, mmap.PROT_READ)
    outputs = mmap.mmap(memory[1], 0, mmap.MAP_SHARED)
    sock.set_inheritable(False)
    own = socket.socket(fileno=keep_only(sock.detach()))
    if setup.cpus:
        os.sched_setaffinity(0, setup.cpus)
    sandbox = SandboxBuilder(setup, missing)
    sandbox.enter_files()
    for name in setup.preload:
        importlib.import_module(name)
    if setup.gpu:
        from tunewright.emulator.triton_launches import install  # noqa: PLC0415 - loads Triton

        install(setup.gpu)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(setup.limits.threads)
    sandbox.enter_limits()
    sandbox.enter_rights()
    channel = Channel(own, REQUEST_BYTES)
    channel.send(sandbox.report)
    warnings.simplefilter("ignore")
    _serve(setup, channel, inputs, outputs)


def _serve(setup: ContestantSetup, channel: Channel, inputs: mmap.mmap, outputs: mmap.mmap) -> None:
    run, error = None, ""
    nonce = (channel.wait_message() or b"")[:NONCE]  # the signal to load
    try:
        run = load_entry(setup.entry)
    except BaseException as problem:
        error = describe(problem)
        if not isinstance(problem, Exception):
            _answer(channel.sock, nonce, error)
            raise
    _answer(channel.sock, nonce, error)
    while (body := channel.wait_message()) is not None:
        launch, error = serialization.decode(body[NONCE:], PlacedLaunch), ""
        try:
            assert run is not None
            run(launch, _arguments(launch, inputs), [_view(outputs, place) for place in launch.results])
        except BaseException as problem:
            _answer(channel.sock, body[:NONCE], describe(problem))
            if not isinstance(problem, Exception):
                raise
            continue
        _answer(channel.sock, body[:NONCE], error)


def _arguments(launch: PlacedLaunch, inputs: mmap.mmap) -> list[Any]:
    return [_view(inputs, value) if isinstance(value, ArrayPlace) else value for value in launch.arguments]


def _view(memory: mmap.mmap, place: ArrayPlace) -> NDArray[Any]:
    return np.ndarray(place.shape, _dtype(place.dtype), memory, place.offset)


_dtype = lru_cache(parse_dtype)


def _answer(sock: socket.socket, nonce: bytes, error: str) -> None:
    text = error.encode(errors="replace")[:MAX_TEXT]
    sock.sendall(HEADER.pack(nonce, 0 if error else 1, len(text)) + text)


def describe(problem: BaseException) -> str:
    """Returns the kind and the message of an error, on one line."""
    return f"{type(problem).__name__}: {problem}"[:MAX_TEXT].replace("\n", " ")
