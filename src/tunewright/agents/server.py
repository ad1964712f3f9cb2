"""The MCP server: the tools of `agents.tools` over standard input and output; needs the package `mcp`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from tunewright.agents.command_line import CommandLine, OnLine
from tunewright.agents.folder import WorkFolder
from tunewright.agents.guide import read_guide
from tunewright.agents.tools import AgentTools
from tunewright.errors import TunewrightError

MAX_REASON = 3_000
"""Characters of an error that a client is told."""


def make_server(folder: Path, max_seconds: float, store: str | None = None) -> Any:
    """Returns a server whose tools work in a folder, and take at most so many seconds each."""
    tools = AgentTools(WorkFolder(folder), CommandLine(folder.resolve(), max_seconds, store))
    server: Any = MCPServer("tunewright", instructions=read_guide())
    for tool in _tools(tools):
        server.add_tool(_with_reasons(tool), structured_output=False)
    return server


def run_server(folder: Path, max_seconds: float, store: str | None = None) -> None:
    """Serves one client over standard input and output, until it hangs up."""
    logging.getLogger("mcp").setLevel(logging.WARNING)
    make_server(folder, max_seconds, store).run(transport="stdio")


def _with_reasons(tool: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """Returns a tool whose errors the client is told; those that we did not foresee stay in the log."""

    @wraps(tool)
    async def told(*args: Any, **kwargs: Any) -> str:
        try:
            return await tool(*args, **kwargs)
        except TunewrightError as error:
            raise ToolError(str(error)[:MAX_REASON]) from error

    return told


def _tools(tools: AgentTools) -> list[Callable[..., Awaitable[str]]]:
    """Returns the tools as functions whose signatures and docstrings the client is told."""
    return [*_reading(tools), *_measuring(tools), *_searching(tools)]


def _reading(tools: AgentTools) -> list[Callable[..., Awaitable[str]]]:
    async def describe() -> str:
        """Describe the folder: its kernel files, what is decided, and the limits of this server. Call it first."""
        return await tools.describe()

    async def init(name: str = "kernel", kind: str = "c") -> str:
        """Write a small kernel to start from, and a test of it. kind: c, python, triton, torch or command."""
        return await tools.init(name, kind)

    async def read(path: str) -> str:
        """Return the beginning of a file in the folder."""
        return await tools.read(path)

    async def space(target: str, sample: int = 0) -> str:
        """Describe the space of a kernel (FILE.py:NAME): knobs, rules, size, default, and some random configs."""
        return await tools.space(target, sample)

    async def explain(kernel: str, shape: str = "") -> str:
        """Say why a kernel (FILE.py:NAME, or its name) gets its config, and how sure that is."""
        return await tools.explain(kernel, shape)

    async def trials(kernel: str, best: int = 10, failed: bool = False) -> str:
        """List what was tried for a kernel, by name: the best configs, or those that failed with the reason."""
        return await tools.trials(kernel, best, failed)

    return [describe, init, read, space, explain, trials]


def _measuring(tools: AgentTools) -> list[Callable[..., Awaitable[str]]]:
    async def tune(
        ctx: Context, target: str, seconds: float = 60.0, shape: str = "", propose: list[dict[str, Any]] | None = None
    ) -> str:
        """Search for the best config of a kernel (FILE.py:NAME) within the seconds, and store it.

        propose: configs to try first. An earlier search is continued.
        """
        return await tools.tune(target, seconds, shape, propose or [], _progress(ctx))

    async def race(first: str, second: str, seconds: float = 60.0, by: float = 0.03) -> str:
        """Say whether `second` is slower than `first` by this fraction. Both: FILE.py:NAME or FILE.c:NAME,
        functions without arguments."""
        return await tools.race(first, second, seconds, by)

    async def race_configs(target: str, configs: list[str], seconds: float = 20.0, shape: str = "") -> str:
        """Race configs of a kernel (FILE.py:NAME): each KNOB=VALUE,KNOB=VALUE, or default, or decided."""
        return await tools.race_configs(target, configs, seconds, shape)

    async def referee(task: str, candidate: str, against: str = "", seconds: float = 120.0, gpu: str = "") -> str:
        """Judge a candidate (.py or .c) that is not trusted, for a task (task.py): right or wrong, faster or slower
        than the reference or `against`, or suspect. Takes at most so many seconds. Triton kernels are interpreted, or
        compiled for `gpu` (sm_90) and emulated, and not timed."""
        return await tools.referee(task, candidate, against, seconds, gpu)

    async def bundle(file: str, target: str, note: str = "") -> str:
        """Pack the decisions and builds of a kernel (FILE.py:NAME) into a new file that ends with .bundle."""
        return await tools.bundle(file, target, note)

    return [tune, race, race_configs, referee, bundle]


def _searching(tools: AgentTools) -> list[Callable[..., Awaitable[str]]]:
    async def search_start(target: str, seconds: float = 120.0, shape: str = "", answer_seconds: float = 60.0) -> str:
        """Start a search that asks you for configs, in turn with its own strategy. Answer with search_propose."""
        return await tools.search_start(target, seconds, shape, answer_seconds)

    async def search_propose(configs: list[dict[str, Any]]) -> str:
        """Answer the search with configs to try; returns the next question with what became of them, or the result."""
        return await tools.search_propose(configs)

    async def search_next() -> str:
        """Return the question of the search, or its result, or that it is busy."""
        return await tools.search_next()

    async def search_stop() -> str:
        """End the search; what it tried is kept."""
        return await tools.search_stop()

    return [search_start, search_propose, search_next, search_stop]


def _progress(ctx: Any) -> OnLine:
    """Returns a callback that reports lines of progress to the client."""
    count = 0

    async def report(line: str) -> None:
        nonlocal count
        count += 1
        await ctx.report_progress(float(count), None, line)

    return report
