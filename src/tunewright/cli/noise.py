"""`tunewright noise`: which differences this machine can tell apart now, and what disturbs it."""

from __future__ import annotations

import os
import sys
from math import ceil

import click
import msgspec

from tunewright.backends.gpu_state import GpuState, read_gpu_state
from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.measure.noise import ConditionsMonitor, noise_floor
from tunewright.measure.race import Race, RaceOptions
from tunewright.model.conditions import Conditions

MARGIN = RaceOptions().margin


@click.command()
@click.option("--seconds", type=click.FloatRange(0.2, 60), default=3.0, show_default=True, help="How long to measure.")
@json_option
def noise(seconds: float, as_json: bool) -> None:
    """Measure which differences this machine can tell apart now.

    And what disturbs it: load, stolen time, interruptions, changing speed; of GPUs, what NVML or amdsmi report: clocks,
    power, why they are slowed down, and other processes.

    A small piece of work is raced against itself, half the time by the CPU clock (kernels of one thread), half by the
    wall clock (several threads). Kernels that wait for memory are noisier than that.
    """
    if sys.stdout.isatty() and not as_json:
        output.echo(f"racing a small piece of work against itself for {seconds:g} s", "dim")
    monitor = ConditionsMonitor()
    floors = {"cpu": noise_floor(seconds / 2, "cpu"), "wall": noise_floor(seconds / 2, "wall")}
    # By the CPU clock, a processor that became slower differs from one that other processes used.
    conditions = monitor.stop(floors["cpu"].standings[floors["cpu"].leader].samples)
    gpus = read_gpu_state()
    complaints = [*conditions.complaints(), *(sentence for state in gpus for sentence in state.complaints())]
    quiet = [
        clock
        for clock, race in floors.items()
        if (race.resolution or 1.0) <= MARGIN and not _sees_false_difference(race)
    ]
    if as_json:
        clocks = {
            clock: {
                "resolution": (race.resolution or 1.0),
                "fooled": _sees_false_difference(race),
                "quiet": clock in quiet,
            }
            for clock, race in floors.items()
        }
        output.print_json(
            {
                "clocks": clocks,
                "seconds": seconds / 2,
                "margin": MARGIN,
                "conditions": msgspec.structs.asdict(conditions),
                "complaints": complaints,
                "gpus": [msgspec.structs.asdict(state) for state in gpus],
            }
        )
        return
    _print_findings(floors, conditions, gpus, complaints, seconds)
    output.echo(_verdict(quiet, max(race.resolution or 1.0 for race in floors.values())), "bold")


def _print_findings(
    floors: dict[str, Race], conditions: Conditions, gpus: list[GpuState], complaints: list[str], seconds: float
) -> None:
    """Prints what the clocks can tell apart, what the machine and its cards do, and what disturbs them."""
    cpu, wall = (_percent(race.resolution or 1.0) for race in floors.values())
    output.echo(f"cpu clock    tells {cpu} apart in {seconds / 2:g} s   (wall clock {wall})")
    output.echo(_describe_conditions(conditions))
    fooled = [clock for clock, race in floors.items() if _sees_false_difference(race)]
    doubt = "clock, noise looked like a difference between two equal things"
    complaints = [*complaints, *(f"by the {clock} {doubt}" for clock in fooled)]
    for line in (*(f"gpu          {state.describe()}" for state in gpus), *(f"- {each}" for each in complaints)):
        output.echo(line)


def _sees_false_difference(race: Race) -> bool:
    """Returns whether the race found a difference between equal things; chance does so about one time in fifty."""
    return len(race.ties) < 2


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 1 else "nothing"


def _describe_conditions(conditions: Conditions) -> str:
    cores = os.cpu_count() or 1
    return (
        f"load {conditions.load * cores:.1f} of {cores} processors, others used {100 * conditions.busy:.0f} %, "
        f"stolen {100 * conditions.steal:.1f} %, {conditions.switches:.0f} switches/s, "
        f"drift {100 * conditions.drift:+.1f} %"
    )


def _verdict(quiet: list[str], worst: float) -> str:
    """Returns whether the machine is quiet enough for the default margin, and what to do if not."""
    goal = f"quiet enough for the default margin of {100 * MARGIN:g} %"
    if len(quiet) == 2:
        return f"{goal}."
    result = f"{goal} by the {quiet[0]} clock only" if quiet else f"not {goal}"
    claim = f" Claim no difference below {ceil(100 * worst):g} % now." if worst < 1 else ""
    return (
        f"{result}: stop other programs, pin the processor's frequency or wait.{claim} "
        f"With the setting `resolution` = {MARGIN:g}, a race that cannot tell {100 * MARGIN:g} % apart stores nothing."
    )
