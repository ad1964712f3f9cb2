"""A hostile agent: paths outside of the folder, options for paths, endless and huge answers."""

import asyncio
import json
import os
import signal
import sys

import pytest

from tunewright.agents import command_line
from tunewright.agents.command_line import CommandLine, bounded
from tunewright.agents.folder import OutsideFolder, WorkFolder
from tunewright.agents.tools import AgentTools
from tunewright.errors import BackendError, SettingsError, TunewrightError


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "inside"
    (folder / "sub").mkdir(parents=True)
    (folder / "k.py").write_text("def f(): pass\n")
    (folder / "sub" / "k.py").write_text("def f(): pass\n")
    (tmp_path / "secret.py").write_text("open('ran', 'w')\ndef f(): pass\n")
    (tmp_path / "secret.txt").write_text("the password")
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    (folder / "out").symlink_to(tmp_path)
    (folder / "dangling.bundle").symlink_to(tmp_path / "new.bundle")
    (tmp_path / "inside2").mkdir()
    (tmp_path / "inside2" / "k.py").write_text("def f(): pass\n")
    return folder


@pytest.mark.parametrize(
    "path",
    [
        "../secret.py",
        "sub/../../secret.py",
        "link.py",
        "out/secret.py",
        "/etc/passwd",
        "../inside2/k.py",
        "~/x.py",
        "k.py\0.py",
        "/proc/self/mem",
        "//etc/passwd",
        "sub/./../../inside2/k.py",
    ],
)
def test_nothing_outside_of_the_folder_can_be_named(root, path) -> None:
    folder = WorkFolder(root)
    for check in (folder.path, folder.file, folder.place, lambda text: folder.new_file(text, ".py")):
        with pytest.raises(OutsideFolder, match=r"folder|path"):
            check(path)
    with pytest.raises(SettingsError):
        folder.target(f"{path}:f")


@pytest.mark.parametrize(
    "target",
    [
        "os:abort",
        "tunewright.operators:gemm",
        "k.py",
        "k.py:",
        "k.py:f()",
        "k.py:f; rm -rf /",
        "k.py:$(touch x)",
        "k.py:__import__('os')",
        "`touch x`.py:f",
        "--store=x.py:f",
        "-k.py:f",
        "k.sh:f",
        "k.py\n:f",
        ":f",
        "",
        "x" * 10_000,
        "sub:f",
        "nothing.py:f",
    ],
)
def test_only_functions_of_files_in_the_folder_are_targets(root, target) -> None:
    with pytest.raises(SettingsError):
        WorkFolder(root).target(target)


def test_what_is_in_the_folder_is_found_and_cannot_be_an_option(root) -> None:
    folder = WorkFolder(root)
    assert folder.target("sub/k.py:f") == "./sub/k.py:f"
    assert folder.target(f"{root}/k.py:f") == "./k.py:f"
    (root / "--json.py").write_text("")
    assert folder.target("--json.py:f") == "./--json.py:f"
    assert folder.new_file("a.bundle", ".bundle") == "./a.bundle"


@pytest.mark.parametrize("file", ["k.py", "dangling.bundle", "none/a.bundle", "a.txt", "out/a.bundle"])
def test_only_new_files_are_written(root, file) -> None:
    with pytest.raises(SettingsError):
        WorkFolder(root).new_file(file, ".bundle")


class Refusing(CommandLine):
    """Runs nothing; says that it would have."""

    async def start(self, words):
        raise AssertionError(f"would run {words}")


HOSTILE = [
    ("init", ("../x", "c")),
    ("init", ("--help", "c")),
    ("init", ("x; touch y", "c")),
    ("init", ("x", "../c")),
    ("read", ("../secret.txt",)),
    ("read", ("out/secret.txt",)),
    ("space", ("link.py:f", 0)),
    ("tune", ("../secret.py:f", 10.0, "", [])),
    ("tune", ("k.py:f", 10.0, "N=1 --store x", [])),
    ("tune", ("k.py:f", 10.0, "$(touch x)", [])),
    ("tune", ("k.py:f", 10.0, "", "rm")),
    ("tune", ("k.py:f", 10.0, "", [{"a": "x" * 100_000}])),
    ("tune", ("k.py:f", 10.0, "", [1])),
    ("race", ("rm -rf /", "k.py:f", 10.0, 0.03)),
    ("race", ("k.py:f", "sh -c 'touch x'", 10.0, 0.03)),
    ("race", ("k.py:f", "out/secret.py:f", 10.0, 0.03)),
    ("race", ("k.py:f", "k.py:f", 10.0, 3)),
    ("race_configs", ("k.py:f", ["default", "--plot=x.png"], 10.0, "")),
    ("race_configs", ("k.py:f", ["default"], 10.0, "")),
    ("race_configs", ("k.py:f", ["default", "a=1;b"], 10.0, "")),
    ("referee", ("../secret.py", "k.py", "", 10.0)),
    ("referee", ("k.py", "link.py", "", 10.0)),
    ("referee", ("k.py", "k.py", "/etc/passwd", 10.0)),
    ("referee", ("k.py", "k.py", "", 10.0, "--out=x")),
    ("explain", ("--store=/etc/x", "")),
    ("explain", ("link.py:f", "")),
    ("trials", ("a b", 10, False)),
    ("trials", ("-x", 10, False)),
    ("bundle", ("../a.bundle", "k.py:f", "")),
    ("bundle", ("dangling.bundle", "k.py:f", "")),
    ("bundle", ("a.bundle", "link.py:f", "")),
    ("search_start", ("link.py:f", 10.0, "", 10.0)),
    ("search_propose", ("x",)),
    ("search_propose", ([1],)),
]


@pytest.mark.parametrize(("tool", "arguments"), HOSTILE, ids=[f"{tool}-{n}" for n, (tool, _) in enumerate(HOSTILE)])
def test_a_hostile_call_is_refused_before_anything_runs(root, tool, arguments) -> None:
    async def call():
        tools = AgentTools(WorkFolder(root), Refusing(root, 60.0))
        return await getattr(tools, tool)(*arguments)

    with pytest.raises(TunewrightError):
        asyncio.run(call())
    assert not (root.parent / "ran").exists()


class Fake(CommandLine):
    """Runs a Python program in place of the command line."""

    def __init__(self, folder, code, max_seconds=60.0) -> None:
        super().__init__(folder, max_seconds)
        self.code = code

    async def start(self, words):
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-S",
            "-c",
            self.code,
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )


def finish(line, seconds=60.0, on_line=None):
    return asyncio.run(line.run([], seconds, on_line))


def test_endless_output_ends_the_command(root) -> None:
    done = finish(Fake(root, "while True: print('x' * 100_000)"))
    assert done.status == -signal.SIGKILL
    assert len(done.printed) <= command_line.MAX_BYTES


def test_an_endless_command_is_interrupted_then_killed(root, monkeypatch) -> None:
    monkeypatch.setattr(command_line, "GRACE_SECONDS", 0.2)
    done = finish(Fake(root, "import signal, time; signal.signal(2, signal.SIG_IGN); time.sleep(600)"), 0.2)
    assert done.out_of_time
    assert done.status == -signal.SIGKILL
    assert done.reason().startswith("stopped after the time given")


def test_an_interrupted_search_may_keep_what_it_found(root) -> None:
    code = (
        "import signal, time, sys\n"
        "def end(*_): open('kept', 'w').close(); sys.exit(0)\n"
        "signal.signal(2, end)\nprint('ready', file=sys.stderr, flush=True)\ntime.sleep(600)"
    )

    async def run():
        line, ready = Fake(root, code), asyncio.Event()

        async def on_line(text):
            ready.set()

        process = await line.start([])
        task = asyncio.create_task(line.finish(process, 600.0, on_line))
        await ready.wait()
        os.killpg(process.pid, signal.SIGINT)
        return await task

    assert asyncio.run(run()).status == 0
    assert (root / "kept").exists()


def test_a_client_that_hangs_up_ends_the_command(root) -> None:
    async def run():
        line = Fake(root, "import time; time.sleep(600)")
        process = await line.start([])
        task = asyncio.create_task(line.finish(process, 600.0))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return process.returncode

    assert asyncio.run(run()) == -signal.SIGKILL


def test_only_one_tool_measures_at_a_time(root) -> None:
    async def run():
        line = Fake(root, "import time; time.sleep(600)")
        first = asyncio.create_task(line.measure([], 600.0))
        while not line.measuring.locked():
            await asyncio.sleep(0)
        with pytest.raises(BackendError, match="disturb each other"):
            await line.measure([], 1.0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(run())


def test_progress_is_told_line_by_line(root) -> None:
    lines = []

    async def on_line(text):
        lines.append(text)

    finish(Fake(root, "import sys; print('one\\n\\ntwo', 'x' * 9000, file=sys.stderr)"), 60.0, on_line)
    assert lines[0] == "one"
    assert len(lines[1]) == command_line.MAX_LINE


@pytest.mark.parametrize(("asked", "given"), [(10, 10), (1e9, 60), (-5, 1), (float("inf"), 60), (0, 1)])
def test_no_tool_takes_longer_than_the_server_allows(root, asked, given) -> None:
    assert CommandLine(root, 60.0).limit(asked) == given


def test_a_long_answer_is_refused_with_a_hint() -> None:
    with pytest.raises(BackendError, match="20,000 are allowed; ask for fewer"):
        bounded(["x" * 30_000], "ask for fewer")
    assert json.loads(bounded({"a": 1})) == {"a": 1}


def test_the_guide_names_only_commands_and_options_that_there_are() -> None:
    import re

    from tunewright.agents.guide import read_guide
    from tunewright.cli.main import command

    lines = re.findall(r"^tunewright (.+?)(?:\s+#.*)?$", read_guide(), re.MULTILINE)
    assert len(lines) >= 10
    for line in lines:
        words = line.split()
        found = command.commands[words[0]]
        if hasattr(found, "commands"):
            found = found.commands[words[1]]
        known = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
