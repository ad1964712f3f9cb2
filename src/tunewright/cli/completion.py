"""Shell completion: the command that prints a shell's script, and completers for kernels and targets."""

from __future__ import annotations

import ast
import contextlib
import logging
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
from click.shell_completion import BashComplete, ShellComplete, get_completion_class

from tunewright.errors import TunewrightError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TUNEWRIGHT_COMPLETE"

MAX_SECONDS = 0.3
"""How long a completer reads a store."""

MAX_NAMES = 200
MAX_FILES = 100
MAX_FILE_BYTES = 1 << 20

_BASH = """\
%(complete_func)s() {
    local IFS=$' \\t\\n' line="${COMP_LINE:0:COMP_POINT}" response completion type value
    local -a words
    read -r -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    response=$(env COMP_WORDS="$line" COMP_CWORD=$((${#words[@]} - 1)) %(complete_var)s=bash_complete "$1" 2>/dev/null)
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$response"
    # Bash ends a word at a colon: of FILE.py:NAME it replaces NAME alone.
    local word="${words[${#words[@]} - 1]}"
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%%"${word##*:}"}"}")
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace
    fi
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class ColonAwareBashComplete(BashComplete):
    """Click's completion for Bash, with a script that completes FILE.py:NAME as one word."""

    source_template = _BASH


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    SHELL is bash, zsh or fish. The script completes commands, options, kernels of a local store, and FILE.py:NAME. To
    install it, add one of these lines to ~/.bashrc, ~/.zshrc or ~/.config/fish/completions/tunewright.fish:

    \b
      eval "$(tunewright completion bash)"
      eval "$(tunewright completion zsh)"
      tunewright completion fish | source
    """
    kind: type[ShellComplete] | None = ColonAwareBashComplete if shell == "bash" else get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "tunewright", VARIABLE).source())


def complete_kernel(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Returns the kernels of a local store whose names begin as typed; nothing on any error."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # a completer must print nothing
    try:
        with contextlib.suppress(TunewrightError, OSError, ValueError):
            names = _stored_kernels(context.params.get("store"))
            return sorted(name for name in names if name.startswith(incomplete))
    finally:
        logging.disable(disabled)
    return []


def _stored_kernels(store: str | None) -> set[str]:
    """Returns the names that can be read from a local store in a short time; remote stores are not asked."""
    from tunewright.settings import Settings  # noqa: PLC0415 - for completion alone
    from tunewright.stores.sqlite import SqliteStore  # noqa: PLC0415 - as above

    location = Settings.read(store=store).store_location
    if "://" in location or not Path(location.removeprefix("sqlite:")).expanduser().is_file():
        return set()
    deadline = time.monotonic() + MAX_SECONDS
    names: set[str] = set()
    for key in SqliteStore.at(location).keys():  # noqa: SIM118 - a store is no mapping
        names.add(key.kernel)
        if len(names) >= MAX_NAMES or time.monotonic() > deadline:
            break
    return names


def complete_target(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Returns FILE.py:NAME of the kernels in a folder's files, and its folders; nothing on any error."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        file, colon, _ = incomplete.partition(":")
        places = [file] if colon else _places(file)
        return [target for place in places for target in _targets(place) if target.startswith(incomplete)]
    return []


def _places(prefix: str) -> Iterator[str]:
    """Yields the Python files and folders that begin with `prefix`, as the user would type them."""
    folder, slash, beginning = prefix.rpartition("/")
    inside = Path(f"{folder}{slash}" or ".")
    matching = (path for path in sorted(inside.iterdir()) if path.name.startswith(beginning))
    visible = (path for path in matching if beginning.startswith(".") or not path.name.startswith("."))
    for path in islice(visible, MAX_FILES):
        if path.is_dir():
            yield f"{folder}{slash}{path.name}/"
        elif path.suffix == ".py":
            yield f"{folder}{slash}{path.name}"


def _targets(place: str) -> list[str]:
    """Returns FILE.py:NAME of each kernel in a file, which is parsed and not run; a folder as it is."""
    if place.endswith("/"):
        return [place]
    path = Path(place)
    if path.stat().st_size > MAX_FILE_BYTES:
        return []
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [f"{place}:{function.name}" for function in functions if any(map(_tunes, function.decorator_list))]


def _tunes(decorator: ast.expr) -> bool:
    """Returns whether a decorator is called `tune` or `autotune`, in whatever module."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in ("tune", "autotune")
