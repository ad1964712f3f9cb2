"""Plan: what a campaign is to tune, read from a TOML file: kernels, shapes, devices, and what it may cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tunewright.engine.budget import Budget
from tunewright.errors import SettingsError
from tunewright.fronts.tuned import Tuned

HERE = "here"
"""The device of the machine that runs the campaign."""

Sizes = dict[str, int]
Load = Callable[[str], Tuned]
Shapes = Callable[[Tuned, tuple[str, ...]], Sequence[Sizes]]


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel in the file: where it is, for which shapes and devices, and how often it is called."""

    target: str
    shapes: tuple[str | Sizes, ...] = ()
    calls: float = 1.0
    devices: tuple[str, ...] = ()


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it is written."""

    name: str
    budget: str
    kernels: tuple[Line, ...]
    devices: tuple[str, ...] = (HERE,)
    portion: int = 40
    worth: float = 0.01
    settings: dict[str, Any] = {}


class Item(msgspec.Struct, frozen=True):
    """One thing to tune: a kernel for some sizes on a kind of device, called so often."""

    target: str
    kernel: str
    sizes: Sizes
    device: str
    calls: float = 1.0

    @property
    def name(self) -> str:
        """What tells it from others, in every run of the campaign."""
        sizes = ",".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{self.kernel} {sizes} @ {self.device}"


class Plan(msgspec.Struct, frozen=True, dict=True):
    """A campaign: its items, what all may cost together, and in which portions of trials that is given out."""

    name: str
    items: tuple[Item, ...]
    budget: str
    portion: int
    worth: float
    settings: dict[str, Any]

    @cached_property
    def most(self) -> Budget:
        """Trials and seconds on devices, over all items."""
        return Budget.parse(self.budget)

    @property
    def devices(self) -> list[str]:
        """The kinds that are wanted."""
        return list(dict.fromkeys(item.device for item in self.items))

    @property
    def digest(self) -> str:
        """What it comes to: items and their calls, whatever the file is called."""
        return sha256(msgspec.json.encode(self.items)).hexdigest()[:12]


def read(path: Path, load: Load, shapes: Shapes) -> Plan:
    """The plan in a file; `load` finds a kernel by what was written, `shapes` its sizes."""
    import tomllib  # noqa: PLC0415 - only campaigns are files

    try:
        said = msgspec.convert(tomllib.loads(path.read_text()), File)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"cannot read the campaign {path}: {error}; see docs/fleet.md for what it holds") from error
    if said.portion < 1:
        raise SettingsError(f"portion is {said.portion}; it must be at least one trial")
    Budget.parse(said.budget)
    items: dict[str, Item] = {}
    for line in said.kernels:
        kernel = load(_beside(line.target, path.parent))
        if (target := kernel.target()) is None:
            raise SettingsError(f"{line.target} cannot be found by name from another process; define it in a module")
        for sizes in _sizes(kernel, line.shapes, shapes):
            for device in line.devices or said.devices:
                item = Item(target, kernel.name, dict(sizes), device, line.calls)
                if item.name in items:
                    raise SettingsError(f"{item.name} is there twice; say its calls once")
                items[item.name] = item
    if not items:
        raise SettingsError(f"{path} names no kernel; write [[kernels]] with target = ...")
    return Plan(said.name, tuple(items.values()), said.budget, said.portion, said.worth, said.settings)


def _beside(target: str, folder: Path) -> str:
    """A file is looked for beside the campaign's."""
    place, colon, name = target.rpartition(":")
    if target.endswith(".py"):
        place, colon, name = target, "", ""
    there = folder / place
    return f"{there.resolve()}{colon}{name}" if place.endswith(".py") and there.is_file() else target


def _sizes(kernel: Tuned, said: Sequence[str | Mapping[str, int]], shapes: Shapes) -> Sequence[Sizes]:
    texts = tuple(one if isinstance(one, str) else ",".join(f"{k}={v}" for k, v in one.items()) for one in said)
    return shapes(kernel, texts)
