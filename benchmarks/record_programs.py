"""Record the spaces of two programs: parameters of `zstd`, and pragmas and indexes of a database of SQLite.

    python benchmarks/record_programs.py [--quick] [--json] [--only PROGRAM] [--passes N] [--into DIR] [--device NAME]

Nothing is compiled: every config runs once in every pass, each pass in another order. `time_ms` is the median over the
passes and `time_std_ms` their standard deviation, in pairs as by `record_spaces.py`. What is timed is CPU time.

- zstd: seconds to compress a text of 64 KB, and to send the result at 20 MB/s.
- sqlite: seconds to fill a database in memory-backed files, to update some rows and to answer queries.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from ctypes import CDLL, c_size_t, c_void_p, create_string_buffer
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import parser
from record_spaces import FEW, Timed, add_options, all_passes, record_all, say, short, summary
from space_kinds import space

import tunewright as tw
from tunewright.backends.replay import Recording
from tunewright.model.trial import Timing, Trial

TEXT, BANDWIDTH = 64 << 10, 20e6

ZSTD = space(
    {
        "strat": [1, 2, 3, 4, 5, 6],
        "wlog": [11, 14, 16],
        "hlog": [8, 11, 14],
        "clog": [8, 11, 14],
        "slog": [1, 3, 6],
        "mml": [3, 4, 5, 6],
    },
    ["strat > 2 or slog == 1", "strat != 1 or clog == 8"],
)
SQLITE = space(
    {
        "page_size": [512, 1024, 4096, 16384],
        "cache_size": [8, 64, 1024],
        "journal_mode": ["delete", "wal", "memory", "off"],
        "transactions": [1, 6, 24],
        "index": ["none", "key", "covering", "late"],
        "rowid": [0, 1],
    },
)


def text() -> bytes:
    """A text whose words are as frequent as those of a language."""
    rng = np.random.default_rng(1)
    letters = np.frombuffer(b"etaoinshrdlucmfw", np.uint8)
    words = [bytes(rng.choice(letters, rng.integers(2, 10))) for _ in range(3000)]
    picks = np.minimum(rng.zipf(1.3, TEXT // 4), len(words)) - 1
    return b" ".join(words[i] for i in picks)[:TEXT]


SETTINGS = {"wlog": 101, "hlog": 102, "clog": 103, "slog": 104, "mml": 105, "strat": 107}
"""Numbers of the parameters in the library's interface; `zstd --zstd=` takes the same names."""


@cache
def zstd() -> tuple[Any, Any, bytes]:
    """The library, a context and the text."""
    library = CDLL(find_library("zstd") or "libzstd.so.1")
    library.ZSTD_createCCtx.restype = c_void_p
    library.ZSTD_compressBound.restype = library.ZSTD_compress2.restype = c_size_t
    return library, c_void_p(library.ZSTD_createCCtx()), text()


def compress(config: tw.Config, _: Path) -> float:
    """CPU seconds of zstd, and those the result needs on its way."""
    library, context, data = zstd()
    room = create_string_buffer(TEXT * 2)
    began = time.thread_time()
    for name, value in config.items():
        library.ZSTD_CCtx_setParameter(context, SETTINGS[name], int(value))
    size = library.ZSTD_compress2(context, room, c_size_t(len(room)), data, c_size_t(len(data)))
    if library.ZSTD_isError(c_size_t(size)):
        raise RuntimeError(f"zstd failed with {config}; run it by hand to see why")
    return time.thread_time() - began + size / BANDWIDTH


def query(config: tw.Config, folder: Path) -> float:
    """CPU seconds to fill and ask a database."""
    for old in folder.glob("data*"):
        old.unlink()
    began = time.thread_time()
    base = sqlite3.connect(folder / "data", isolation_level=None)
    for name in ("page_size", "cache_size", "journal_mode"):
        base.execute(f"pragma {name} = {config[name]}")
    rest = "" if config["rowid"] else " without rowid"
    base.execute(f"create table t (id integer primary key, k integer, v integer, note text){rest}")
    index = {"key": "create index i on t (k)", "late": "create index i on t (k)"}
    index["covering"] = "create index i on t (k, v)"
    if config["index"] in ("key", "covering"):
        base.execute(index[str(config["index"])])
    rows = [(i, i * 7919 % 1009, i * 31 % 97, "note " * (i % 7)) for i in range(600)]
    for part in np.array_split(np.arange(len(rows)), int(config["transactions"])):
        base.execute("begin")
        base.executemany("insert into t values (?, ?, ?, ?)", [rows[i] for i in part])
        base.execute("commit")
    if config["index"] == "late":
        base.execute(index["late"])
    for k in range(0, 1000, 10):
        base.execute("select sum(v) from t where k between ? and ?", (k, k + 25)).fetchall()
    base.execute("begin")
    base.executemany("update t set v = v + 1 where id = ?", [(i,) for i in range(0, 600, 9)])
    base.execute("commit")
    base.execute("select note, count(*) from t group by note order by 2").fetchall()
    base.close()
    return time.thread_time() - began


@dataclass(frozen=True)
class Program:
    """A program: its configs, and what runs one of them in a folder."""

    space: tw.Space
    run: Callable[[tw.Config, Path], float]


PROGRAMS = {"zstd": Program(ZSTD, compress), "sqlite": Program(SQLITE, query)}


def record(name: str, into: Path, device: str, passes: int, *, quick: bool) -> dict[str, Any]:
    """Record one program, or a few configs of it; its summary."""
    program = PROGRAMS[name]
    configs = list(program.space)
    if quick:
        configs = list(dict.fromkeys(program.space.sample(np.random.default_rng(0), FEW)))
    say(f"{name}: {len(configs):,} configs")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as made:
        visits = {i: partial(program.run, config, Path(made)) for i, config in enumerate(configs)}
        seconds, spent = all_passes(visits, len(configs), Path(made), passes)
    timed = Timed(seconds, {}, spent)
    rows = zip(configs, np.nanmedian(seconds, axis=1), timed.spent, strict=True)
    trials = [Trial(config, Timing((short(t),), "process"), 0.0, short(s)) for config, t, s in rows]
    spreads = dict(zip(configs, np.nanstd(seconds, axis=1, ddof=1).tolist(), strict=True))
    rules = tuple(rule.reason for rule in program.space.rules)
    into.mkdir(parents=True, exist_ok=True)
    by_config = {trial.config: trial for trial in trials}
    Recording(name, device, program.space, by_config, rules, spreads).write(into / f"{name}-{device}.parquet")
    return summary(trials, timed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record programs, and say what was recorded."""
    takes = parser(__doc__)
    add_options(takes, PROGRAMS)
    return record_all(takes.parse_args(arguments), PROGRAMS, record)


if __name__ == "__main__":
    sys.exit(main())
