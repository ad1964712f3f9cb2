"""Settings files, and whom they may speak for: which are read at all, which folders are trusted, who gets a token.

A file in the current folder may have come with a project. What decides about trust is read from the environment and
from the user's own file alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tunewright.errors import SettingsError
from tunewright.stores import files, trust
from tunewright.stores.trust import Distrust

FILE = "tunewright.toml"
USER_TABLES = ("tokens", "trusted_folders")
"""What only the user's own file may have."""

_MAX_BYTES = 1 << 20

Environ = Mapping[str, str]


class SettingsFile(NamedTuple):
    """A file, its settings, and whether it lies in the current folder, as one that came with a project does."""

    path: Path
    settings: dict[str, Any]
    is_of_project: bool


def read_nearest(environ: Environ, directory: Path) -> SettingsFile:
    """Returns the nearest file: TUNEWRIGHT_CONFIG, else that in `directory`, else the user's own."""
    own, here = user_file(environ), directory / FILE
    # os.path: a folder that this user may not enter has no file for it.
    is_own = os.path.isfile(own) and os.path.isfile(here) and os.path.samefile(own, here)
    if environ.get("TUNEWRIGHT_CONFIG") or not os.path.isfile(here) or is_own:
        path, table, is_of_project = own, _read_own(environ), False
    else:
        path, table, is_of_project = here, _read(here, environ, _trusted_folders), True
    if is_of_project and (mine := [name for name in USER_TABLES if name in table]):
        raise SettingsError(f"{path} has {mine[0]!r}, which only your own file may have; move it to {own}")
    return SettingsFile(path, {name: table[name] for name in table if name not in USER_TABLES}, is_of_project)


def user_file(environ: Environ) -> Path:
    """Returns the path of the user's own file: TUNEWRIGHT_CONFIG, or that in the user's configuration."""
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(environ.get("TUNEWRIGHT_CONFIG") or Path(os.path.expanduser(home)) / FILE)


def _read_own(environ: Environ) -> dict[str, Any]:
    path = user_file(environ)
    if environ.get("TUNEWRIGHT_CONFIG"):
        return _parse(path)  # whoever wrote it: somebody named it here
    return _read(path, environ, _named_folders) if os.path.isfile(path) else {}


def _read(path: Path, environ: Environ, find_folders: Callable[[Environ], list[str]]) -> dict[str, Any]:
    """Returns what is in a file; raises SettingsError if another user may have written it."""

    def check(status: os.stat_result) -> None:
        problem = trust.check_file(path, status, own_users(environ))
        if problem is not None and not problem.is_accepted(path, find_folders(environ)):
            advice = f"name the file, if you trust it: TUNEWRIGHT_CONFIG={trust.quoted(path)}"
            raise _refusal(problem, f"{path} is not read, since others could have written it", advice, environ)

    return _parse(path, check)


def _parse(path: Path, check: Callable[[os.stat_result], None] | None = None) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - most processes have no such file

    try:
        return tomllib.loads(files.read_bounded(path, _MAX_BYTES, check).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"cannot read {path}: {error}") from error


# Whose files and folders are trusted.


def own_users(environ: Environ) -> frozenset[int]:
    """Returns the users whose files are trusted; to root under sudo, also those of the user who called it."""
    users, caller = trust.own_users(), environ.get("SUDO_UID", "")
    return users | {int(caller)} if users == {0} and caller.isdecimal() else users


def require_trusted_cache(path: Path, environ: Environ) -> None:
    """Raises SettingsError if others could put a library into the cache, unless the user trusts the folder."""
    problem = trust.check_folder(path, own_users(environ))
    if problem is not None and not problem.is_accepted(path, _trusted_folders(environ)):
        what = f"the cache {path} is not used, since others could change what is loaded from it"
        raise _refusal(problem, what, "set `cache` or TUNEWRIGHT_CACHE to a folder of your own", environ)


def _refusal(problem: Distrust, what: str, advice: str, environ: Environ) -> SettingsError:
    folder = problem.path if os.path.isdir(problem.path) else problem.path.parent
    remedy = f"Run `{problem.remedy}`, or {advice}" if problem.remedy else advice[0].upper() + advice[1:]
    return SettingsError(
        f"{what}: {problem.path} {problem.reason}. {remedy}, or trust the folder: "
        f"TUNEWRIGHT_TRUSTED_FOLDERS={trust.quoted(folder)}, or trusted_folders = [...] in {user_file(environ)}"
    )


def _named_folders(environ: Environ) -> list[str]:
    """Returns the folders that the environment trusts."""
    return [folder for folder in environ.get("TUNEWRIGHT_TRUSTED_FOLDERS", "").split(os.pathsep) if folder]


def _trusted_folders(environ: Environ) -> list[str]:
    """Returns the folders that the environment or the user's own file trusts."""
    found = _read_own(environ).get("trusted_folders", [])
    if not (isinstance(found, list) and all(isinstance(folder, str) for folder in found)):
        raise SettingsError(f'trusted_folders in {user_file(environ)} must be a list, such as ["/srv/build"]')
    return [*_named_folders(environ), *map(os.path.expanduser, found)]


# Which host gets which token.


def require_bound_token(location: str, source: str, environ: Environ) -> None:
    """Raises SettingsError if a location that came with a project would get a token that is bound to no host.

    Whoever wrote that location would get it. The token is for the service that the user meant, which we do not know.
    """
    if not environ.get("TUNEWRIGHT_TOKEN", "").strip() or _token_hosts(environ) or "://" not in location:
        return
    from tunewright.stores import location_text  # noqa: PLC0415 - most processes have no service

    for host in location_text.service_hosts(location):
        if host not in _user_tokens(environ):
            raise SettingsError(
                f"{source} names the store {location_text.hide_secrets(location)}, and TUNEWRIGHT_TOKEN is not bound "
                f"to a host. If the token is for that service, set TUNEWRIGHT_TOKEN_HOST={host}; if it is for another, "
                "set that host"
            )


def token_for(host: str, environ: Environ) -> str:
    """Returns the token for a host and port, empty if there is none: that of the user's file, or TUNEWRIGHT_TOKEN."""
    if token := _user_tokens(environ).get(host):
        return token
    hosts = _token_hosts(environ)
    return environ.get("TUNEWRIGHT_TOKEN", "").strip() if not hosts or host in hosts else ""


def _token_hosts(environ: Environ) -> list[str]:
    """Returns the hosts that TUNEWRIGHT_TOKEN is for; none if it is bound to no host."""
    from tunewright.stores.location_text import host_and_port  # noqa: PLC0415 - as above

    return [host_and_port(host) for host in environ.get("TUNEWRIGHT_TOKEN_HOST", "").replace(",", " ").split()]


def _user_tokens(environ: Environ) -> dict[str, str]:
    """Returns the tokens in the user's own file, by host and port."""
    from tunewright.stores.location_text import host_and_port  # noqa: PLC0415 - as above

    tokens = _read_own(environ).get("tokens", {})
    if not (isinstance(tokens, dict) and all(isinstance(token, str) for token in tokens.values())):
        raise SettingsError(f'tokens in {user_file(environ)} must be a table such as {{"tuning.example" = "tw_..."}}')
    return {host_and_port(host): token for host, token in tokens.items()}
