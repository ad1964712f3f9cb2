"""Configs: Triton's configs as a space of ours, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunewright.backends.triton import adapter
from tunewright.errors import SpaceError
from tunewright.model.device import Device
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.listed import listed
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space

NONE = "none"
OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg")
"""Launch options that every config has; as a knob, `maxnreg=0` means no limit."""

MOST_LISTED = 10_000
"""Configs of a space that are also shown as a list."""

Back = Callable[[Config], Any]
"""From a config of ours to Triton's."""


class Menu:
    """What may be chosen for a call: a space, the way back to Triton's configs, and these as they were listed."""

    def __init__(self, space: Space, back: Back, default: Config, listed: Sequence[Any] = ()) -> None:
        self.space, self.back, self.default, self.listed = space, back, default, listed

    @property
    def is_single(self) -> bool:
        """Whether there is nothing to choose."""
        try:
            return self.space.size == 1
        except SpaceError:  # too many to be counted
            return False


def menu_of(configs: Sequence[Any]) -> Menu:
    """A list of Triton's configs; the first is the default."""
    names = _Names()
    rows: dict[Config, Any] = {}
    for config in configs:
        rows.setdefault(Config(_settings(config, names, configs)), config)
    every = dict.fromkeys(name for row in rows for name in row)
    whole = {Config({name: row.get(name, NONE) for name in every}): config for row, config in rows.items()}
    knobs = [Knob(name, _ordered([row[name] for row in whole])) for name in every]
    space = Space(*knobs, rules=[listed(knobs, whole, "it is one of the configs listed")])
    return Menu(space, whole.__getitem__, next(iter(whole)), configs)


def _settings(config: Any, names: _Names, configs: Sequence[Any]) -> dict[str, Value]:
    """A config of Triton's, knob by knob; what is rarely set is a knob only where one of the list sets it."""
    found: dict[str, Value] = {_knob(name): names.plain(value) for name, value in config.kwargs.items()}
    found |= {name: getattr(config, name) or 0 for name in OPTIONS}
    for rare in ("ir_override", "pre_hook"):
        if any(getattr(other, rare, None) for other in configs):
            found[rare] = names.plain(getattr(config, rare, None))
    return found


def _knob(name: str) -> str:
    return f"{name}_" if name == VARIANT or name in OPTIONS else name


def _ordered(values: Sequence[Value]) -> list[Value]:
    """Each value once; numbers from small to large."""
    found = list(dict.fromkeys(values))
    return sorted(found) if all(isinstance(value, int | float) for value in found) else found


class _Names:
    """Text for values that are no plain ones: the same object, the same text; another object, another text."""

    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}

    def plain(self, value: Any) -> Value:
        if isinstance(value, bool | int | float | str):
            return value
        if value is None:
            return NONE
        text = adapter.constant_of(value) or getattr(value, "__qualname__", None) or type(value).__name__
        alike = self._known.setdefault(text, [])
        number = next((i for i, other in enumerate(alike) if other is value or other == value), len(alike))
        if number == len(alike):
            alike.append(value)
        return text if number == 0 else f"{text} {number + 1}"


def from_space(space: Space) -> Menu:
    """A space of ours: knobs are the kernel's parameters and launch options by their names."""
    if space.variants:
        raise SpaceError("a Triton kernel has no variants; make a knob of what differs, as a constexpr")
    return Menu(space, made, space.first)


def made(config: Mapping[str, Value]) -> Any:
    """Triton's config with these settings; options that `Config` does not know are passed on by name."""
    settings = dict(config)
    said = {name: settings.pop(name) for name in OPTIONS if name in settings}
    if "maxnreg" in said:
        said["maxnreg"] = said["maxnreg"] or None  # type: ignore[assignment]
    return adapter.Config(settings, **said)


def fitting(space: Space, device: Device) -> Space:
    """The space without launch options that the device has not."""
    rules = []
    if not adapter.has_clusters(device):
        rules += [
            Rule(f"{device.architecture} has no clusters of blocks", lambda num_ctas: num_ctas == 1),
            Rule(f"{device.architecture} has no dependent launch", lambda launch_pdl: launch_pdl == 0),
        ]
    if device.kind != "cuda":
        rules.append(Rule(f"{device.kind} takes no limit on registers", lambda maxnreg: maxnreg == 0))
    rules = [rule for rule in rules if set(rule.reads) <= set(space.names)]
    return Space(*space.knobs, rules=(*space.rules, *rules), figures=space.figures) if rules else space
