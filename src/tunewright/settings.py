"""Settings: one frozen value; the sole reader of environment and TOML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import SettingsError

FILE = "tunewright.toml"

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Mode(StrEnum):
    """What a tuned kernel does when nothing is decided for a call."""

    TUNE = "tune"  # search now, remember
    FROZEN = "frozen"  # use the default, count it, never measure: for production
    STRICT = "strict"  # raise, naming what is missing
    OFF = "off"  # always the default; look nothing up


def _cache_home() -> str:
    return os.environ.get("XDG_CACHE_HOME") or "~/.cache"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Python argument over environment (`TUNEWRIGHT_MODE`) over `tunewright.toml` over these defaults."""

    mode: str = Mode.TUNE
    store: str = ""  # a path, or a location such as sqlite:PATH; empty: store.sqlite in the cache
    cache: str = ""  # where artefacts, leases and the default store are kept; empty: ~/.cache/tunewright
    strategy: str = "portfolio"
    trials: int = 200
    seconds: float = 0.0  # 0: no limit but the trials
    worth: float = 0.01  # a search ends when as many trials again are expected to gain less; 0: only with its budget
    seed: int = 0
    pool: str = "process"  # serial: in this process, without isolation
    workers: int = 0  # 0: two, or one on a single core
    build_seconds: float = 120.0
    run_seconds: float = 60.0
    memory_mb: int = 4096
    resolution: float = 0.0  # 0.02: what the race could not tell to 2 % is used, but not kept; 0: all is kept
    deterministic: bool = False  # choose only among configs whose results equal the default's, bit for bit

    def __post_init__(self) -> None:
        if self.mode not in set(Mode):
            raise SettingsError(f"no mode {self.mode!r}; modes: {', '.join(Mode)}")
        for name in ("trials", "workers", "seconds", "resolution", "worth"):
            if getattr(self, name) < 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it cannot be negative")
        for name in ("build_seconds", "run_seconds", "memory_mb"):
            if getattr(self, name) <= 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it must be positive")

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ, directory: Path | None = None, **given: Any) -> Settings:
        """The settings in force here; `given` are Python arguments, where None means not given."""
        merged: dict[str, Any] = _from_file(environ, directory or Path.cwd())
        kinds = dict(zip(cls.__struct_fields__, map(type, cls.__struct_defaults__), strict=True))
        for name in kinds:
            if (text := environ.get(f"TUNEWRIGHT_{name.upper()}")) is not None:
                merged[name] = text
        merged |= {name: value for name, value in given.items() if value is not None}
        if unknown := sorted(set(merged) - set(kinds)):
            raise SettingsError(f"no setting {', '.join(map(repr, unknown))}; settings: {', '.join(kinds)}")
        return cls(**{name: _converted(name, value, kinds[name]) for name, value in merged.items()})

    @property
    def cache_path(self) -> Path:
        """The folder of the cache."""
        return Path(self.cache or f"{_cache_home()}/tunewright").expanduser()

    @property
    def store_location(self) -> str:
        """Where decisions are kept."""
        return self.store or str(self.cache_path / "store.sqlite")

    @property
    def width(self) -> int:
        """How many workers try configs at once: by default one builds while another times."""
        return self.workers or min(2, os.cpu_count() or 1)


def _from_file(environ: Mapping[str, str], directory: Path) -> dict[str, Any]:
    """The settings of the nearest file: named by TUNEWRIGHT_CONFIG, else here, else in the user's configuration."""
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    named = environ.get("TUNEWRIGHT_CONFIG")
    for path in [Path(named)] if named else [directory / FILE, Path(home).expanduser() / FILE]:
        if named or path.is_file():
            import tomllib  # noqa: PLC0415 - most processes have no such file

            try:
                return tomllib.loads(path.read_text())
            except (OSError, tomllib.TOMLDecodeError) as error:
                raise SettingsError(f"cannot read {path}: {error}") from error
    return {}


def _converted(name: str, value: Any, kind: type) -> Any:
    if kind in (str, Mode):
        return str(value)
    if kind is bool and isinstance(value, str):
        if value.lower() not in _WORDS:
            raise SettingsError(f"{name} is {value!r}; it must be true or false")
        return _WORDS[value.lower()]
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{name} is {value!r}; it must be a number") from error
