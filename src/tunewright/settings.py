"""Settings: one frozen value; the only reader of the environment and of tunewright.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from tunewright.errors import SettingsError
from tunewright.stores import user_file
from tunewright.version import __version__

RENAMED = {"worth": "min_expected_gain", "wait": "tuning_wait_seconds"}
"""Settings by their old name: still read, with a deprecation warning."""

_EXPECTED = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Mode(StrEnum):
    """What a tuned kernel does when no decision is stored for a call."""

    TUNE = "tune"  # search now and store the decision
    FROZEN = "frozen"  # use the nearest decision or the default, count it, never measure: for production
    RECORD = "record"  # as frozen, and record what is missing and what it costs, to be tuned later
    STRICT = "strict"  # raise an error that names the missing key
    OFF = "off"  # always use the default; look nothing up


def _cache_home() -> str:
    return os.environ.get("XDG_CACHE_HOME") or "~/.cache"


class FeatureFlag(msgspec.Struct, frozen=True):
    """A behavior that was added in one version and is enabled by default from another; a setting overrides it."""

    name: str
    description: str
    since: str
    enabled_from: str

    @property
    def enabled(self) -> bool:
        """Whether this version enables it by default."""
        return _numbers(__version__) >= _numbers(self.enabled_from)


FEATURE_FLAGS = (
    FeatureFlag("neighbours", "frozen and record use the nearest shape, or another device's config", "0.1.0", "0.1.0"),
    FeatureFlag("flights", "of processes that miss one key at once, one tunes and the others wait", "0.1.0", "0.1.0"),
    FeatureFlag("mirrors", "answers of a server are kept here too, for when it cannot be reached", "0.1.0", "0.1.0"),
)


class SettingsOptions(TypedDict, total=False):
    """The settings other than `store`, as keyword arguments of `Session` and `configure`; None means not given."""

    mode: Mode | Literal["tune", "frozen", "record", "strict", "off"] | None
    cache: str | os.PathLike[str] | None
    strategy: str | None
    trials: int | None
    seconds: float | None
    min_expected_gain: float | None
    seed: int | None
    pool: str | None
    tuning_wait_seconds: float | None
    build_seconds: float | None
    run_seconds: float | None
    memory_mb: int | None
    resolution: float | None
    deterministic: bool | None
    progress: bool | None
    signers: str | os.PathLike[str] | None
    signing_key: str | os.PathLike[str] | None
    features: Mapping[str, bool] | None
    aliases: Mapping[str, str] | None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Python argument over environment (`TUNEWRIGHT_MODE`) over `tunewright.toml` over these defaults.

    Two settings are tables: `features` (`TUNEWRIGHT_FEATURES="flights,-neighbours"`), which override the feature flags
    of this version, and `aliases`, other names of one device.
    """

    mode: str = Mode.TUNE
    store: str = ""  # a path, or a location such as sqlite:PATH; empty: store.sqlite in the cache
    cache: str = ""  # the folder of artifacts, leases and the default store; empty: ~/.cache/tunewright
    strategy: str = "portfolio"
    trials: int = 200
    seconds: float = 0.0  # 0: no limit except the trials
    min_expected_gain: float = 0.01  # stop when as many trials again are expected to gain less; 0: use the whole budget
    seed: int = 0
    pool: str = "process"  # process:4: with four workers; serial: in this process; ray:8@A100: eight on such devices
    tuning_wait_seconds: float = 3600.0  # how long to wait for another process that tunes the same key
    build_seconds: float = 120.0
    run_seconds: float = 60.0
    memory_mb: int = 4096  # of memory, and of each file that a config writes
    resolution: float = 0.0  # 0.02: a decision is stored only if its race could tell 2 % apart; 0: always
    deterministic: bool = False  # choose only among configs whose results equal the default's, bit for bit
    progress: bool = True  # show a line on a terminal or in a notebook while a search takes more than two seconds
    signers: str = ""  # a file of trusted public keys: decisions that none of them signed are misses
    signing_key: str = ""  # a file with the private key that signs what is stored here
    features: dict[str, bool] = {}
    aliases: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.mode not in set(Mode):
            raise SettingsError(f"no mode {self.mode!r}; modes: {', '.join(Mode)}")
        if unknown := sorted(set(self.features) - {flag.name for flag in FEATURE_FLAGS}):
            raise SettingsError(
                f"no feature {unknown[0]!r}; features: {', '.join(flag.name for flag in FEATURE_FLAGS)}"
            )
        if "://" not in self.pool and not re.fullmatch(r"[^:@]+(:\d+)?(@.+)?", self.pool):
            hint = "write serial, process, process:4 for four workers, or ray:8@A100 for eight on such devices"
            raise SettingsError(f"pool is {self.pool!r}; {hint}")
        for name in ("trials", "tuning_wait_seconds", "seconds", "resolution", "min_expected_gain"):
            if not getattr(self, name) >= 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it cannot be negative")
        for name in ("build_seconds", "run_seconds", "memory_mb"):
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it must be positive")

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ, directory: Path | None = None, **arguments: Any) -> Settings:
        """Returns the settings in force here; an argument that is None counts as not given."""
        return cls(**{name: value for name, (value, _) in cls.sources(environ, directory, **arguments).items()})

    @classmethod
    def sources(
        cls, environ: Mapping[str, str] = os.environ, directory: Path | None = None, **arguments: Any
    ) -> dict[str, tuple[Any, str]]:
        """Returns the value and the source of every setting that is not at its default."""
        file = user_file.read_nearest(environ, directory or Path.cwd())
        types = {
            name: _type_of(name, default) for name, default in zip(cls.__struct_fields__, cls().values(), strict=True)
        }
        variables = {name: f"TUNEWRIGHT_{name.upper()}" for name in (*RENAMED, *types)}
        layers = (
            {name: (value, str(file.path)) for name, value in file.settings.items()},
            {name: (environ[variable], variable) for name, variable in variables.items() if variable in environ},
            {name: (value, "Python") for name, value in arguments.items() if value is not None},
        )
        values: dict[str, tuple[Any, str]] = {}
        for layer in layers:
            values |= _with_new_names(layer)
        if unknown := sorted(set(values) - set(types)):
            raise SettingsError(f"no setting {', '.join(map(repr, unknown))}; settings: {', '.join(types)}")
        found = {name: (_convert(name, value, types[name]), source) for name, (value, source) in values.items()}
        if file.is_of_project and "store" in found and found["store"][1] == str(file.path):
            user_file.require_bound_token(*found["store"], environ)
        return found

    def values(self) -> list[Any]:
        """Returns the value of every setting, in the order declared."""
        return [getattr(self, name) for name in self.__struct_fields__]

    def environ(self) -> dict[str, str]:
        """Returns the environment variables that give another process the same settings."""
        texts = dict(zip(self.__struct_fields__, map(str, self.values()), strict=True))
        texts["features"] = ",".join(name if enabled else f"-{name}" for name, enabled in self.features.items())
        texts["aliases"] = ",".join(f"{alias}={name}" for alias, name in self.aliases.items())
        return {f"TUNEWRIGHT_{name.upper()}": text for name, text in texts.items()}

    def is_enabled(self, feature: str) -> bool:
        """Whether a feature flag is enabled."""
        flag = next(flag for flag in FEATURE_FLAGS if flag.name == feature)
        return self.features.get(feature, flag.enabled)

    @property
    def cache_path(self) -> Path:
        """The folder of the cache; raises SettingsError if others could put a library into it."""
        path = Path(os.path.expanduser(self.cache or f"{_cache_home()}/tunewright"))
        user_file.require_trusted_cache(path, os.environ)
        return path

    @property
    def store_location(self) -> str:
        """The location of the store, in which each service has the token for its host, if there is one."""
        if not re.search("https?://", self.store):
            return self.store or str(self.cache_path / "store.sqlite")
        from tunewright.stores import location_text  # noqa: PLC0415 - most processes have no service

        return location_text.with_tokens(self.store, lambda host: user_file.token_for(host, os.environ))

    @property
    def docker_config(self) -> Path:
        """The file in which Docker and its relatives keep credentials of registries."""
        return Path(os.path.expanduser(os.environ.get("DOCKER_CONFIG") or "~/.docker")) / "config.json"

    @property
    def store_name(self) -> str:
        """The location of the store without passwords, for messages."""
        return _hide_secrets(self.store) or str(self.cache_path / "store.sqlite")

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        values = zip(self.__struct_fields__, self.values(), strict=True)
        return [(name, _hide_secrets(value) if name == "store" else value) for name, value in values]

    @property
    def pool_name(self) -> str:
        """The name of the pool's plugin."""
        return re.split("[:@]", self.pool)[0]

    @property
    def pool_arguments(self) -> tuple[int] | tuple[int, str]:
        """The arguments of the pool: its width, and the kind of devices if one is named."""
        kind = self.pool.partition("@")[2]
        return (self.width, kind) if kind else (self.width,)

    @property
    def width(self) -> int:
        """The number of workers; by default two, so that one builds while the other times."""
        width = self.pool.partition("@")[0].partition(":")[2]
        return int(width) if width.isdecimal() and int(width) else min(2, os.cpu_count() or 1)


def _with_new_names(values: Mapping[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    """Replaces the old names of settings, with a deprecation warning; the new name wins where both are given."""
    renamed: dict[str, tuple[Any, str]] = {}
    for name, (value, source) in values.items():
        if name in RENAMED:
            import warnings  # noqa: PLC0415 - only for old names

            new = f"TUNEWRIGHT_{RENAMED[name].upper()}" if source.startswith("TUNEWRIGHT_") else RENAMED[name]
            old = source if source.startswith("TUNEWRIGHT_") else f"setting {name!r} ({source})"
            warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=5)
            renamed.setdefault(RENAMED[name], (value, source))
        else:
            renamed[name] = (value, source)
    return renamed


def require_bound_token(location: str, source: str) -> None:
    """Raises SettingsError if a location that a file names would get a token that is bound to no host."""
    user_file.require_bound_token(location, source, os.environ)


def _hide_secrets(location: str) -> str:
    from tunewright.stores.location_text import hide_secrets  # noqa: PLC0415 - for messages

    return hide_secrets(location)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _type_of(name: str, default: Any) -> Any:
    """Returns the type of a setting; by its default, since evaluating annotations takes a millisecond."""
    if name in _TABLES:
        return dict[str, bool] if name == "features" else dict[str, str]
    return str if isinstance(default, str) else type(default)


def _convert(name: str, value: Any, kind: Any) -> Any:
    """Returns `value` as the type of the setting; raises SettingsError if it does not fit."""
    if kind not in _EXPECTED:
        value, expected = _parse_table(name, value), _TABLES[name]
    else:
        expected = _EXPECTED[kind]
    if kind is str and isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if kind is bool and isinstance(value, str):
        value = _BOOLEANS.get(value.lower(), value)
    try:
        return msgspec.convert(value, kind, strict=kind is str)
    except (msgspec.ValidationError, OverflowError) as error:
        shown = "of another type" if name == "store" else repr(value)  # which may have a password in it
        raise SettingsError(f"{name} is {shown}; it must be {expected}") from (None if name == "store" else error)


_TABLES = {"features": "a table such as {flights = true}", "aliases": 'a table such as {"A800" = "A100"}'}


def _parse_table(name: str, value: Any) -> Any:
    """Parses a table in one line: `flights,-neighbours` for features, `A=B,C=D` for aliases."""
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if name == "features":
        return {part.lstrip("+-"): not part.startswith("-") for part in parts}
    return {alias: device for alias, _, device in (part.partition("=") for part in parts)}
