"""A click group that lists commands from a table and imports one only when it is called or its help is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from tunewright.cli import examples


class CommandEntry(NamedTuple):
    """Where a command is defined and what the list of commands says about it."""

    module: str
    attribute: str
    help: str
    section: str = "Commands"
    extension: str = ""
    """The package `tunewright.<extension>` without which the command is not offered."""


class MissingExtension(click.ClickException):
    """Raised for a command that needs an extension which is not installed."""

    def __init__(self, extension: str, command: str = "this command") -> None:
        super().__init__(
            f"{command} needs the extension tunewright.{extension}, which is missing from this installation; "
            "reinstall tunewright to get it back"
        )


def is_installed(extension: str) -> bool:
    """Returns whether the package of an extension can be imported, without importing it."""
    try:
        spec = find_spec(f"tunewright.{extension}")
    except ModuleNotFoundError:
        return False
    return spec is not None and spec.origin is not None  # a folder without `__init__.py` has no origin


def missing_extension(error: ModuleNotFoundError) -> str | None:
    """Returns the extension whose absence caused an import error, or None if something else was missing."""
    package, _, rest = (error.name or "").partition(".")
    extension = rest.partition(".")[0]
    return extension if package == "tunewright" and extension and not is_installed(extension) else None


class LazyCommands(MutableMapping[str, click.Command]):
    """Commands by name; those of the table are imported when they are looked up."""

    def __init__(self, entries: Mapping[str, CommandEntry], path: tuple[str, ...]) -> None:
        self.entries = entries
        self._path = path
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            self._loaded[name] = self._load(name, self.entries[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def __iter__(self) -> Iterator[str]:
        offered = (name for name, entry in self.entries.items() if not entry.extension or is_installed(entry.extension))
        return iter(dict.fromkeys([*offered, *self._loaded]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _load(self, name: str, entry: CommandEntry) -> click.Command:
        path = (*self._path, name)
        if entry.extension and not is_installed(entry.extension):
            raise MissingExtension(entry.extension, f"`tunewright {' '.join(path)}`")
        try:
            command: click.Command = getattr(import_module(entry.module), entry.attribute)
        except ModuleNotFoundError as error:
            if (extension := missing_extension(error)) is None:
                raise
            raise MissingExtension(extension, f"`tunewright {' '.join(path)}`") from error
        examples.attach(command, path)
        return command


class LazyGroup(click.Group):
    """A group whose commands come from a table of `CommandEntry`; more can be added as to any group.

    `renamed` maps former spellings to new ones. A former spelling still works, and a line on standard error names the
    new one and the version that removes the old one.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        entries: Mapping[str, CommandEntry],
        path: tuple[str, ...] = (),
        renamed: Mapping[str, str] | None = None,
        removed_in: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(name, commands=LazyCommands(entries, path), **kwargs)
        self.entries = entries
        self.path = path
        self._renamed = renamed or {}
        self._removed_in = removed_in

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands: at the top as in the table, in a group sorted."""
        return sorted(self.commands) if self.path else list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by section, and imports none of the table."""
        sections: dict[str, list[tuple[str, str]]] = {}
        width = max(map(len, self.commands), default=0)
        limit = formatter.width - 6 - width
        for name in self.list_commands(ctx):
            entry = self.entries.get(name)
            text = entry.help if entry else self.commands[name].get_short_help_str(limit)
            sections.setdefault(entry.section if entry else "Commands", []).append((name.ljust(width), text))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Completes the names of commands, and imports none of the table."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        helps = {name: self.entries[name].help if name in self.entries else None for name in names}
        commands = [CompletionItem(name, help=text) for name, text in helps.items()]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the arguments name; a former spelling is replaced by the new one."""
        for length in (2, 1):
            former = " ".join(args[:length])
            if len(args) >= length and (current := self._renamed.get(former)) is not None:
                if not ctx.resilient_parsing:  # completing a line must print nothing
                    click.echo(
                        f"`tunewright {former}` is deprecated and will be removed in {self._removed_in}; "
                        f"use `tunewright {current}`",
                        err=True,
                    )
                args = [*current.split(), *args[length:]]
                break
        return super().resolve_command(ctx, args)
