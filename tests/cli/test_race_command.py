"""Races of real commands, functions and configs; what is asserted holds on a noisy machine too."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

import tunewright as tw
from tunewright.cli.contestants import config_of, shortened
from tunewright.cli.race import race, verdict
from tunewright.cli.tune import tune
from tunewright.errors import NoDecision, SettingsError, SpaceError
from tunewright.measure.race import Race, Standing

PYTHON = shlex.quote(sys.executable)
ALONE = "from tunewright.cli.race import race; race()"

FUNCTIONS = """
import time
from pathlib import Path

with (Path(__file__).parent / "loaded").open("a") as file:
    file.write("once\\n")

def short():
    return sum(range(1_000))

def long():
    print("what I print is not the answer")
    return sum(range(20_000))

class Inside:
    @staticmethod
    def quick(): return sum(range(1_000))

calls = 0

def interrupted():
    global calls
    calls += 1
    time.sleep(0.03)
    if calls > 5:
        raise KeyboardInterrupt

def rests(): time.sleep(0.03)
def raises(): raise ValueError("not today")
def leaves(): raise SystemExit(3)
def hungry(plate): ...
async def later(): ...
number = 3
"""

KERNEL = """
import tunewright as tw

space = tw.Space(
    tw.Knob("work", [1, 2, 40]),
    tw.Knob("wrong", [False, True]),
    rules=[tw.Rule("much work is never wrong", lambda work, wrong: not (work > 2 and wrong))],
)

@tw.tune(space, reference=lambda x: x * 2, shapes=[{"N": 64}], default={"work": 2, "wrong": False})
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


def run(*args):
    return CliRunner().invoke(race, args)


def answer(*args):
    done = run(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_of_two_commands_the_faster_is_named_and_by_how_much() -> None:
    sleepy = f"{PYTHON} -c 'import time; time.sleep(0.4)'"
    done = run(sleepy, f"{PYTHON} -c pass", "--seconds", "2")
    assert done.exit_code == 0
    heads, first, second, *_, said, clock = done.stdout.splitlines()
    assert clock == "by the wall clock"
    assert heads.split() == ["place", "contestant", "time", "per", "run", "times", "the", "leader's", "rounds"]
    assert first.startswith("1 ")
    assert "-c pass" in first
    assert second.startswith("2 ")
    assert "left after" in second
    assert "-c pass is " in said
    assert "x as fast as " in said
    assert "\x1b" not in done.output


def test_a_command_ties_with_itself() -> None:
    found = answer("sleep 0.1", "sleep 0.1", "--rounds", "8", "--seconds", "5")
    assert found["ties"] == ["sleep 0.1", "sleep 0.1"]
    assert [one["place"] for one in found["contestants"]] == [1, 1]
    for one in found["contestants"]:
        assert one["low"] <= one["ratio"] <= one["high"]
        assert len(one["samples"]) == 8
        assert min(one["samples"]) >= 0.1


def test_functions_are_loaded_once_and_what_they_print_is_discarded(here) -> None:
    done = run("functions.py:long", "functions.py:short", "functions:Inside.quick", "--seconds", "1", "--json")
    found = json.loads(done.stdout)
    assert "not the answer" not in done.output
    assert found["leader"] in ("functions.py:short", "functions:Inside.quick")
    slow = found["contestants"][0]
    assert slow["ratio"] > 5
    assert slow["place"] == 3
    # Once as a file, and once as the module of another contestant.
    assert (here / "loaded").read_text() == "once\n" * 2


def test_a_function_and_a_command_may_race_each_other() -> None:
    found = answer("sleep 0.05", "functions.py:short", "--seconds", "1")
    assert found["leader"] == "functions.py:short"
    assert found["ties"] == ["functions.py:short"]


def test_configs_of_a_kernel_race_in_a_worker() -> None:
    done = run("--kernel", "kernels.py:double", "work=40", "default", "work=1,wrong=false", "--seconds", "2")
    assert done.exit_code == 0, done.output
    heading, _, first, second, third, *_ = done.stdout.splitlines()
    assert heading.startswith("double  N=64")
    assert "work=1,wrong=false" in first
    assert "default (work=2 wrong=False)" in second
    assert "work=40" in third


def test_what_is_decided_can_be_raced_once_it_is_decided() -> None:
    args = ("--kernel", "kernels.py:double", "work=40", "decided", "--seconds", "1")
    missed = run(*args)
    assert isinstance(missed.exception, NoDecision)
    assert "tunewright tune kernels.py:double --shape N=64" in str(missed.exception)
    assert CliRunner().invoke(tune, ["kernels.py:double", "--pool", "serial"]).exit_code == 0
    found = answer(*args)
    assert found["leader"] == "decided"
    assert found["contestants"][0]["config"] == {"work": 40, "wrong": False}


def test_a_config_that_is_wrong_is_not_raced() -> None:
    done = run("--kernel", "kernels.py:double", "default", "work=1,wrong=True")
    assert done.exit_code != 0
    assert "work=1,wrong=True does not work: wrong at verify" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("true",), "two contestants"),
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
        (("true", "true", "--shape", "N=3"), "say of which kernel: --kernel FILE.py:NAME"),
        (("--kernel", "kernels.py:double", "default", "fast"), "write VW=8,MR=4, or default, or decided"),
        (("--kernel", "kernels.py:often", "default", "work=1"), "at one size, and often has 2; say --shape N=64"),
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


def test_a_race_is_drawn(here) -> None:
    done = run("sleep 0.01", "sleep 0.1", "--seconds", "1", "--plot", "out.png")
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
def test_a_race_that_does_not_settle_says_what_it_lacks(limit, said) -> None:
    done = run("sleep 0.1", "sleep 0.1", *limit)
    assert done.exit_code == 0
    assert said in done.stdout
    assert "too few to tell" in done.stdout


@pytest.mark.parametrize("margin", ["2%", "2 %", "0.02"])
def test_a_margin_is_a_share_or_per_cent(margin) -> None:
    assert answer("true", "true", "--rounds", "1", "--margin", margin)["margin"] == pytest.approx(0.02)


def test_ctrl_c_shows_the_standings_of_the_rounds_that_everyone_ran() -> None:
    done = run("functions.py:interrupted", "functions.py:rests", "--margin", "0.0001%", "--json")
    assert done.exit_code != 0
    found = json.loads(done.stdout)
    assert found["interrupted"] is True
    rounds = {len(one["samples"]) for one in found["contestants"]}
    assert len(rounds) == 1
    assert 2 <= rounds.pop() <= 4
    done = run("functions.py:interrupted", "functions.py:rests", "--margin", "0.0001%")
    assert "these are the standings so far" in done.stdout


def test_ctrl_c_ends_what_a_command_has_started(here) -> None:
    hangs = "sh -c 'sleep 60 & echo $! > child; wait'"
    process = subprocess.Popen([sys.executable, "-c", ALONE, hangs, hangs], stderr=subprocess.PIPE, text=True)
    child = here / "child"
    for _ in range(100):
        time.sleep(0.1)
        if child.exists() and child.read_text().strip():
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "interrupted before there was a round to show" in said
    assert gone(int(child.read_text()))


def gone(pid):
    for _ in range(50):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def test_a_terminal_sees_a_bar_and_colour(terminal) -> None:
    command = [sys.executable, "-c", ALONE, "sleep 0.05", "sleep 0.05", "--rounds", "7"]
    process = terminal.start(command)
    said = terminal.read()
    assert process.wait(30) == 0
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
    assert shortened(["ls  -l", "ls\n-l", "true", long]) == ["ls -l #1", "ls -l #2", "true", shortened([long])[0]]
    assert len(shortened([long])[0]) == 40
    assert shortened([long])[0].startswith("python x")
    assert shortened([long])[0].endswith("x --last")


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

    assert str(config_of(kernel, "step=1")) == "variant=plain order=ji step=1"
    assert str(config_of(kernel, "order=ij step=1")) == "variant=plain order=ij step=1"
    tiled = config_of(kernel, "variant=tiled,step=8,pad=true")
    assert str(tiled) == "variant=tiled order=ji pad=True step=8 tile=8"
    assert tiled["pad"] is True
    with pytest.raises(SpaceError, match="'tile'"):
        config_of(kernel, "tile=8")
    with pytest.raises(SpaceError, match="offered: plain, tiled"):
        config_of(kernel, "variant=nope")
