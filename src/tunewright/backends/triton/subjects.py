"""Subjects: Triton kernels as their authors declare them, unwrapped as far as the function the compiler takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tunewright.errors import BackendError

Settings = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A kernel: the JIT function, what is wrapped around it from the outside in, and its configs."""

    name: str
    function: Any
    wrappers: tuple[Any, ...]
    configs: tuple[Settings, ...]

    def settings(self, args: Sequence[Any], named: Mapping[str, Any], config: Mapping[str, Any]) -> Settings:
        """All that a launch hands on by name: what was said, what heuristics add, and the config, in their order."""
        given = dict(named)
        known = dict(zip(self.function.arg_names, args, strict=False))
        for wrapper in self.wrappers:
            for name, rule in _heuristics(wrapper).items():
                given[name] = self._decided(name, rule, {**known, **given})
            if _tunes(wrapper):
                given |= config
        return given if any(map(_tunes, self.wrappers)) else given | dict(config)

    def _decided(self, name: str, rule: Any, known: Settings) -> Any:
        try:
            return rule(known)
        except Exception as error:
            raise BackendError(
                f"the heuristic for {name} of {self.name} raised {type(error).__name__}: {error}; "
                "give the arguments of a real call, numbers included"
            ) from error


def subject(kernel: Any, configs: Iterable[Mapping[str, Any]] | None = None) -> Subject:
    """`kernel` unwrapped: a plain `@triton.jit` function, or one under autotune and heuristics, Triton's or ours.

    `configs` take the place of those it was declared with; a space is a collection of configs.
    """
    wrappers, function = [], kernel
    while not _compiles(function):
        if (inner := getattr(function, "fn", None)) is None:
            raise BackendError(f"{kernel!r} is no Triton kernel; name a function under @triton.jit")
        wrappers.append(function)
        function = inner
    declared = [dict(config) for config in configs] if configs is not None else _declared(wrappers)
    return Subject(function.__name__, function, tuple(wrappers), tuple(declared) or ({},))


def _compiles(thing: Any) -> bool:
    return hasattr(thing, "arg_names") and hasattr(thing, "params") and hasattr(thing, "cache_key")


def _heuristics(wrapper: Any) -> Mapping[str, Any]:
    said = getattr(wrapper, "values", None)
    return said if isinstance(said, Mapping) else {}


def _tunes(wrapper: Any) -> bool:
    return hasattr(wrapper, "configs") or hasattr(wrapper, "space")


def _declared(wrappers: Sequence[Any]) -> list[Settings]:
    """The configs of the first wrapper that has some: a space's, else a list's."""
    for wrapper in wrappers:
        if getattr(wrapper, "space", None) is not None:
            return [dict(config) for config in wrapper.space]
        if getattr(wrapper, "configs", None):
            return [_plain(config) for config in wrapper.configs]
    return []


def _plain(config: Any) -> Settings:
    return dict(config) if isinstance(config, Mapping) else dict(config.all_kwargs())
