"""The MCP server, driven over its standard streams by the client of the official package."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunewright.cli.mcp import mcp, skill

HAS_MCP = True
try:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
except ImportError:
    HAS_MCP = False

needs_mcp = pytest.mark.skipif(not HAS_MCP, reason="needs the package mcp")
TOOLS = {
    "describe", "init", "read", "space", "explain", "trials", "tune", "race", "race_configs", "referee", "bundle",
    "search_start", "search_propose", "search_next", "search_stop",
}  # fmt: skip


TASK = """
from tunewright.referee import Task

def triple(x):
    return 3 * x

task = Task(triple, lambda rng: (rng.standard_normal(500),))
"""


class Client:
    """A scripted client."""

    def __init__(self, session) -> None:
        self.session, self.progress = session, []

    async def call(self, tool, **arguments):
        async def on_progress(progress, total, message):
            self.progress.append((progress, message))

        result = await self.session.call_tool(tool, arguments, progress_callback=on_progress)
        text = "".join(getattr(part, "text", "") for part in result.content)
        failed = getattr(result, "is_error", None)
        return text, result.isError if failed is None else failed

    async def answer(self, tool, **arguments):
        text, failed = await self.call(tool, **arguments)
        assert not failed, text
        return json.loads(text)

    async def refused(self, tool, **arguments):
        text, failed = await self.call(tool, **arguments)
        assert failed, text
        return text


def drive(folder, scenario, *words):
    """Runs a scenario against a server for this folder."""

    async def run():
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        command = ["-m", "tunewright", "mcp", str(folder), *words]
        server = StdioServerParameters(command=sys.executable, args=command, env=environ, cwd=str(folder))
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            return await scenario(Client(session))

    return asyncio.run(run())


@needs_mcp
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_from_init_to_a_bundle(tmp_path) -> None:
    async def scenario(client):
        listed = {tool.name for tool in (await client.session.list_tools()).tools}
        assert listed == TOOLS
        assert (await client.answer("describe"))["files"] == []
        await client.call("init", name="saxpy", kind="c")
        files = (await client.answer("describe"))["files"]
        assert files == ["saxpy.c", "saxpy.py", "test_saxpy.py"]
        (tmp_path / "task.py").write_text(TASK)
        (tmp_path / "wrong.py").write_text("def triple(x):\n    return x\n")
        assert "UNROLL" in (await client.answer("read", path="saxpy.c"))["text"]
        space = await client.answer("space", target="saxpy.py:saxpy", sample=2)
        assert space["feasible"] == 15
        tuned = await client.answer("tune", target="saxpy.py:saxpy", seconds=8, propose=[{"UNROLL": 16, "opt": "-O3"}])
        config = tuned["decisions"][0]["config"]
        assert set(config) == {"UNROLL", "opt"}
        assert client.progress
        assert [progress for progress, _ in client.progress] == sorted({progress for progress, _ in client.progress})
        text, failed = await client.call("explain", kernel="saxpy.py:saxpy")
        assert not failed
        assert "saxpy" in text
        tried = await client.answer("trials", kernel="saxpy", best=5)
        assert 1 <= len(tried) <= 5
        raced = await client.answer("race_configs", target="saxpy.py:saxpy", configs=["default", "decided"], seconds=5)
        assert len(raced["contestants"]) == 2
        judged = await client.answer("referee", task="task.py", candidate="wrong.py", seconds=60)
        assert judged["verdict"]["outcome"] == "wrong"
        assert "records" not in judged
        packed = await client.answer("bundle", file="saxpy.bundle", target="saxpy.py:saxpy")
        assert packed["decisions"] == 1
        assert packed["builds"] >= 1
        assert "saxpy.bundle" in (await client.answer("describe"))["files"]

    drive(tmp_path, scenario, "--max-seconds", "60", "--store", str(tmp_path / "store.sqlite"))
    assert (tmp_path / "saxpy.bundle").stat().st_size > 0


@needs_mcp
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_agent_proposes_configs_beside_the_portfolio(tmp_path) -> None:
    proposals = [{"UNROLL": 16, "opt": "-O3"}, {"UNROLL": 3, "opt": "-O3"}, {"UNROLL": 8, "opt": "-O2"}]

    async def scenario(client):
        await client.call("init", name="saxpy", kind="c")
        state = await client.answer("search_start", target="saxpy.py:saxpy", seconds=10, answer_seconds=20)
        refused, left = [], list(proposals)
        while state["state"] != "done":
            if state["state"] == "asks":
                refused += state["refused"]
                state = await client.answer("search_propose", configs=[left.pop(0)] if left else [])
            else:
                state = await client.answer("search_next")
        assert any("3" in str(each["config"]) and each["why"] for each in refused)
        assert state["decisions"][0]["kernel"] == "saxpy"
        return await client.answer("trials", kernel="saxpy", best=50)

    tried = drive(tmp_path, scenario, "--max-seconds", "60", "--store", str(tmp_path / "store.sqlite"))
    assert {"UNROLL": 16, "opt": "-O3"} in [trial["config"] for trial in tried]


@needs_mcp
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_hostile_client_gets_reasons_and_nothing_else(tmp_path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "secret.py").write_text("open('ran', 'w')\n")
    (folder / "endless.py").write_text("import tunewright as tw\nwhile True: pass\n")

    async def scenario(client):
        assert "outside of inside" in await client.refused("read", path="../secret.py")
        assert "outside of inside" in await client.refused("space", target="../secret.py:f")
        assert "no FILE.py:NAME" in await client.refused("race", first="sh -c 'touch x'", second="os:abort")
        assert "outside of inside" in await client.refused("referee", task="../secret.py", candidate="endless.py")
        assert "must end with" in await client.refused("referee", task="endless.py", candidate="sh {output}")
        late = await client.refused("referee", task="endless.py", candidate="endless.py", seconds=1e12)
        assert "stopped after the time given" in late
        assert await client.refused("nonesuch")
        assert await client.refused("tune")
        assert "stopped after the time given" in await client.refused("tune", target="endless.py:f", seconds=1e12)
        assert (await client.answer("describe"))["files"] == ["endless.py"]

    drive(folder, scenario, "--max-seconds", "1", "--store", str(tmp_path / "store.sqlite"))
    assert os.listdir(folder) == ["endless.py"]


def test_without_the_package_the_command_says_what_to_install(tmp_path) -> None:
    code = (
        "import sys; sys.modules['mcp'] = None; sys.argv = ['tunewright', 'mcp', '.']\n"
        "from tunewright.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'tunewright[mcp]'" in done.stderr


def test_the_guide_is_printed_or_its_place(tmp_path) -> None:
    printed = CliRunner().invoke(skill, []).stdout
    assert printed.startswith("---\nname: tunewright\n")
    path = CliRunner().invoke(skill, ["--path"]).stdout.strip()
    assert Path(path).read_text().rstrip() == printed.rstrip()


def test_a_folder_that_is_not_there_is_refused() -> None:
    assert CliRunner().invoke(mcp, ["nonesuch"]).exit_code == 2
