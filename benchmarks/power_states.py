"""Which states after a power cut are tried: at each boundary the extremes, single losses, torn writes, and chance."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from power_model import Content, Disk

LATEST = 6
"""How many of the latest pending operations are lost, or kept, one by one."""

RANDOM = 8
"""How many random states are made at each boundary."""

KeepsName = Callable[[int], bool]
KeepsSector = Callable[[int, int, int], bool]


class State(NamedTuple):
    """A state of the disk: the files, what was acknowledged before the cut, and how the state came about."""

    content: Content
    acknowledged: int
    what: str


def all_of(*_: int) -> bool:
    return True


def none_of(*_: int) -> bool:
    return False


def variants(disk: Disk, seed: int) -> Iterator[tuple[str, KeepsName, KeepsSector]]:
    """Yields choices of what arrived, of what is pending now."""
    names = range(len(disk.changes))[-LATEST:]
    writes = [(file, number) for file, one in enumerate(disk.files) for number in range(len(one.pending))]
    yield "nothing pending arrived", none_of, none_of
    if names:
        yield "names without contents", all_of, none_of
        yield "contents without names", none_of, all_of
    if writes or names:
        yield "everything arrived", all_of, all_of
    for one in names:
        yield f"all names but {one}", partial(_differs, one), all_of
        yield f"only name {one}", partial(_equals, one), all_of
    for write in writes[-LATEST:]:
        yield f"all writes but {write}", all_of, partial(_differs_write, write)
        yield f"only write {write}", all_of, partial(_equals_write, write)
        for part in (0, 1):
            yield f"write {write} torn, half {part}", all_of, partial(_torn, write, part)
    for number in range(RANDOM if writes or names else 0):
        share = (0.1, 0.5, 0.9)[number % 3]
        yield f"chance {number}", partial(_chance, seed, number, share), partial(_chance, seed, number, share)


def _differs(one: int, number: int) -> bool:
    return number != one


def _equals(one: int, number: int) -> bool:
    return number == one


def _differs_write(write: tuple[int, int], file: int, number: int, sector: int) -> bool:
    return (file, number) != write


def _equals_write(write: tuple[int, int], file: int, number: int, sector: int) -> bool:
    return (file, number) == write


def _torn(write: tuple[int, int], part: int, file: int, number: int, sector: int) -> bool:
    return (file, number) != write or sector % 2 == part


def _chance(seed: int, number: int, share: float, *what: int) -> bool:
    """The same answer for the same sector of the same state, whatever the order of the questions."""
    digest = hashlib.blake2b(repr((seed, number, what)).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") < share * 2**32


def states(disk: Disk, operations: Sequence[Any], limit: int, seed: int) -> Iterator[State]:
    """Yields different states at all boundaries, at most `limit`, chosen by chance; those right after an
    acknowledgment in which nothing pending arrived are always among them."""
    chosen, seen = _choose(disk.copy(), operations, limit, seed), set()
    for cut, acknowledged, wanted, now in _boundaries(disk.copy(), operations):
        picked = chosen.get(cut, ())
        for index, (what, keeps_name, keeps_sector) in enumerate(
            variants(now, seed + cut) if wanted and picked else ()
        ):
            if index not in picked:
                continue
            content = now.state(keeps_name, keeps_sector)
            digest = _digest(content, acknowledged)
            if digest not in seen:
                seen.add(digest)
                yield State(content, acknowledged, f"cut {cut}: {what}")


def _digest(content: Content, acknowledged: int) -> bytes:
    made = hashlib.blake2b(str(acknowledged).encode())
    for name, data in sorted(content.items()):
        made.update(f"\0{name}\0{-1 if data is None else len(data)}\0".encode() + (data or b""))
    return made.digest()


def _boundaries(disk: Disk, operations: Sequence[Any]) -> Iterator[tuple[int, int, bool, Disk]]:
    """Yields each boundary: its number, how much was acknowledged, whether new states are possible, and the disk.

    After an fsync none are: fewer operations are pending, and nothing more was promised.
    """
    acknowledged = 0
    yield 0, 0, True, disk
    for cut, operation in enumerate(operations, 1):
        disk.apply(operation)
        acknowledged += operation.kind == "ack"
        yield cut, acknowledged, not operation.kind.startswith("fsync"), disk


def _choose(disk: Disk, operations: Sequence[Any], limit: int, seed: int) -> dict[int, set[int]]:
    """Returns which variants to make at which boundary."""
    always: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    before = 0
    for cut, acknowledged, wanted, now in _boundaries(disk, operations):
        count = sum(1 for _ in variants(now, 0)) if wanted else 0
        others += [(cut, index) for index in range(count)]
        if acknowledged > before:
            always.append((cut, 0))
        before = acknowledged
    random.Random(seed).shuffle(others)
    chosen: dict[int, set[int]] = {}
    for cut, index in [*always, *others][: max(limit, len(always))]:
        chosen.setdefault(cut, set()).add(index)
    return chosen


def write_state(content: Content, folder: Path) -> None:
    """Puts the files of a state into an empty folder."""
    for name, data in sorted(content.items()):
        if data is None:
            (folder / name).mkdir(parents=True)
        else:
            (folder / name).write_bytes(data)
