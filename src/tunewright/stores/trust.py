"""Trust in files and folders: whether another user could have written what this process is about to obey or load."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tunewright.stores import files

_OTHERS_SEARCH = stat.S_IXGRP | stat.S_IXOTH
_MAX_LINKS = 40

Step = tuple[Path, os.stat_result]


class Distrust(NamedTuple):
    """A file or folder that others control: why, and the command that changes that, if there is one."""

    path: Path
    reason: str
    remedy: str = ""

    def is_accepted(self, path: Path, folders: Sequence[str]) -> bool:
        """Whether the user trusts one of these folders, and `path` is in it; `*` stands for all folders.

        A link that another user made may lead elsewhere tomorrow: it must be in such a folder itself.
        """
        places = [path, self.path.parent] if self.path.is_symlink() else [path]
        return all(any(_is_within(place, folder) for folder in folders) for place in places)


def own_users() -> frozenset[int]:
    """Returns the users whose files are trusted: this one and root, who can change anything anyway.

    There are none where files have no such owners; nothing is checked there.
    """
    return frozenset((0, os.geteuid())) if hasattr(os, "geteuid") else frozenset()


def quoted(path: Path) -> str:
    """Returns a path as one writes it in a shell."""
    import shlex  # noqa: PLC0415 - for messages

    return shlex.quote(str(path))


def _is_within(path: Path, folder: str) -> bool:
    return folder == "*" or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def check_file(path: Path, status: os.stat_result, users: frozenset[int]) -> Distrust | None:
    """Returns why a file with this status is not trusted; None if it is.

    The folders above it do not matter: whoever puts another file in its place owns that file. A symbolic link must
    belong to a trusted user, too.
    """
    if not users:
        return None
    links = (step for step in _steps(Path(), path.absolute().parts) if stat.S_ISLNK(step[1].st_mode))
    problems = (_check_owner(place, link, users) for place, link in links)
    return next(filter(None, problems), None) or _check_owner(path, status, users) or _check_bits(path, status, users)


def check_folder(path: Path, users: frozenset[int]) -> Distrust | None:
    """Returns why others could write into a folder, or put another in its place; None if they cannot.

    Every folder above it counts, and every symbolic link. A folder like /tmp, in which all may write but only rename
    what is their own (the sticky bit), may be above it. What is missing is made by us, and no risk, except in such a
    folder, where another user could make it first: there it is made now.
    """
    if not users:
        return None
    steps = list(_steps(Path(), path.absolute().parts))
    if not os.path.exists(path) and steps[-1][1].st_mode & stat.S_ISVTX:
        try:
            files.make_folder(path)
        except OSError:
            return None  # it cannot be used, whoever it belongs to
        steps = list(_steps(Path(), path.absolute().parts))
    above = len(steps) - 1 if os.path.exists(path) else len(steps)
    # Whoever owns / controls all. In a user namespace that is a stranger.
    system = users | {steps[0][1].st_uid}
    problem = _check_steps(steps[:above], system, shared=True)
    return problem or _check_steps(steps[above:], users, closed=_is_closed(steps[:above]))


def _steps(place: Path, parts: Iterable[str]) -> Iterator[Step]:
    """Yields each part of a path with its status, a link before what it leads to, until one is missing."""
    waiting, links = [*parts][::-1], 0
    while waiting:
        part = waiting.pop()
        place = place.parent if part == ".." else place / part
        try:
            status = os.lstat(place)
        except OSError:
            return
        yield place, status
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MAX_LINKS:
                return
            waiting += Path(os.readlink(place)).parts[::-1]
            place = place.parent


def _check_steps(
    steps: Sequence[Step], users: frozenset[int], *, shared: bool = False, closed: bool = False
) -> Distrust | None:
    """Returns what is wrong with the first bad step. Below a closed folder it does not matter who may write."""
    for place, status in steps:
        if problem := _check_owner(place, status, users):
            return problem
        if stat.S_ISLNK(status.st_mode):
            continue  # its bits mean nothing
        is_sticky = shared and status.st_mode & stat.S_ISVTX
        if not closed and not is_sticky and (problem := _check_bits(place, status, users)):
            return problem
        closed = closed or _is_closed([(place, status)])
    return None


def _is_closed(steps: Sequence[Step]) -> bool:
    """Whether only its owner reaches what is in one of these folders."""
    folders = (status.st_mode for _, status in steps if stat.S_ISDIR(status.st_mode))
    return any(not mode & _OTHERS_SEARCH for mode in folders)


def _check_owner(path: Path, status: os.stat_result, users: frozenset[int]) -> Distrust | None:
    return None if status.st_uid in users else Distrust(path, f"belongs to {_user_name(status.st_uid)}")


def _check_bits(path: Path, status: os.stat_result, users: frozenset[int]) -> Distrust | None:
    mode, remedy = status.st_mode, f"chmod go-w {quoted(path)}"
    if mode & stat.S_IWOTH:
        return Distrust(path, "can be written by everybody", remedy)
    if mode & stat.S_IWGRP and not any(_is_private_group(status.st_gid, user) for user in users):
        return Distrust(path, f"can be written by the group {_group_name(status.st_gid)}", remedy)
    return None


@lru_cache(maxsize=64)
def _is_private_group(group: int, user: int) -> bool:
    """Whether a group has one member, this user: its name is the user's, as where the umask is 002 by default."""
    import grp  # noqa: PLC0415 - only where a group may write
    import pwd  # noqa: PLC0415 - as above

    try:
        entry = grp.getgrgid(group)
    except KeyError:
        return group == user  # as in a container that is run as a number
    try:
        owner = pwd.getpwuid(user)
    except KeyError:
        return False
    return (entry.gr_name, group) == (owner.pw_name, owner.pw_gid) and set(entry.gr_mem) <= {owner.pw_name}


def _user_name(user: int) -> str:
    import pwd  # noqa: PLC0415 - for messages

    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user with number {user}"


def _group_name(group: int) -> str:
    import grp  # noqa: PLC0415 - for messages

    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
