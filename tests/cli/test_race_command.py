"""Races of commands and functions that say themselves how long they take, and of configs that differ tenfold."""

import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import tunewright as tw
from tunewright import cpu_usage
from tunewright.cli.race import race, verdict
from tunewright.cli.race_candidates import CommandCandidate, parse_config, shorten_names
from tunewright.cli.tune import tune
from tunewright.errors import NoDecision, SettingsError, SpaceError
from tunewright.measure import clock
from tunewright.measure import race as racing
from tunewright.measure.race import Race, Standing
from tunewright.pools import command_times

ALONE = "from tunewright.cli.race import race; race()"

SLOW, QUICK = "sh -c 'echo 400 >> clock'", "sh -c 'echo 40 >> clock'"
"""Commands that take so many milliseconds by the scripted clock."""

FUNCTIONS = """
from pathlib import Path

with (Path(__file__).parent / "loaded").open("a") as file:
    file.write("once\\n")

def short():
    spend(1)

def long():
    print("what I print is not the answer")
    spend(20)

class Inside:
    @staticmethod
    def quick(): spend(1)

calls = 0

def interrupted():
    global calls
    calls += 1
    spend(30)
    if calls > 5:
        raise KeyboardInterrupt

def rests(): spend(30)
def raises(): raise ValueError("not today")
def leaves(): raise SystemExit(3)
def hungry(plate): ...
async def later(): ...
number = 3

def spend(milliseconds):
    with open("clock", "a") as file:
        file.write(f"{milliseconds}\\n")
"""

KERNEL = """
import tunewright as tw

space = tw.Space(
    tw.Knob("work", [1, 10, 100]),
    tw.Knob("wrong", [False, True]),
    rules=[tw.Rule("much work is never wrong", lambda work, wrong: not (work > 10 and wrong))],
)

@tw.tune(space, reference=lambda x: x * 2, shapes=[{"N": 64}], default={"work": 10, "wrong": False})
def double(x: tw.In("N"), *, work, wrong):
    for _ in range(20 * work):
        y = x * 2
    return y + wrong

@tw.tune(space, shapes=[{"N": 64}, {"N": 65}])
def often(x: tw.In("N"), *, work, wrong):
    return x
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def scripted(here, monkeypatch):
    """A clock that moves by what the contestants write into a file, and by what the race sleeps."""
    slept = [0.0]

    def now():
        return slept[0] + sum(map(int, (here / "clock").read_text().split())) / 1e3

    def sleep(seconds):
        slept[0] += seconds

    (here / "clock").touch()
    monkeypatch.setattr(command_times, "time", SimpleNamespace(perf_counter=now))
    monkeypatch.setattr(command_times, "read_schedstat", lambda task: None)  # which tells of real time
    monkeypatch.setattr(racing, "time", SimpleNamespace(monotonic=now, sleep=sleep))
    monkeypatch.setattr(clock, "perf_counter", now)
    monkeypatch.setattr(clock, "CLOCKS", dict.fromkeys(clock.CLOCKS, lambda: round(now() * 1e9)))
    for name in ("perf_counter", "process_time", "thread_time"):
        monkeypatch.setattr(cpu_usage, name, now)


def run(*args):
    return CliRunner().invoke(race, args)


def answer(*args):
    done = run(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_of_two_commands_the_faster_is_named_and_by_how_much(scripted) -> None:
    done = run(SLOW, QUICK)
    assert done.exit_code == 0
    heads, first, second, *_, said, by = done.stdout.splitlines()
    assert by == "by the wall clock"
    assert heads.split() == ["place", "candidate", "time", "per", "run", "times", "the", "leader's", "rounds"]
    assert first.startswith("1 ")
    assert "echo 40 " in first
    assert second.startswith("2 ")
    assert "left after" in second
    assert said.startswith(f"{QUICK} is 10.000x as fast as {SLOW} (9.9")
    assert "\x1b" not in done.output


def test_a_command_ties_with_itself(scripted) -> None:
    found = answer(SLOW, SLOW, "--rounds", "8")
    assert found["ties"] == [SLOW, SLOW]
    assert [one["place"] for one in found["contestants"]] == [1, 1]
    for one in found["contestants"]:
        assert one["low"] <= one["ratio"] <= one["high"]
        assert one["samples"] == pytest.approx([0.4] * 8)


def test_a_command_that_waits_is_timed_to_its_end() -> None:
    assert CommandCandidate("sleep 0.1")() >= 0.1


def test_functions_are_loaded_once_and_what_they_print_is_discarded(here, scripted) -> None:
    done = run("functions.py:long", "functions.py:short", "functions:Inside.quick", "--json")
    found = json.loads(done.stdout)
    assert "not the answer" not in done.output
    assert found["leader"] in ("functions.py:short", "functions:Inside.quick")
    slow = found["contestants"][0]
    assert slow["ratio"] == pytest.approx(20)
    assert slow["place"] == 3
    # Once as a file, and once as the module of another contestant.
    assert (here / "loaded").read_text() == "once\n" * 2


def test_a_function_and_a_command_may_race_each_other(scripted) -> None:
    found = answer(QUICK, "functions.py:short")
    assert found["leader"] == "functions.py:short"
    assert found["ties"] == ["functions.py:short"]
    assert found["clock"] == "wall"


def test_configs_of_a_kernel_race_in_a_worker() -> None:
    done = run("--kernel", "kernels.py:double", "work=100", "default", "work=1,wrong=false", "--seconds", "20")
    assert done.exit_code == 0, done.output
    heading, _, first, second, third, *_ = done.stdout.splitlines()
    assert heading.startswith("double  N=64")
    assert "work=1,wrong=false" in first
    assert "default (work=10 wrong=False)" in second
    assert "work=100" in third


def test_what_is_decided_can_be_raced_once_it_is_decided() -> None:
    args = ("--kernel", "kernels.py:double", "work=100", "decided", "--seconds", "20")
    missed = run(*args)
    assert isinstance(missed.exception, NoDecision)
    assert "tunewright tune kernels.py:double --shape N=64" in str(missed.exception)
    assert CliRunner().invoke(tune, ["kernels.py:double", "--pool", "serial"]).exit_code == 0
    found = answer(*args)
    assert found["leader"] == "decided"
    assert found["contestants"][0]["config"] == {"work": 100, "wrong": False}


def test_a_config_that_is_wrong_is_not_raced() -> None:
    done = run("--kernel", "kernels.py:double", "default", "work=1,wrong=True")
    assert done.exit_code != 0
    assert "work=1,wrong=True does not work: wrong at verify" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("true",), "two candidates"),
        (("true", "nonesuch -v"), "cannot run 'nonesuch -v': there is no such command; a command is typed in quotes"),
        (("true", "functions.py"), "a Python function as FILE.py:NAME"),
        (("true", ""), "there is no such command"),
        (("true", "a 'b"), "cannot read the command"),
        (("true", "ls | wc"), "| needs a shell; write: sh -c 'ls | wc'"),
        (("true", "sh -c 'echo first >&2; echo last >&2; exit 3'"), "ended with exit status 3: last. Run it by itself"),
        (("true", "sh -c 'kill -9 $$'"), "was killed by SIGKILL"),
        (("true", "nowhere.py:x"), "no file nowhere.py"),
        (("true", "nomodule:x"), "there is no module 'nomodule'; a function is named as"),
        (("true", "broken.py:x"), "loading broken.py raised ZeroDivisionError"),
        (("true", "functions.py:nope"), "its functions: short, long, interrupted, rests"),
        (("true", "functions.py:number"), "functions.py:number cannot be called"),
        (("true", "functions.py:hungry"), "missing a required argument: 'plate'; write a function without arguments"),
        (("true", "functions.py:later"), "asyncio.run(later())"),
        (("true", "functions.py:raises"), "functions.py:raises raised ValueError: not today"),
        (("true", "functions.py:leaves"), "functions.py:leaves raised SystemExit: 3"),
        (("true", "kernels.py:double"), "tunewright race --kernel kernels.py:double"),
        (("true", "true", "--margin", "2"), "write it as 1% or 0.01"),
        (("true", "true", "--margin", "much"), "write it as 1% or 0.01"),
        (("true", "true", "--seconds", "0"), "not in the range"),
        (("true", "true", "--shape", "N=3"), "of a kernel; name it: --kernel FILE.py:NAME"),
        (("--kernel", "kernels.py:double", "default", "fast"), "write VW=8,MR=4, or default, or decided"),
        (("--kernel", "kernels.py:often", "default", "work=1"), "needs one size, and often has 2; say --shape N=64"),
    ],
)
def test_every_mistake_says_what_to_do(args, said) -> None:
    done = run(*args)
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit)
    assert said in done.stderr
    assert done.stdout == ""


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_race() -> None:
    mark = "touch started"
    for plot in ("x.jpg", "nowhere/x.png"):
        assert isinstance(run(mark, mark, "--plot", plot).exception, SettingsError)
    assert not os.path.exists("started")


@pytest.mark.slow
def test_a_race_is_drawn(here, scripted) -> None:
    done = run(SLOW, QUICK, "--plot", "out.png")
    assert done.exit_code == 0
    assert "drawn: out.png" in done.stdout
    assert (here / "out.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (("--rounds", "3"), "did not settle within 3 rounds; give it more --rounds"),
        (("--seconds", "0.1"), "did not settle within 0.1 s; give it more --seconds"),
    ],
)
def test_a_race_that_does_not_settle_says_what_it_lacks(limit, said, scripted) -> None:
    done = run(SLOW, SLOW, *limit)
    assert done.exit_code == 0
    assert said in done.stdout
    assert "too few to tell" in done.stdout


@pytest.mark.parametrize("margin", ["2%", "2 %", "0.02"])
def test_a_margin_is_a_share_or_per_cent(margin) -> None:
    assert answer("true", "true", "--rounds", "1", "--margin", margin)["margin"] == pytest.approx(0.02)


def test_ctrl_c_shows_the_standings_of_the_rounds_that_everyone_ran(scripted) -> None:
    done = run("functions.py:interrupted", "functions.py:rests", "--margin", "0.0001%", "--json")
    assert done.exit_code != 0
    found = json.loads(done.stdout)
    assert found["interrupted"] is True
    # It is called once to see how long it takes, and raises in the sixth call.
    assert [len(one["samples"]) for one in found["contestants"]] == [4, 4]
    done = run("functions.py:interrupted", "functions.py:rests", "--margin", "0.0001%")
    assert "these are the standings so far" in done.stdout


def test_ctrl_c_ends_what_a_command_has_started(here, wait_until) -> None:
    hangs = "sh -c 'sleep 600 & echo $! > child; wait'"
    process = subprocess.Popen([sys.executable, "-c", ALONE, hangs, hangs], stderr=subprocess.PIPE, text=True)
    child = here / "child"
    wait_until(lambda: child.exists() and child.read_text().strip(), "the command's child")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "interrupted before the first round was over" in said
    wait_until(lambda: gone(int(child.read_text())), "the end of the command's child", seconds=60)


def test_ctrl_c_while_a_command_starts_leaves_nothing_behind(monkeypatch) -> None:
    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            started.append(self)
            os.kill(os.getpid(), signal.SIGINT)

    started = []
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        CommandCandidate("sleep 600")()
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_terminal_sees_a_bar_and_color(terminal) -> None:
    command = [sys.executable, "-c", ALONE, "true", "true", "--rounds", "7", "--seconds", "60"]
    process = terminal.start(command)
    said = terminal.read()
    assert process.wait(120) == 0
    assert re.search(r"round \d · 2 in the race", said)
    assert "\x1b[1m" in said


def stood(ratio, low, high, left=None, rounds=8):
    return Standing((1e-3 * ratio,) * rounds, ratio, low, high, left)


LEADER = stood(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([stood(1.23, 1.2, 1.26, 9)], "a is 1.23x as fast as b (1.20 to 1.26)"),
        ([stood(1.023, 1.02, 1.026, 9)], "a is 1.023x as fast as b (1.020 to 1.026)"),
        ([stood(4.0, 1e-9, 1e9, 2, rounds=2)], "a is about 4.00x as fast as b"),
        ([stood(1.6, 1.5, 1.7, 7), stood(1.5, 1.4, 1.6, 7)], "a is 1.50x as fast as the next, c (1.40 to 1.60)"),
        ([stood(1.001, 0.998, 1.006)], "a leads; b ties with it: they differ by less than 0.6 %"),
        ([stood(1.001, 0.99, 1.006)] * 2, "a leads; 2 others tie with it: they differ by less than 1.0 %"),
    ],
)
def test_the_verdict_is_a_sentence(others, said) -> None:
    assert verdict(Race(0, (LEADER, *others), 0.01, True), "abcd") == said


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([stood(1.02, 0.9, 1.15)], "a leads, but b cannot be told from it yet: they may differ by 15.0 %"),
        ([stood(1.02, 0.8, 1.15)] * 2, "a leads, but 2 others cannot be told from it yet: they may differ by 25.0 %"),
        ([stood(1.0, 1e-9, 1e9)], "a leads, but 8 rounds are too few to tell b from it"),
        ([stood(1.23, 1.2, 1.26, 9)], "a is 1.23x as fast as b (1.20 to 1.26)"),
    ],
)
def test_a_race_that_is_not_settled_claims_no_tie(others, said) -> None:
    assert verdict(Race(0, (LEADER, *others), 0.01, False), "abcd") == said


def test_long_names_lose_their_middle_and_equal_ones_are_numbered() -> None:
    long = "python " + "x" * 60 + " --last"
    (short,) = shorten_names([long])
    assert shorten_names(["ls  -l", "ls\n-l", "true", long]) == ["ls -l #1", "ls -l #2", "true", short]
    assert len(short) == 40
    assert shorten_names([long])[0].startswith("python x")
    assert shorten_names([long])[0].endswith("x --last")


def test_a_config_takes_from_the_default_what_is_not_said() -> None:
    space = tw.Space(
        tw.Knob("order", ["ij", "ji"]),
        variants=[
            tw.Variant("plain", tw.Knob("step", [1, 2])),
            tw.Variant("tiled", tw.Knob("tile", [8, 16]), tw.Knob("step", [4, 8]), tw.Knob("pad", [False, True])),
        ],
    )

    @tw.tune(
        space,
        backend={"plain": tw.Python(lambda: None), "tiled": tw.Python(lambda: None)},
        default={"variant": "plain", "order": "ji", "step": 2},
    )
    def kernel(): ...

    assert str(parse_config(kernel, "step=1")) == "variant=plain order=ji step=1"
    assert str(parse_config(kernel, "order=ij step=1")) == "variant=plain order=ij step=1"
    tiled = parse_config(kernel, "variant=tiled,step=8,pad=true")
    assert str(tiled) == "variant=tiled order=ji pad=True step=8 tile=8"
    assert tiled["pad"] is True
    with pytest.raises(SpaceError, match="'tile'"):
        parse_config(kernel, "tile=8")
    with pytest.raises(SpaceError, match="variants: plain, tiled"):
        parse_config(kernel, "variant=nope")
