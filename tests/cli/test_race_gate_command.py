"""`tunewright race --fail-if-slower`: the exit status is the verdict."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tunewright.cli.race import race
from tunewright.gate import verdict
from tunewright.gate.sides import CommandContest, FunctionContest
from tunewright.pools.command_times import ProcessTimes

FUNCTIONS = """
def fast(): pass
def slow(): pass
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scripted(monkeypatch):
    """Sides take as long as is said; time passes only when they run."""
    now, ratio = [0.0], [1.0]

    def draw(self, swap, seconds):
        now[0] += 0.2
        return [(ProcessTimes(0.1, 0.1, 0.1, 0.0), ProcessTimes(0.1 * ratio[0], 0.1, 0.1, 0.0))]

    monkeypatch.setattr(verdict.time, "monotonic", lambda: now[0])
    for contest in (CommandContest, FunctionContest):
        monkeypatch.setattr(contest, "draw", draw)

    def set_ratio(value):
        ratio[0] = value

    return set_ratio


def run(*words):
    return CliRunner().invoke(race, words)


@pytest.mark.parametrize(("ratio", "status"), [(1.0, 0), (1.01, 0), (1.03, 1), (1.1, 1), (0.5, 0)])
@pytest.mark.parametrize("sides", [("true", "true"), ("functions.py:fast", "functions.py:slow")])
def test_the_exit_status_is_the_verdict(scripted, sides, ratio, status) -> None:
    scripted(ratio)
    done = run(*sides, "--fail-if-slower", "3%")
    assert done.exit_code == status, done.output
    assert ("is slower: it takes" in done.stdout) == (status == 1)


def test_what_cannot_be_told_in_the_time_is_3(scripted) -> None:
    done = run("true", "true", "--fail-if-slower", "3%", "--seconds", "1")
    assert done.exit_code == 3
    assert "too few to tell anything" in done.stdout
    assert "give it more time" in done.stdout


def test_json_has_the_interval_and_what_it_rests_on(scripted) -> None:
    scripted(1.05)
    done = run("true", "false", "--fail-if-slower", "0.03", "--json")
    answer = json.loads(done.stdout)
    assert done.exit_code == answer["exit"] == 1
    assert answer["outcome"] == "slower"
    assert answer["low"] <= answer["ratio"] <= answer["high"]
    assert answer["ratio"] == pytest.approx(1.05)
    assert (answer["baseline"], answer["candidate"], answer["clock"]) == ("true", "false", "undelayed")
    assert answer["pairs"] >= verdict.MIN_PAIRS


def test_without_a_limit_two_checkouts_are_compared_and_nothing_fails(here, scripted) -> None:
    subprocess.run(
        "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm one", shell=True, check=True
    )
    scripted(1.2)
    done = run("functions.py:fast", "--baseline", "HEAD")
    assert done.exit_code == 0, done.output
    assert "here is slower: it takes 1.200 times as long" in done.stdout
    assert run("functions.py:fast", "--baseline", "HEAD", "--fail-if-slower", "3%").exit_code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("true", "--fail-if-slower", "3%"), "compares two candidates"),
        (("true", "true", "true", "--fail-if-slower", "3%"), "compares two candidates"),
        (("true", "true", "--baseline", "HEAD"), "name one candidate"),
        (("true", "--baseline", "HEAD"), "in no git work tree"),
        (("true", "true", "--fail-if-slower", "much"), "write it as 1% or 0.01"),
        (("true", "nonesuch", "--fail-if-slower", "3%"), "no such command"),
        (("true", "true", "--fail-if-slower", "3%", "--plot", "a.png"), "draw no picture"),
        (("true", "false", "--fail-if-slower", "3%"), "ended with exit status 1"),
        (("true", "functions.py:gone", "--fail-if-slower", "3%"), "cannot be held"),
        (("functions.py:fast", "functions.py:gone", "--fail-if-slower", "3%"), "defines no 'gone'"),
    ],
)
def test_a_mistake_is_no_verdict(words, said) -> None:
    done = run(*words)
    assert isinstance(done.exception, SystemExit)
    assert said in done.stderr
    assert done.exit_code not in (0, 3)
    assert done.stdout == ""


def test_the_command_itself_exits_2_for_a_mistake() -> None:
    words = [sys.executable, "-m", "tunewright", "race", "true", "false", "--fail-if-slower", "3%"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "ended with exit status 1" in done.stderr


@pytest.mark.clock("within 60 s: a function that does twice the work is slower, in real processes")
@pytest.mark.slow
def test_twice_the_work_is_slower(here) -> None:
    (here / "work.py").write_text("def one(): sum(range(20_000))\ndef two(): sum(range(40_000))\n")
    assert run("work.py:one", "work.py:two", "--fail-if-slower", "3%").exit_code == 1
    assert run("work.py:two", "work.py:one", "--fail-if-slower", "3%").exit_code == 0


@pytest.mark.clock("within 60 s: no difference, or not known; a function is never slower than itself")
@pytest.mark.slow
def test_a_function_is_not_slower_than_itself(here) -> None:
    (here / "work.py").write_text("def one(): sorted(range(5_000), key=lambda x: -x)\n")
    assert run("work.py:one", "work.py:one", "--fail-if-slower", "5%").exit_code in (0, 3)
