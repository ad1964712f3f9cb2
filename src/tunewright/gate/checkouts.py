"""Checkouts that are compared: the work tree here, and a revision of it that is checked out beside it for the time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tunewright.errors import SettingsError

GIT_SECONDS = 300.0
"""Limit of one command of git."""

_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false")
"""No hook of the repository runs for a checkout of ours."""


def top_folder(folder: Path) -> Path:
    """Returns the top of the work tree that a folder is in. Raises SettingsError if it is in none."""
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel")).resolve()
    except SettingsError as error:
        raise SettingsError(f"{folder} is in no git work tree, so there is no other revision of it: {error}") from error


@contextlib.contextmanager
def baseline_checkout(baseline: str, top: Path) -> Iterator[Path]:
    """Yields the top of another checkout: a folder that is one, or a revision, checked out and removed afterwards."""
    other = Path(baseline)
    if other.is_dir() and (other / ".git").exists():
        yield other.resolve()
        return
    commit = resolve_revision(baseline, top)
    folder = Path(tempfile.mkdtemp(prefix="tunewright-baseline-"))
    try:
        git(top, "worktree", "add", "--detach", "--force", str(folder / top.name), commit)
        yield (folder / top.name).resolve()
    finally:
        with contextlib.suppress(SettingsError):
            git(top, "worktree", "remove", "--force", str(folder / top.name))
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(SettingsError):
            git(top, "worktree", "prune")


def resolve_revision(revision: str, top: Path) -> str:
    """Returns the commit that a revision names here or, failing that, at origin. Raises SettingsError if there is none.

    In CI, often only the branch that is tested is there by its own name.
    """
    if revision.startswith("-"):
        raise SettingsError(f"{revision!r} is no revision; name a branch, a tag or a commit")
    for name in (revision, f"origin/{revision}"):
        with contextlib.suppress(SettingsError):
            return git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    raise SettingsError(
        f"{revision!r} is no revision of {top.name} and no folder with a checkout; in CI, fetch it first: "
        f"git fetch --depth 1 origin {revision}:{revision}"
    )


def git(folder: Path, *words: str) -> str:
    """Runs git in a folder and returns what it printed. Raises SettingsError if it fails."""
    command = ["git", *_QUIET, *words]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # noqa: TID251
    try:
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise SettingsError("git is not installed, and another revision is asked for; install git") from error
    except subprocess.TimeoutExpired as error:
        raise SettingsError(f"`git {' '.join(words[:2])}` did not end within {GIT_SECONDS:g} s") from error
    if done.returncode:
        lines: Sequence[str] = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise SettingsError(f"`git {' '.join(words[:2])}` failed: {lines[-1]}")
    return done.stdout.strip()
