"""Settings: one frozen value; the sole reader of environment and TOML."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from tunewright.errors import SettingsError
from tunewright.version import __version__

FILE = "tunewright.toml"

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Mode(StrEnum):
    """What a tuned kernel does when nothing is decided for a call."""

    TUNE = "tune"  # search now, remember
    FROZEN = "frozen"  # use the nearest decision or the default, count it, never measure: for production
    RECORD = "record"  # as frozen, and note what is missing and what it costs, to be tuned later
    STRICT = "strict"  # raise, naming what is missing
    OFF = "off"  # always the default; look nothing up


def _cache_home() -> str:
    return os.environ.get("XDG_CACHE_HOME") or "~/.cache"


class Feature(msgspec.Struct, frozen=True):
    """A way of working that came with a version and is on from another; a setting overrides it both ways."""

    name: str
    says: str
    since: str
    on_from: str

    @property
    def on(self) -> bool:
        """Whether this version has it on by default."""
        return _numbers(__version__) >= _numbers(self.on_from)


FEATURES = (
    Feature("neighbours", "frozen and record serve the nearest shape, or another device's config", "0.1.0", "0.1.0"),
    Feature("flights", "of processes that miss one key at once one tunes, the others wait", "0.1.0", "0.1.0"),
    Feature("mirrors", "what a server answers is kept here too, for when it is away", "0.1.0", "0.1.0"),
)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Python argument over environment (`TUNEWRIGHT_MODE`) over `tunewright.toml` over these defaults.

    Two are tables: `features` (`TUNEWRIGHT_FEATURES="flights,-neighbours"`), which override what the version has on,
    and `aliases`, other names of one device.
    """

    mode: str = Mode.TUNE
    store: str = ""  # a path, or a location such as sqlite:PATH; empty: store.sqlite in the cache
    cache: str = ""  # where artefacts, leases and the default store are kept; empty: ~/.cache/tunewright
    strategy: str = "portfolio"
    trials: int = 200
    seconds: float = 0.0  # 0: no limit but the trials
    worth: float = 0.01  # a search ends when as many trials again are expected to gain less; 0: only with its budget
    seed: int = 0
    pool: str = "process"  # process:4, with so many workers; serial: in this process; ray:8@A100: on such devices
    wait: float = 3600.0  # how long to wait for another process that tunes the same key, before going on without
    build_seconds: float = 120.0
    run_seconds: float = 60.0
    memory_mb: int = 4096
    resolution: float = 0.0  # 0.02: what the race could not tell to 2 % is used, but not kept; 0: all is kept
    deterministic: bool = False  # choose only among configs whose results equal the default's, bit for bit
    features: dict[str, bool] = {}
    aliases: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.mode not in set(Mode):
            raise SettingsError(f"no mode {self.mode!r}; modes: {', '.join(Mode)}")
        if unknown := sorted(set(self.features) - {feature.name for feature in FEATURES}):
            raise SettingsError(f"no feature {unknown[0]!r}; features: {', '.join(f.name for f in FEATURES)}")
        if "://" not in self.pool and not re.fullmatch(r"[^:@]+(:\d+)?(@.+)?", self.pool):
            said = "say serial, process, process:4 for four workers, or ray:8@A100 for eight on such devices"
            raise SettingsError(f"pool is {self.pool!r}; {said}")
        for name in ("trials", "wait", "seconds", "resolution", "worth"):
            if not getattr(self, name) >= 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it cannot be negative")
        for name in ("build_seconds", "run_seconds", "memory_mb"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it must be positive")

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ, directory: Path | None = None, **given: Any) -> Settings:
        """The settings in force here; `given` are Python arguments, where None means not given."""
        return cls(**{name: value for name, (value, _) in cls.sources(environ, directory, **given).items()})

    @classmethod
    def sources(
        cls, environ: Mapping[str, str] = os.environ, directory: Path | None = None, **given: Any
    ) -> dict[str, tuple[Any, str]]:
        """Every setting that is given anywhere: its value, and where that comes from."""
        path, read = _from_file(environ, directory or Path.cwd())
        found: dict[str, tuple[Any, str]] = {name: (value, str(path)) for name, value in read.items()}
        kinds = dict(zip(cls.__struct_fields__, map(type, cls().values()), strict=True))
        for name in kinds:
            if (text := environ.get(variable := f"TUNEWRIGHT_{name.upper()}")) is not None:
                found[name] = text, variable
        found |= {name: (value, "Python") for name, value in given.items() if value is not None}
        if unknown := sorted(set(found) - set(kinds)):
            raise SettingsError(f"no setting {', '.join(map(repr, unknown))}; settings: {', '.join(kinds)}")
        return {name: (_converted(name, value, kinds[name]), where) for name, (value, where) in found.items()}

    def values(self) -> list[Any]:
        """Every setting, in the order declared."""
        return [getattr(self, name) for name in self.__struct_fields__]

    def environ(self) -> dict[str, str]:
        """The variables by which another process has the same settings."""
        told = dict(zip(self.__struct_fields__, map(str, self.values()), strict=True))
        told["features"] = ",".join(name if on else f"-{name}" for name, on in self.features.items())
        told["aliases"] = ",".join(f"{name}={other}" for name, other in self.aliases.items())
        return {f"TUNEWRIGHT_{name.upper()}": text for name, text in told.items()}

    def has(self, feature: str) -> bool:
        """Whether a feature is on."""
        known = next(one for one in FEATURES if one.name == feature)
        return self.features.get(feature, known.on)

    @property
    def cache_path(self) -> Path:
        """The folder of the cache."""
        return Path(os.path.expanduser(self.cache or f"{_cache_home()}/tunewright"))

    @property
    def store_location(self) -> str:
        """Where decisions are kept; a service is opened with the token in TUNEWRIGHT_TOKEN, unless one is given."""
        token = os.environ.get("TUNEWRIGHT_TOKEN", "").strip()
        given = re.sub(r"\b(https?://)(?![^/?#\s]*@)", lambda found: f"{found[1]}{token}@", self.store) if token else ""
        return given or self.store or str(self.cache_path / "store.sqlite")

    @property
    def store_name(self) -> str:
        """The same, as it may be said aloud: without passwords."""
        location = re.sub(r"(\bhttps?://)[^/?#@\s]*@", r"\1", self.store_location)
        return re.sub(r"(://[^:/@\s]*):[^@\s]*@", r"\1:***@", location)

    @property
    def pool_name(self) -> str:
        """The pool's plugin."""
        return re.split("[:@]", self.pool)[0]

    @property
    def pool_terms(self) -> tuple[int] | tuple[int, str]:
        """What the pool is made with: its width, and the kind of devices if one is named."""
        kind = self.pool.partition("@")[2]
        return (self.width, kind) if kind else (self.width,)

    @property
    def width(self) -> int:
        """How many workers try configs at once: by default one builds while another times."""
        width = self.pool.partition("@")[0].partition(":")[2]
        return int(width) if width.isdecimal() and int(width) else min(2, os.cpu_count() or 1)


def _from_file(environ: Mapping[str, str], directory: Path) -> tuple[Path | None, dict[str, Any]]:
    """The nearest file and its settings: named by TUNEWRIGHT_CONFIG, else here, else in the user's configuration."""
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    named = environ.get("TUNEWRIGHT_CONFIG")
    for path in [Path(named)] if named else [directory / FILE, Path(os.path.expanduser(home)) / FILE]:
        if named or path.is_file():
            import tomllib  # noqa: PLC0415 - most processes have no such file

            try:
                return path, tomllib.loads(path.read_text())
            except (OSError, ValueError, RecursionError) as error:
                raise SettingsError(f"cannot read {path}: {error}") from error
    return None, {}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _converted(name: str, value: Any, kind: type) -> Any:
    if kind is dict:
        return _table(name, value)
    if kind in (str, Mode):
        return str(value)
    if kind is bool and isinstance(value, str):
        if value.lower() not in _WORDS:
            raise SettingsError(f"{name} is {value!r}; it must be true or false")
        return _WORDS[value.lower()]
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingsError(f"{name} is {value!r}; it must be a number") from error


def _table(name: str, value: Any) -> dict[str, Any]:
    """A table as the file has it, or as a line: `flights,-neighbours` for features, `A=B,C=D` for aliases."""
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if name == "features":
            return {part.lstrip("+-"): not part.startswith("-") for part in parts}
        value = {name: other for name, _, other in (part.partition("=") for part in parts)}
    wanted = bool if name == "features" else str
    if not isinstance(value, Mapping) or not all(isinstance(item, wanted) for item in value.values()):
        said = "flights = true" if name == "features" else '"A800" = "A100"'
        raise SettingsError(f"{name} is {value!r}; it must be a table such as {{{said}}}")
    return dict(value)
