"""Quiet: which differences this machine can tell apart now, and what stands in the way."""

from __future__ import annotations

import os
import sys
from math import ceil

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.measure.quiet import Watch, floor
from tunewright.measure.race import Race, Terms
from tunewright.model.conditions import Conditions

MARGIN = Terms().margin


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(0.2, 60), default=3.0, show_default=True, help="How long to look at it."
)
@json_option
def quiet(seconds: float, as_json: bool) -> None:
    """Say which differences this machine can tell apart now.

    And what stands in the way: load, stolen time, interruptions, changing speed.

    A small piece of work is raced against itself, half the time by the CPU clock (kernels of one thread), half by the
    wall clock (several threads). Kernels that wait for memory are noisier than that.
    """
    if sys.stdout.isatty() and not as_json:
        output.say(f"racing a small piece of work against itself for {seconds:g} s", "dim")
    watch = Watch()
    floors = {"cpu": floor(seconds / 2, "cpu"), "wall": floor(seconds / 2, "wall")}
    # The pace by the CPU clock alone: time that others took is told apart from a processor that became slower.
    conditions = watch.stop(floors["cpu"].standings[floors["cpu"].leader].samples)
    good = [clock for clock, race in floors.items() if (race.resolution or 1.0) <= MARGIN and not _fooled(race)]
    if as_json:
        clocks = {
            clock: {"resolution": (race.resolution or 1.0), "fooled": _fooled(race), "quiet": clock in good}
            for clock, race in floors.items()
        }
        output.as_json(
            {
                "clocks": clocks,
                "seconds": seconds / 2,
                "margin": MARGIN,
                "conditions": msgspec.structs.asdict(conditions),
                "complaints": conditions.complaints(),
            }
        )
        return
    cpu, wall = (_percent(race.resolution or 1.0) for race in floors.values())
    output.say(f"cpu clock    tells {cpu} apart in {seconds / 2:g} s   (wall clock {wall})")
    output.say(_observed(conditions))
    for sentence in conditions.complaints():
        output.say(f"- {sentence}")
    for clock in (clock for clock, race in floors.items() if _fooled(race)):
        output.say(f"- by the {clock} clock, noise passed for a difference between two equal things")
    output.say(_verdict(good, max(race.resolution or 1.0 for race in floors.values())), "bold")


def _fooled(race: Race) -> bool:
    """Whether the race told one thing from itself; chance alone does that about one time in fifty."""
    return len(race.ties) < 2


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 1 else "nothing"


def _observed(seen: Conditions) -> str:
    cores = os.cpu_count() or 1
    return (
        f"load {seen.load * cores:.1f} of {cores} processors, others used {100 * seen.busy:.0f} %, "
        f"stolen {100 * seen.steal:.1f} %, {seen.switches:.0f} switches/s, drift {100 * seen.drift:+.1f} %"
    )


def _verdict(good: list[str], worst: float) -> str:
    """What the floors mean for the default margin, and what to do if they are too high."""
    aim = f"quiet enough for the default margin of {100 * MARGIN:g} %"
    if len(good) == 2:
        return f"{aim}."
    held = f"{aim} by the {good[0]} clock only" if good else f"not {aim}"
    claim = f" Claim no difference below {ceil(100 * worst):g} % now." if worst < 1 else ""
    return (
        f"{held}: close what runs beside, pin the processor's frequency or wait.{claim} "
        f"With the setting `resolution` = {MARGIN:g}, what is told no finer than {100 * MARGIN:g} % is not kept."
    )
