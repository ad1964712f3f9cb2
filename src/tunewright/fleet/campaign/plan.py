"""The plan of a campaign, read from a TOML file: kernels, shapes, devices and the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tunewright.engine.budget import Budget
from tunewright.errors import SettingsError
from tunewright.kernel.tuned import Tuned

HERE = "here"
"""The device of the machine that runs the campaign."""

Sizes = dict[str, int]
LoadKernel = Callable[[str], Tuned]
ParseShapes = Callable[[Tuned, tuple[str, ...]], Sequence[Sizes]]


class KernelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kernel in the file: where it is, for which shapes and devices, and how often it is called."""

    target: str
    shapes: tuple[str | Sizes, ...] = ()
    calls: float = 1.0
    devices: tuple[str, ...] = ()


class CampaignFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the TOML file."""

    name: str
    budget: str
    kernels: tuple[KernelSpec, ...]
    devices: tuple[str, ...] = (HERE,)
    portion: int = 40
    min_expected_gain: float = msgspec.field(default=0.01, name="worth")
    settings: dict[str, Any] = {}


class CampaignItem(msgspec.Struct, frozen=True):
    """A kernel to tune for some sizes on a device kind, and how often it is called."""

    target: str
    kernel: str
    sizes: Sizes
    device: str
    calls: float = 1.0

    @property
    def name(self) -> str:
        """Identifies the item in every run of the campaign."""
        sizes = ",".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{self.kernel} {sizes} @ {self.device}"


class CampaignPlan(msgspec.Struct, frozen=True, dict=True):
    """A campaign: its items, their common budget, and how many trials a portion has."""

    name: str
    items: tuple[CampaignItem, ...]
    budget: str
    portion: int
    min_expected_gain: float
    settings: dict[str, Any]

    @cached_property
    def max_budget(self) -> Budget:
        """Trials and seconds on devices, over all items."""
        return Budget.parse(self.budget)

    @property
    def devices(self) -> list[str]:
        """The device kinds of the items."""
        return list(dict.fromkeys(item.device for item in self.items))

    @property
    def digest(self) -> str:
        """Identifies the items and their calls, whatever the file is called."""
        return sha256(msgspec.json.encode(self.items)).hexdigest()[:12]


def read_plan(path: Path, load_kernel: LoadKernel, parse_shapes: ParseShapes) -> CampaignPlan:
    """Reads a plan; `load_kernel` finds a kernel by its target, `parse_shapes` gives its sizes."""
    import tomllib  # noqa: PLC0415 - only campaigns are files

    try:
        content = msgspec.convert(tomllib.loads(path.read_text()), CampaignFile)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SettingsError(f"cannot read the campaign {path}: {error}; see docs/fleet.md for its fields") from error
    if content.portion < 1:
        raise SettingsError(f"portion is {content.portion}; it must be at least one trial")
    Budget.parse(content.budget)
    items: dict[str, CampaignItem] = {}
    for spec in content.kernels:
        kernel = load_kernel(_resolve_target(spec.target, path.parent))
        if (target := kernel.target()) is None:
            raise SettingsError(f"{spec.target} cannot be found by name from another process; define it in a module")
        for sizes in _sizes(kernel, spec.shapes, parse_shapes):
            for device in spec.devices or content.devices:
                item = CampaignItem(target, kernel.name, dict(sizes), device, spec.calls)
                if item.name in items:
                    raise SettingsError(f"{item.name} is listed twice; list it once, with all its calls")
                items[item.name] = item
    if not items:
        raise SettingsError(f"{path} names no kernel; write [[kernels]] with target = ...")
    return CampaignPlan(
        content.name,
        tuple(items.values()),
        content.budget,
        content.portion,
        content.min_expected_gain,
        content.settings,
    )


def _resolve_target(target: str, folder: Path) -> str:
    """Looks for a file beside the campaign's."""
    place, colon, name = target.rpartition(":")
    if target.endswith(".py"):
        place, colon, name = target, "", ""
    file = folder / place
    return f"{file.resolve()}{colon}{name}" if place.endswith(".py") and file.is_file() else target


def _sizes(kernel: Tuned, shapes: Sequence[str | Mapping[str, int]], parse_shapes: ParseShapes) -> Sequence[Sizes]:
    texts = tuple(
        shape if isinstance(shape, str) else ",".join(f"{name}={size}" for name, size in shape.items())
        for shape in shapes
    )
    return parse_shapes(kernel, texts)
