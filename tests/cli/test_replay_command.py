import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tunewright import Knob, Space
from tunewright.backends.replay import Recording
from tunewright.model.trial import Timing, Trial
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing.keys import KEY

SPACE = Space(Knob("tile", [1, 2, 4, 8, 16, 32]), Knob("unroll", [1, 2, 4, 8]), Knob("fast", [False, True]))
GREEDY = str(Path(__file__).parent.parent / "replay" / "greedy.py") + ":Greedy"


def trials(best):
    for config in SPACE:
        seconds = 1e-3 * (1 + abs(config["tile"] - best) + config["unroll"] / 8 + 0.5 * config["fast"])
        yield Trial(config, Timing((seconds,)), 0.5, 0.25)


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "spaces"
    folder.mkdir()
    for name, best in (("toy-A", 8), ("toy-B", 4), ("other-A", 32)):
        kernel = name.partition("-")[0]
        Recording(kernel, name, SPACE, {t.config: t for t in trials(best)}).write(folder / f"{name}.parquet")
    return tmp_path


def replay(*args, cwd, status=0):
    command = [sys.executable, "-m", "tunewright", "replay", *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_strategies_are_compared_over_all_and_by_kernel(here) -> None:
    said = replay("--spaces", "spaces", "--strategies", f"random,{GREEDY}", "--seeds", "3", cwd=here).stdout
    assert said.startswith("3 spaces, 3 seeds each, 200 evaluations\n")
    assert re.search(r"^strategy +r25 +r50 +r100 +r200 +e5 +e1 +within 1 % +CPU ms +runs$", said, re.M)
    assert re.search(r"^greedy.py:Greedy +\d\.\d{3} .* 9$", said, re.M)
    assert "\nother\n" in said
    assert "\ntoy\n" in said


@pytest.mark.slow
def test_machines_get_every_figure_and_the_curves(here) -> None:
    args = ("--spaces", "spaces/toy-A.parquet", "--strategies", "random,exhaustive", "--seeds", "2", "--budget", "30")
    said = json.loads(replay(*args, "--json", cwd=here).stdout)
    assert said["spaces"] == ["toy-A"]
    assert said["strategies"]["exhaustive"]["runs"] == 2
    assert set(said["strategies"]["random"]) >= {"r25", "r30", "e5", "e1", "s5", "s1", "within1", "cpu_ms"}
    assert said["by_space"]["toy-A"] == said["by_kernel"]["toy"] == said["strategies"]
    assert said["curves"]["axis"] == "evaluations"
    assert len(said["curves"]["random"]["regret"]) == 30
    by_cost = json.loads(replay(*args, "--json", "--cost", "--batch", "8", cwd=here).stdout)
    assert by_cost["curves"]["axis"] == "seconds"
    assert by_cost["batch"] == 8


@pytest.mark.slow
def test_tables_in_markdown_and_a_picture(here) -> None:
    args = ("--spaces", "spaces", "--strategies", "random,exhaustive", "--seeds", "2", "--budget", "20", "--cost")
    done = replay(*args, "--markdown", "--plot", "regret.png", cwd=here)
    assert "| strategy | r20 | e5 | e1 | s5 | s1 | within 1 % | CPU ms | runs |\n|---|---:|" in done.stdout
    assert (here / "regret.png").stat().st_size > 10_000
    replay(*args, "--plot", "regret.html", cwd=here)
    assert (here / "regret.html").stat().st_size > 10_000


def test_journals_of_a_store_can_be_searched(here) -> None:
    SqliteStore(here / "store.sqlite").record(KEY, list(trials(8)))
    said = replay("--store", "store.sqlite", "--strategies", "random", "--seeds", "2", cwd=here).stdout
    assert said.startswith("1 space, 2 seeds each")


@pytest.mark.slow
def test_finished_runs_are_kept_and_not_repeated(here) -> None:
    args = ("--spaces", "spaces", "--strategies", "random", "--budget", "5", "--out", "out", "--workers", "1")
    first = replay(*args, "--seeds", "2", cwd=here).stdout
    lines = (here / "out" / "replays.jsonl").read_bytes()
    assert lines.count(b"\n") == 6
    assert replay(*args, "--seeds", "2", cwd=here).stdout == first
    assert (here / "out" / "replays.jsonl").read_bytes() == lines
    replay(*args, "--seeds", "2", "--fresh", cwd=here)
    assert (here / "out" / "replays.jsonl").read_bytes().count(b"\n") == 12


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "--spaces DIR"),
        (("--spaces", "spaces"), "installed: "),
        (("--spaces", "spaces", "--strategies", "nobody"), "installed: "),
        (("--spaces", "nowhere", "--strategies", "random"), "--save NAME.parquet"),
        (("--spaces", ".", "--strategies", "random"), "--save NAME.parquet"),
        (("--store", "empty.sqlite", "--strategies", "random"), "tunewright tune"),
        (("--spaces", "spaces", "--strategies", "random", "--plot", "a.gif"), "endings"),
        (("--spaces", "spaces", "--strategies", "nowhere.py:X"), "no file nowhere.py"),
        (("--spaces", "spaces", "--strategies", "random", "--seeds", "0"), "--seeds"),
    ],
)
def test_every_mistake_is_told_what_to_do(here, args, said) -> None:
    assert said in replay(*args, cwd=here, status=2).stderr


SLOW = """
import time
from tunewright.strategies.random import RandomSearch

class Slow(RandomSearch):
    def ask(self, count):
        time.sleep(0.05)
        return super().ask(count)
"""


def test_a_terminal_sees_progress_and_ctrl_c_keeps_what_was_done(here, terminal, wait_until) -> None:
    (here / "slow.py").write_text(SLOW)
    args = ["--spaces", "spaces", "--strategies", "slow.py:Slow", "--seeds", "50", "--budget", "10", "--out", "out"]
    command = [sys.executable, "-m", "tunewright", "replay", *args]
    process = terminal.start(command, cwd=here, start_new_session=True)
    lines = here / "out" / "replays.jsonl"
    wait_until(lambda: lines.exists() and lines.read_bytes().count(b"\n") >= 3, "three runs")
    os.killpg(process.pid, signal.SIGINT)
    said = terminal.read()
    assert process.wait(300) == 130
    assert re.search(r"of 150 runs · .* left", said)
    kept = re.search(r"interrupted; (\d+) of 150 runs\s+are kept in", said)
    assert kept, said
    assert 0 <= lines.read_bytes().count(b"\n") - int(kept[1]) <= 1  # it may strike between writing and counting
    assert "Traceback" not in said
