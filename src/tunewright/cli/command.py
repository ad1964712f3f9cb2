"""`tunewright command`: find the best flags of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from tunewright.cli import output
from tunewright.cli.targets import json_option, store_option
from tunewright.cli.tune import tune_calls
from tunewright.commands import Command, CpuSeconds, Regex, Seconds
from tunewright.commands.metrics import Metric
from tunewright.kernel.tuned import Tuned
from tunewright.spaces.config import Config
from tunewright.spaces.space import Knob, Space

METRICS: dict[str, Metric] = {"seconds": Seconds(), "cpu": CpuSeconds()}


@click.command()
@click.argument("template")
@click.option("--knob", "knobs", multiple=True, metavar="NAME=A,B", help="A knob and its values; may be repeated.")
@click.option("--file", "files", multiple=True, metavar="NAME=PATH", help="An input; each run gets a copy.")
@click.option("--output", "outputs", multiple=True, metavar="NAME=FILE", help="Another output than {output}.")
@click.option(
    "--check",
    default="same",
    show_default=True,
    help="What makes outputs right: same (as the default's), a shell command, or none.",
)
@click.option("--metric", default="seconds", show_default=True, help="seconds, cpu, or a pattern with a (group).")
@click.option("--best", type=click.Choice(["high", "low"]), help="Whether a high or a low printed number is better.")
@click.option("--unit", default="", help="The unit of a printed number.")
@click.option("--stdin", help="The name of the file to read from standard input.")
@click.option("--env", "env", multiple=True, metavar="NAME=TEXT", help="An environment variable; may have knobs.")
@click.option("--constant", multiple=True, metavar="NAME", help="A file that is only read: linked, not copied.")
@click.option("--shell", is_flag=True, help="Run the command by a shell.")
@click.option("--timeout", type=float, help="Seconds after which a run is killed.")
@click.option("--default", "default", metavar="NAME=A,...", help="The config to compare with (default: first values).")
@click.option("--threads", type=click.IntRange(min=1), help="Threads that the program may use (default: all cores).")
@click.option("--name", help="Its name in the store (default: that of the program).")
@click.option("--budget", help="Limit of the search: 200 (trials), 60s, 5m, or both: 200,5m.")
@click.option("--strategy", help="Search strategy: portfolio, random, exhaustive, ... or a plugin.")
@click.option("--seed", type=int, help="The same seed proposes the same configs.")
@click.option("--pool", help="Where trials run: process (isolated), serial (in this process).")
@click.option("--more", is_flag=True, help="Continue the search although there is a decision.")
@click.option("--fresh", is_flag=True, help="Start over: repeat what earlier runs tried.")
@store_option
@json_option
def command(template: str, **options: Any) -> None:
    """Find the best flags of a program.

    TEMPLATE is the command line, with {name} for each knob, input file and {output}. Every run gets copies of its files
    in a folder of its own. The last line is the best command line.
    """
    if not (knobs := _named(options.pop("knobs"), "--knob")):
        raise click.UsageError("give at least one --knob NAME=A,B, and write {NAME} where it belongs")
    settings = {
        name: options.pop(name) for name in ("strategy", "seed", "pool", "more", "fresh", "store", "as_json", "budget")
    }
    kernel = _make_kernel(template, knobs, options)

    def show(answers: list[Any]) -> None:
        decision = kernel.session.lookup(kernel.problem(kernel.example({})))
        assert isinstance(kernel.backend, Command)
        line = kernel.backend.command_line(decision.config)
        if settings["as_json"]:
            output.print_json({**answers[0], "command": line})
        else:
            click.echo(line)  # as it is: a line that is wrapped cannot be pasted

    tune_calls(kernel, [kernel.example({})], settings, show)


def _make_kernel(template: str, knobs: Mapping[str, list[str]], options: Mapping[str, Any]) -> Tuned:
    space = Space(
        *(Knob(name, [_value(text) for part in parts for text in part.split(",")]) for name, parts in knobs.items())
    )
    check: Any = None if options["check"] == "none" else options["check"]
    made = Command(
        template,
        space=space,
        files=_single(options["files"], "--file"),
        outputs=_single(options["outputs"], "--output"),
        check=check,
        metric=_metric(options),
        stdin=options["stdin"],
        env=_single(options["env"], "--env"),
        constant=options["constant"],
        shell=options["shell"],
        timeout=options["timeout"],
    )
    declared: dict[str, Any] = {name: options[name] for name in ("name", "threads") if options[name]}
    if options["default"]:
        typed = _single(options["default"].split(","), "--default")
        declared["default"] = Config({**space.first, **{name: _value(text) for name, text in typed.items()}})
    return made.tuned(**declared)


def _metric(options: Mapping[str, Any]) -> Metric:
    if options["metric"] in METRICS:
        return METRICS[options["metric"]]
    if options["best"] is None:
        raise click.UsageError("say whether a high or a low number is better: --best high, or --best low")
    return Regex(options["metric"], best=options["best"], unit=options["unit"])


def _named(typed: Iterable[str], option: str) -> dict[str, list[str]]:
    """Returns what was typed as NAME=TEXT, by name."""
    found: dict[str, list[str]] = {}
    for text in typed:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"cannot read {option} {text!r}: write NAME=VALUE")
        found.setdefault(name.strip(), []).append(value)
    return found


def _single(typed: Iterable[str], option: str) -> dict[str, str]:
    return {name: values[-1] for name, values in _named(typed, option).items()}


def _value(text: str) -> int | float | str:
    """Returns a number if the text is one that is written the same way, else the text."""
    for kind in (int, float):
        try:
            if str(value := kind(text)) == text:
                return value
        except ValueError:
            continue
    return text
