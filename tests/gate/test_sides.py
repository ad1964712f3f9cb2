"""Commands, Python functions and C functions as sides of a gate."""

import os
import shutil
import signal
import sys

import pytest

from tunewright.errors import BackendError, SettingsError
from tunewright.gate import function_process
from tunewright.gate.function_process import FunctionProcess, NothingToCompare
from tunewright.gate.sides import SideKind, open_sides, parse_side
from tunewright.pools import command_times
from tunewright.pools.command_times import ProcessTimes, choose_clock, time_command

FUNCTIONS = """
import os, signal, subprocess, sys, time
def fine(): sum(range(1000))
def loud(): print("not the answer"); os.write(1, b"{}")
def raises(): raise ValueError("not today")
def leaves(): sys.exit(3)
def dies(): os.kill(os.getpid(), signal.SIGKILL)
def hangs():
    while True: time.sleep(60)
def starts():
    if not os.path.exists("child"):
        child = subprocess.Popen(["sleep", "600"])
        open("child", "w").write(str(child.pid))
def hungry(plate): ...
async def later(): ...
number = 3
"""
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no compiler")


@pytest.fixture
def here(tmp_path):
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    return tmp_path


def started(here, name):
    side = parse_side(f"functions.py:{name}", here)
    process = FunctionProcess(side.place())
    try:
        process.start()
        return process.sample(process.count)
    finally:
        process.close()


def test_a_function_runs_in_a_process_of_its_own(here) -> None:
    loaded_before = sys.modules.get("functions")  # other tests have modules of that name
    times = started(here, "fine")
    assert 0 < times.own_cpu <= times.cpu
    assert times.wall > 0
    assert sys.modules.get("functions") is loaded_before


def test_what_a_function_prints_is_not_taken_for_an_answer(here) -> None:
    assert started(here, "loud").wall > 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "raised ValueError: not today"),
        ("leaves", "raised SystemExit: 3"),
        ("dies", r"ended its process \(SIGKILL\)"),
        ("hungry", "missing a required argument: 'plate'"),
        ("later", "is a coroutine"),
        ("number", "cannot be called"),
    ],
)
def test_a_function_that_cannot_be_raced_says_why(here, name, said) -> None:
    with pytest.raises(BackendError, match=said):
        started(here, name)


def test_a_function_that_is_not_there_is_told_apart(here) -> None:
    with pytest.raises(NothingToCompare, match="defines no 'nope'"):
        started(here, "nope")


def test_a_function_that_hangs_is_given_up(here, monkeypatch) -> None:
    monkeypatch.setattr(function_process, "START_SECONDS", 0.5)
    with pytest.raises(BackendError, match=r"did not return within 0\.5 s"):
        started(here, "hangs")


def test_what_a_function_started_ends_with_it(here, wait_until) -> None:
    started(here, "starts")
    pid = int((here / "child").read_text())
    wait_until(lambda: _is_gone(pid), "the end of the child")


def _is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_every_draw_has_new_processes(here) -> None:
    (here / "pids.py").write_text("import os\ndef f(): open('pids', 'a').write(f'{os.getpid()}\\n')\n")
    side = parse_side("pids.py:f", here)
    with open_sides(side, side) as contest:
        for swap in (False, True):
            assert len(contest.draw(swap, 0.0)) >= 6
    assert len(set((here / "pids").read_text().split())) == 4


@needs_compiler
def test_c_functions_are_compiled_and_called(here) -> None:
    (here / "a.c").write_text("static volatile int n; void one(void) { for (int i = 0; i < 1000; i++) n += i; }")
    side = parse_side("a.c:one", here)
    assert side.kind is SideKind.C_FUNCTION
    with open_sides(side, side) as contest:
        assert all(0 < times.wall < 0.1 for pair in contest.draw(False, 0.0) for times in pair)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "said"), [("a.c:two", "no function 'two'"), ("b.c:f", "error"), ("x.c:f", "no .*x.c")]
)
def test_a_c_function_that_is_not_there_says_so(here, name, said) -> None:
    (here / "a.c").write_text("void one(void) {}")
    (here / "b.c").write_text("void f(void) { nonsense }")
    side = parse_side(name, here)
    with pytest.raises(BackendError, match=said), open_sides(side, side) as contest:
        contest.draw(False, 0.0)


def test_a_command_that_fails_says_how(here) -> None:
    side = parse_side("sh -c 'echo last >&2; exit 3'", here)
    with open_sides(side, side) as contest, pytest.raises(BackendError, match="ended with exit status 3: last"):
        contest.draw(False, 1.0)


@pytest.mark.parametrize(
    ("typed", "said"),
    [("nonesuch -v", "no such command"), ("a 'b", "cannot read"), ("ls | wc", "needs a shell"), ("no.py:f", "no file")],
)
def test_what_is_no_side_says_what_is_meant(here, typed, said) -> None:
    with pytest.raises(SettingsError, match=said):
        parse_side(typed, here)


def test_a_command_is_not_held_to_the_time_of_a_function(here) -> None:
    sides = parse_side("true", here), parse_side("functions.py:fine", here)
    with pytest.raises(SettingsError, match="cannot be held"), open_sides(*sides):
        pass


def test_a_command_that_never_ends_is_killed(here) -> None:
    with open(os.devnull, "rb+") as errors:
        status, _ = time_command(["sh", "-c", "sleep 600; true"], errors, limit=0.2)
    assert status == -signal.SIGKILL


def test_a_command_that_sleeps_is_timed_to_its_end(here) -> None:
    with open(os.devnull, "rb+") as errors:
        status, times = time_command(["sleep", "0.1"], errors)
    assert status == 0
    assert times.undelayed >= 0.099
    assert times.cpu < 0.09


def test_the_delay_of_a_process_is_taken_off() -> None:
    assert ProcessTimes(0.15, 0.1, 0.1, 0.05).undelayed == pytest.approx(0.1)
    assert ProcessTimes(0.15, 0.1, 0.1, 0.09).undelayed == pytest.approx(0.1), "it cannot be less than it computed"
    assert ProcessTimes(0.15, 0.2, 0.1, 0.05).undelayed == 0.15, "helpers may have delayed it"
    assert ProcessTimes(0.15, 0.1).undelayed == 0.15, "not known"
    assert choose_clock([]) == "wall"


def test_a_system_that_does_not_tell_delays_is_timed_by_the_wall_clock(here, monkeypatch) -> None:
    monkeypatch.setattr(command_times, "read_schedstat", lambda task: None)
    with open(os.devnull, "rb+") as errors:
        _, times = time_command(["true"], errors)
    assert times.delay is None
    assert choose_clock([times]) == "wall"


def test_a_file_is_loaded_from_where_it_was_named(here) -> None:
    place = parse_side("functions.py:fine", here).place()
    assert place.target == f"{(here / 'functions.py').resolve()}:fine"
    assert place.path[0] == str(here)
