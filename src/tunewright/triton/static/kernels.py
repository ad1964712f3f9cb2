"""Unwraps declared Triton kernels down to the JIT function, with their wrappers and configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunewright.errors import BackendError

Settings = dict[str, Any]


@dataclass(frozen=True)
class KernelDeclaration:
    """A kernel: its JIT function, the wrappers around it from the outside in, and its configs."""

    name: str
    function: Any
    wrappers: tuple[Any, ...]
    configs: tuple[Settings, ...]

    def settings(self, args: Sequence[Any], kwargs: Mapping[str, Any], config: Mapping[str, Any]) -> Settings:
        """Returns all keyword arguments of a launch: those of the call, of heuristics and of the config, in order."""
        settings = dict(kwargs)
        by_position = dict(zip(self.function.arg_names, args, strict=False))
        for wrapper in self.wrappers:
            for name, rule in _heuristics(wrapper).items():
                settings[name] = self._apply_heuristic(name, rule, {**by_position, **settings})
            if _is_autotuner(wrapper):
                settings |= config
        return settings if any(map(_is_autotuner, self.wrappers)) else settings | dict(config)

    def _apply_heuristic(self, name: str, rule: Any, arguments: Settings) -> Any:
        try:
            return rule(arguments)
        except Exception as error:
            raise BackendError(
                f"the heuristic for {name} of {self.name} raised {type(error).__name__}: {error}; "
                "pass the arguments of a real call, numbers included"
            ) from error


def unwrap_kernel(kernel: Any, configs: Iterable[Mapping[str, Any]] | None = None) -> KernelDeclaration:
    """Unwraps a `@triton.jit` function from autotune and heuristics, Triton's or ours.

    `configs` replace those it was declared with; a space is a collection of configs.
    """
    wrappers, function = [], kernel
    while not _is_jit_function(function):
        if (inner := getattr(function, "fn", None)) is None:
            raise BackendError(f"{kernel!r} is not a Triton kernel; name a function under @triton.jit")
        wrappers.append(function)
        function = inner
    declared_configs = [dict(config) for config in configs] if configs is not None else _declared_configs(wrappers)
    return KernelDeclaration(function.__name__, function, tuple(wrappers), tuple(declared_configs) or ({},))


def _is_jit_function(thing: Any) -> bool:
    return hasattr(thing, "arg_names") and hasattr(thing, "params") and hasattr(thing, "cache_key")


def _heuristics(wrapper: Any) -> Mapping[str, Any]:
    values = getattr(wrapper, "values", None)
    return values if isinstance(values, Mapping) else {}


def _is_autotuner(wrapper: Any) -> bool:
    return hasattr(wrapper, "configs") or hasattr(wrapper, "space")


def _declared_configs(wrappers: Sequence[Any]) -> list[Settings]:
    """Returns the configs of the first wrapper that has some, from its space or its list."""
    for wrapper in wrappers:
        if getattr(wrapper, "space", None) is not None:
            return [dict(config) for config in wrapper.space]
        if getattr(wrapper, "configs", None):
            return [_config_dict(config) for config in wrapper.configs]
    return []


def _config_dict(config: Any) -> Settings:
    return dict(config) if isinstance(config, Mapping) else dict(config.all_kwargs())
