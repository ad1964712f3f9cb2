"""Converts Triton's configs to a search space and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunewright.errors import SpaceError
from tunewright.model.device import Device
from tunewright.spaces.config import VARIANT, Config, Value
from tunewright.spaces.config_list import rule_from_rows
from tunewright.spaces.rule import Knob, Rule
from tunewright.spaces.space import Space
from tunewright.triton import adapter

NONE = "none"
LAUNCH_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg")
"""Launch options of every config; as a knob, `maxnreg=0` means no limit."""

MAX_LISTED_CONFIGS = 10_000
"""The largest space that is also shown as a list of configs."""

ToTritonConfig = Callable[[Config], Any]
"""Converts a config to Triton's."""


class ConfigSpace:
    """The configs of a call: a space, its conversion to Triton's configs, its default, and the list if there is one."""

    def __init__(
        self, space: Space, to_triton: ToTritonConfig, default: Config, triton_configs: Sequence[Any] = ()
    ) -> None:
        self.space, self.to_triton, self.default, self.triton_configs = space, to_triton, default, triton_configs

    @property
    def is_single(self) -> bool:
        """Whether there is only one config."""
        try:
            return self.space.size == 1
        except SpaceError:  # too many to be counted
            return False


def space_from_configs(configs: Sequence[Any]) -> ConfigSpace:
    """Returns the space of a list of Triton's configs; the first is the default."""
    names = _ValueNames()
    rows: dict[Config, Any] = {}
    for config in configs:
        rows.setdefault(Config(_settings(config, names, configs)), config)
    all_names = dict.fromkeys(name for row in rows for name in row)
    configs_by_row = {Config({name: row.get(name, NONE) for name in all_names}): config for row, config in rows.items()}
    knobs = [Knob(name, _ordered([row[name] for row in configs_by_row])) for name in all_names]
    space = Space(*knobs, rules=[rule_from_rows(knobs, configs_by_row, "it is one of the configs listed")])
    return ConfigSpace(space, configs_by_row.__getitem__, next(iter(configs_by_row)), configs)


def _settings(config: Any, names: _ValueNames, configs: Sequence[Any]) -> dict[str, Value]:
    """Returns a Triton config as values by knob; `ir_override` and `pre_hook` are knobs only if a config sets them."""
    settings: dict[str, Value] = {_knob(name): names.plain(value) for name, value in config.kwargs.items()}
    settings |= {name: getattr(config, name) or 0 for name in LAUNCH_OPTIONS}
    for name in ("ir_override", "pre_hook"):
        if any(getattr(other, name, None) for other in configs):
            settings[name] = names.plain(getattr(config, name, None))
    return settings


def _knob(name: str) -> str:
    return f"{name}_" if name == VARIANT or name in LAUNCH_OPTIONS else name


def _ordered(values: Sequence[Value]) -> list[Value]:
    """Returns each value once; numbers in ascending order."""
    distinct = list(dict.fromkeys(values))
    return sorted(distinct) if all(isinstance(value, int | float) for value in distinct) else distinct


class _ValueNames:
    """Gives values that are not plain a text; equal objects get the same text, others another."""

    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}

    def plain(self, value: Any) -> Value:
        if isinstance(value, bool | int | float | str):
            return value
        if value is None:
            return NONE
        text = adapter.constant_of(value) or getattr(value, "__qualname__", None) or type(value).__name__
        same_text = self._known.setdefault(text, [])
        number = next((i for i, known in enumerate(same_text) if known is value or known == value), len(same_text))
        if number == len(same_text):
            same_text.append(value)
        return text if number == 0 else f"{text} {number + 1}"


def space_from_knobs(space: Space) -> ConfigSpace:
    """Returns the configs of a space whose knobs are constexprs and launch options by their names."""
    if space.variants:
        raise SpaceError("a Triton kernel cannot have variants; use a constexpr as a knob instead")
    return ConfigSpace(space, triton_config, space.first)


def triton_config(config: Mapping[str, Value]) -> Any:
    """Returns Triton's config with these settings; options that `Config` does not know are passed on as keywords."""
    settings = dict(config)
    options = {name: settings.pop(name) for name in LAUNCH_OPTIONS if name in settings}
    if "maxnreg" in options:
        options["maxnreg"] = options["maxnreg"] or None  # type: ignore[assignment]
    return adapter.Config(settings, **options)


def configs_to_show(configs: Sequence[Any] | None, declared: ConfigSpace | None) -> Sequence[Any] | None:
    """Returns the configs that Triton shows: the given list, or those of a declared space that is not too large."""
    if declared is None:
        return configs
    if configs:
        raise SpaceError("pass configs= or space=, not both")
    try:
        is_small = declared.space.size <= MAX_LISTED_CONFIGS
    except SpaceError:  # too large to be counted
        is_small = False
    return [declared.to_triton(config) for config in (declared.space if is_small else [declared.default])]


def restrict_to_device(space: Space, device: Device) -> Space:
    """Returns the space without launch options that the device does not support."""
    rules = []
    if not adapter.has_clusters(device):
        rules += [
            Rule(f"{device.architecture} has no clusters of blocks", lambda num_ctas: num_ctas == 1),
            Rule(f"{device.architecture} has no dependent launch", lambda launch_pdl: launch_pdl == 0),
        ]
    if device.kind != "cuda":
        rules.append(Rule(f"{device.kind} takes no limit on registers", lambda maxnreg: maxnreg == 0))
    rules = [rule for rule in rules if set(rule.reads) <= set(space.names)]
    return Space(*space.knobs, rules=(*space.rules, *rules), features=space.features) if rules else space
