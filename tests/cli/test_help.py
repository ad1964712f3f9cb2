"""Every command says what it does, every option what it means, and the examples can be typed."""

import shlex

import click
import pytest

from tunewright.cli.commands import COMMANDS as ENTRIES
from tunewright.cli.examples import EXAMPLES
from tunewright.cli.lazy_group import LazyGroup
from tunewright.cli.main import command


def every(one: click.Command, path: tuple[str, ...] = ()):
    yield path, one
    if isinstance(one, click.Group):
        for name, inner in one.commands.items():
            yield from every(inner, (*path, name))


COMMANDS = {" ".join(path): one for path, one in every(command)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_and_each_of_its_options_have_a_help_text(name) -> None:
    one = COMMANDS[name]
    assert one.help
    assert len(one.help) > 20
    for option in one.params:
        if isinstance(option, click.Option):
            assert option.help, (name, option.name)
            assert option.help.endswith((".", ")", "]")), (name, option.name)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_argument_is_spoken_of_in_the_help(name) -> None:
    one = COMMANDS[name]
    for argument in one.params:
        if isinstance(argument, click.Argument):
            spoken = one.get_help(click.Context(one, info_name=name))
            words = (argument.metavar or argument.name or "").upper().replace("...", "").split()[0].strip("[]")
            assert spoken.count(words) >= 2 or ":" in words, (name, words)


@pytest.mark.parametrize(("name", "line"), [(name, line) for name, lines in EXAMPLES.items() for line in lines])
def test_an_example_names_a_command_and_options_that_there_are(name, line) -> None:
    words = shlex.split(line.partition(" > ")[0])
    while "=" in words[0]:
        words = words[1:]
    if words[0] != "tunewright":
        return
    one, rest = command, words[1:]
    while isinstance(one, click.Group) and rest and rest[0] in one.commands:
        one, rest = one.commands[rest[0]], rest[1:]
    assert COMMANDS[name] is one or not name
    one.make_parser(click.Context(one)).parse_args(list(rest))


DAILY = ["tune", "show", "explain", "trials", "race", "command", "space", "report", "init"]


def test_daily_commands_come_first_and_the_others_in_sections() -> None:
    lines = command.get_help(click.Context(command, info_name="tunewright")).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in ENTRIES]
    assert names[: len(DAILY)] == DAILY
    assert sorted(names) == sorted(ENTRIES)
    assert len({entry.section for entry in ENTRIES.values()}) >= 4


@pytest.mark.parametrize("name", [name for name, one in COMMANDS.items() if isinstance(one, LazyGroup)])
def test_the_table_says_of_a_command_what_its_own_help_begins_with(name) -> None:
    """The list of commands is printed without importing them, so a test must compare the two texts."""
    group = COMMANDS[name]
    for entry_name, entry in group.entries.items():
        assert entry.help.endswith(".")
        assert len(entry.help) <= 75
        assert group.commands[entry_name].help.splitlines()[0] == entry.help


def test_examples_are_shown_where_help_is_asked_for() -> None:
    for name in EXAMPLES:
        one = COMMANDS[name]
        assert EXAMPLES[name][0].split()[0] in one.get_help(click.Context(one, info_name="tunewright")), name
