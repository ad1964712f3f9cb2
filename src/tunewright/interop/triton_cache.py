"""Triton's autotuning cache: `NAME.autotune.json`, one for a kernel and the values of its tuning key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import Any

from tunewright.errors import WireError
from tunewright.interop import edge
from tunewright.interop.table import Table, first_of_each, knobs_seen, timing
from tunewright.model.trial import Failure, Kind, Outcome, Stage, Trial
from tunewright.spaces.config import Config, Value

SUFFIX = ".autotune.json"

LAUNCH = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")
"""What a config sets beside the kernel's own parameters."""

FIELDS = frozenset({"kwargs", "pre_hook", *LAUNCH})
"""What Triton's `Config` takes; older versions had more."""

MOST_LETTERS = 150
"""Of a kernel's name, as far as Triton takes it into the file's."""

_FOLDER = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Timed:
    """A config with what it took, in milliseconds: median, fast and slow; infinite if it failed."""

    config: Config
    milliseconds: tuple[float, ...]


@dataclass(frozen=True)
class Autotuned:
    """What a file says: a kernel, the values of its tuning key, and the configs tried."""

    kernel: str
    key: tuple[Value | None, ...]
    tried: tuple[Timed, ...]

    @property
    def best(self) -> Timed:
        """The one that Triton takes: the least of its times, compared one by one; of equal configs the last counts."""
        return min({timed.config: timed for timed in self.tried}.values(), key=lambda timed: timed.milliseconds)


def read(path: Path) -> Autotuned:
    """What the file at `path` says."""
    return told(edge.load_table(path), kernel_of(path), str(path))


def kernel_of(path: Path) -> str:
    """The kernel that a file is of."""
    return path.name.removesuffix(SUFFIX) or "kernel"


def reachable(path: Path) -> bool:
    """Whether a file is where Triton looks: in a folder named by the digest of everything that counts."""
    return _FOLDER.fullmatch(path.resolve().parent.name) is not None


def told(content: Any, kernel: str, where: str) -> Autotuned:
    """What a file's content says."""
    head = edge.mapping(content, where)
    key = edge.sequence(head.get("key"), f"{where}: key", edge.MOST_KNOBS)
    values = tuple(None if part is None else edge.value(part, f"{where}: key") for part in key)
    tried = tuple(timed for _, timed in entries(head, where))
    if not tried:
        raise WireError(f"{where} has no configs; Triton stops at it, so remove it")
    return Autotuned(kernel, values, tried)


def entries(head: dict[str, Any], where: str) -> Iterator[tuple[dict[str, Any], Timed]]:
    """The configs tried, as they are written and as ours."""
    listed = edge.sequence(head.get("configs_timings"), f"{where}: configs_timings")
    for number, entry in enumerate(listed):
        at = f"{where}: config {number}"
        pair = edge.sequence(entry, at, 2)
        if len(pair) != 2:
            raise WireError(f"{at} should be a config and its times")
        said = edge.mapping(pair[0], at)
        yield said, Timed(_config(said, at), _times(pair[1], at))


def _config(said: dict[str, Any], where: str) -> Config:
    own = edge.mapping(said.get("kwargs"), f"{where}: kwargs")
    if twice := own.keys() & {*LAUNCH}:
        raise WireError(f"{where} sets {', '.join(sorted(twice))} as a parameter of the kernel, which Triton refuses")
    if len(own) > edge.MOST_KNOBS:
        raise WireError(f"{where} sets {len(own):,} parameters; at most {edge.MOST_KNOBS} are read")
    set_ = own | {name: said[name] for name in LAUNCH if said.get(name) is not None}
    return Config({edge.name(name, where): edge.value(value, f"{where}: {name}") for name, value in set_.items()})


def _times(said: Any, where: str) -> tuple[float, ...]:
    listed = edge.sequence(said, f"{where}: times", 1000) if isinstance(said, list) else [said]
    if not listed:
        raise WireError(f"{where} has no times")
    return tuple(_time(time, where) for time in listed)


def _time(said: Any, where: str) -> float:
    if isinstance(said, float) and said == inf:
        return inf
    if isinstance(said, float) and isnan(said):
        raise WireError(f"{where}: a time is no number, so which config is the best is a matter of luck; tune it anew")
    return edge.number(said, f"{where}: time")


def write(cache: Autotuned, path: Path) -> None:
    """Keep `cache` as Triton writes it. It is found only in the folder that Triton names by a digest of its own."""
    content = {
        "key": list(cache.key),
        "configs_timings": [[_plain(timed.config), list(timed.milliseconds)] for timed in cache.tried],
    }
    edge.put(path, json.dumps(content))


def _plain(config: Config) -> dict[str, Any]:
    own = {name: value for name, value in config.items() if name not in LAUNCH}
    launch = {name: config[name] for name in ("num_warps", "num_ctas", "num_stages") if name in config}
    rest = {name: config.get(name) for name in ("maxnreg", "pre_hook", "ir_override")}
    return {"kwargs": own, **launch, **rest}


def as_table(cache: Autotuned, device: str) -> Table:
    """The same as a recording, to be replayed: a trial for each config, of the device it was tried on."""
    trials = first_of_each(Trial(timed.config, _outcome(timed)) for timed in reversed(cache.tried))
    names = sorted({name for trial in trials for name in trial.config})
    where = f"{cache.kernel}{SUFFIX}"
    if uneven := next((trial.config for trial in trials if set(trial.config) != set(names)), None):
        raise WireError(f"{where}: {uneven} does not set all of {', '.join(names)}; a recording's configs all do")
    notes = (f"tuned for the key {list(cache.key)}",)
    return Table(cache.kernel, device, knobs_seen(names, (t.config for t in trials), where), trials[::-1], notes=notes)


def _outcome(timed: Timed) -> Outcome:
    if timed.milliseconds[0] == inf:
        return Failure(Stage.BUILD, Kind.REFUSED, "it did not fit the device, or was not compiled")
    return timing(timed.milliseconds[0], "a time")


def gathered(kernel: str, key: Iterable[Value | None], trials: Iterable[Trial]) -> Autotuned:
    """What trials of ours say, as Triton would have kept them; one time stands for the median and both sides of it."""
    tried = tuple(Timed(trial.config, (trial.seconds * 1e3,) * 3) for trial in trials)
    return Autotuned(kernel, tuple(key), tried)
