"""Searches that an agent takes part in: it is asked for configs, and learns what became of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tunewright.agents.command_line import CommandLine, Done
from tunewright.agents.proposers import MAX_ANSWER, SOCKET
from tunewright.errors import BackendError

WAIT_SECONDS = 20.0
"""How long one call waits for the next question."""


class AgentSearch:
    """One search, in a process that asks its questions over a socket; only one runs at a time."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self._questions: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[Done] | None = None
        self._pending: dict[str, Any] | None = None
        self._until = 0.0

    @property
    def is_running(self) -> bool:
        """Whether a search runs."""
        return self._task is not None and not self._task.done()

    async def start(self, words: Sequence[str], seconds: float, answer_seconds: float) -> None:
        """Starts a search. Raises BackendError if one runs already."""
        if self.is_running or self._line.measuring.locked():
            raise BackendError("a search or a race is running; wait for its end, or stop the search with search_stop")
        self._questions, self._pending = asyncio.Queue(), None
        self._until = time.monotonic() + seconds
        self._task = asyncio.create_task(self._run([*words, "--answer-seconds", f"{answer_seconds:g}"], seconds))

    async def _run(self, words: Sequence[str], seconds: float) -> Done:
        with tempfile.TemporaryDirectory(prefix="tunewright-agent-") as folder:
            path = Path(folder) / "proposals"
            server = await asyncio.start_unix_server(self._serve, path, limit=MAX_ANSWER)
            async with server:
                return await self._line.measure([*words, "--proposer", f"{SOCKET}{path}"], seconds)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes the questions of the search."""
        self._writer = writer
        with contextlib.suppress(ValueError, ConnectionError):
            while line := await reader.readline():
                await self._questions.put(json.loads(line))
        writer.close()

    async def next(self) -> dict[str, Any]:
        """Returns the next question, the result, or that the search is busy."""
        if self._task is None:
            raise BackendError("no search was started; start one with search_start")
        if self._pending is None:
            getting = asyncio.create_task(self._questions.get())
            await asyncio.wait([getting, self._task], timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                self._pending = getting.result()
            else:
                getting.cancel()
        left = max(0.0, self._until - time.monotonic())
        if self._task.cancelled():
            return {"state": "stopped"}
        if self._task.done():
            return {"state": "done", **_result(self._task.result())}
        if self._pending is None:
            return {"state": "busy", "seconds_left": round(left)}
        return {"state": "asks", "seconds_left": round(left), **self._pending}

    async def propose(self, configs: Sequence[Any]) -> dict[str, Any]:
        """Answers the question with configs; returns what comes next."""
        if self._pending is None or self._writer is None:
            return await self.next()
        answer = {"ask": self._pending["ask"], "configs": list(configs)}
        self._pending = None
        with contextlib.suppress(ConnectionError):
            self._writer.write(json.dumps(answer).encode() + b"\n")
            await self._writer.drain()
        return await self.next()

    async def stop(self) -> dict[str, Any]:
        """Ends the search; what it tried is kept, and the same command continues it."""
        if self._task is None or self._task.done():
            return {"state": "done"}
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        return {"state": "stopped"}


def _result(done: Done) -> dict[str, Any]:
    """Returns what a search found."""
    return summarize_tuning(done.json()) if done.status == 0 else {"failed": done.reason()}


def summarize_tuning(answer: Any) -> dict[str, Any]:
    """Returns the decisions of `tunewright tune --json`, without their samples."""
    answers = answer if isinstance(answer, list) else [answer]
    return {"decisions": [_summarize(each) for each in answers[:20]], "count": len(answers)}


def _summarize(answer: dict[str, Any]) -> dict[str, Any]:
    decision = answer["decision"]
    evidence, key = decision.get("evidence") or {}, decision.get("key") or {}
    wanted = ("seconds", "low", "high", "gain", "trials", "failures", "resolution", "notes", "strategy")
    return {
        "kernel": key.get("kernel"),
        "signature": key.get("signature"),
        "config": decision.get("config"),
        "known": answer.get("known"),
        **{name: evidence[name] for name in wanted if name in evidence},
    }
