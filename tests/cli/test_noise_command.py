import json
import os
import sys

import pytest
from click.testing import CliRunner

from tunewright.cli import noise as module
from tunewright.cli.noise import noise
from tunewright.measure.race import Race, Standing
from tunewright.model.conditions import Conditions


def run(*args, status=0):
    done = CliRunner().invoke(noise, args)
    assert done.exit_code == status, done.output
    return done.output


def found(half, left=None):
    """A floor of this resolution; with `left`, one that noise has won."""
    return Race(0, (Standing((1.0,) * 9, 1, 1, 1), Standing((1.0,) * 9, 1, 1 - half, 1 + half, left)), 0.0, False)


@pytest.fixture
def machine(monkeypatch):
    """A machine made up of two floors and what is seen beside them."""

    def make(cpu, wall, seen=Conditions()):  # noqa: B008 - frozen
        monkeypatch.setattr(module, "noise_floor", lambda seconds, clock: {"cpu": cpu, "wall": wall}[clock])
        monkeypatch.setattr(module.ConditionsMonitor, "stop", lambda self, pace: seen)

    return make


def test_it_measures_this_machine_and_says_so_in_a_few_lines() -> None:
    lines = run("--seconds", "0.6").splitlines()
    assert lines[0].startswith("cpu clock    tells ")
    assert "apart in 0.3 s   (wall clock " in lines[0]
    assert lines[1].startswith("load ")
    assert f" of {os.cpu_count()} processors, others used " in lines[1]
    assert "quiet enough for the default margin of 1 %" in lines[-1]
    assert len(lines) <= 10


def test_machines_get_one_value_with_every_field() -> None:
    said = json.loads(run("--seconds", "0.6", "--json"))
    assert set(said["clocks"]) == {"cpu", "wall"}
    for clock in said["clocks"].values():
        assert 0 < clock["resolution"] <= 1
        assert clock["quiet"] is (clock["resolution"] <= said["margin"] and not clock["fooled"])
    assert set(said["conditions"]) == set(Conditions.__struct_fields__)
    # A race that noise has decided ends early, and chance does so about one time in fifty.
    full = [clock for clock in said["clocks"].values() if not clock["fooled"]]
    assert said["conditions"]["seconds"] >= 0.3 * len(full)
    assert said["seconds"] == 0.3
    assert isinstance(said["complaints"], list)


def test_a_quiet_machine_is_called_quiet(machine) -> None:
    machine(found(0.004), found(0.0099), Conditions(seconds=3, load=0.3, busy=0.21, switches=14, drift=0.003))
    lines = run().splitlines()
    assert lines[0] == "cpu clock    tells 0.4 % apart in 1.5 s   (wall clock 1.0 %)"
    assert lines[1].endswith("others used 21 %, stolen 0.0 %, 14 switches/s, drift +0.3 %")
    assert lines[2:] == ["quiet enough for the default margin of 1 %."]


def test_a_machine_that_is_quiet_by_one_clock_only_is_not_called_quiet(machine) -> None:
    machine(found(0.004), found(0.074), Conditions(seconds=3, busy=0.48))
    said = run()
    assert "- other programs used 48 % of the processors\n" in said
    assert "of 1 % by the cpu clock only: stop other programs, pin the processor's frequency or wait" in said
    assert "Claim no difference below 8 % now." in said


def test_a_loud_machine_is_told_what_to_do(machine) -> None:
    machine(found(0.012), found(0.013))
    assert "not quiet enough for the default margin of 1 %: stop" in run()
    assert "Claim no difference below 2 % now." in run()
    machine(found(0.9999), found(0.9999))
    assert "tells nothing apart" in run()
    assert "settle" not in run()


def test_noise_that_passed_for_a_difference_is_no_quiet_machine(machine) -> None:
    machine(found(0.002, left=8), found(0.002))
    said = run()
    assert "by the cpu clock, noise looked like a difference between two equal things" in said
    assert "by the wall clock only" in said
    clock = json.loads(run("--json"))["clocks"]["cpu"]
    assert clock == {"fooled": True, "quiet": False, "resolution": 1.0}


@pytest.mark.parametrize("seconds", ["0", "-1", "1e9", "soon"])
def test_a_time_that_makes_no_sense_is_refused(seconds) -> None:
    assert "--seconds" in run("--seconds", seconds, status=2)


def test_a_terminal_is_told_first_what_will_take_so_long(terminal) -> None:
    code = "from tunewright.cli.noise import noise; noise()"
    process = terminal.start([sys.executable, "-c", code, "--seconds", "0.4"])
    said = terminal.read()
    assert process.wait(300) == 0
    assert said.index("against itself for 0.4 s") < said.index("cpu clock")
