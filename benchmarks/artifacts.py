"""Built artifacts that are damaged in the cache: none may be loaded, and each must be built again.

    python benchmarks/artifacts.py [--quick] [--json]

- damages: libraries of a small C kernel that are truncated, emptied, or have a flipped bit, and labels with the same
  damages. Each is loaded as a backend loads it. `loaded` counts bytes other than those that were built which reached
  the loader; `rebuilt` is the share of damaged libraries that were replaced. Here a build copies the library that the
  compiler made once, so that all damages can be tried; nothing else differs.
- compiled: a sample of them, each found, compiled, loaded and called by the C backend. `wrong_results` counts calls
  whose result was wrong, `compiled.rebuilt` is the share that was compiled again.
- cost: the first load of a kernel in a process, `checked` as it is and `bare` by ctypes from the file, in CPU
  microseconds, interleaved, each of a library of its own; and the CPU milliseconds of the key of a kernel that includes
  headers of the system: `cold` asks the compiler, `warm` is the first key of a process that finds what was remembered,
  `again` any later one.
"""

from __future__ import annotations

import ctypes
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from figures import Goal, Report, Series, cpu_seconds, parser

import tunewright as tw
from tunewright.backends import c_headers, file_digests
from tunewright.backends.libraries import open_library
from tunewright.model.signature import Parameter, Signature
from tunewright.ports.backend import Kernel
from tunewright.stores import artifacts

GOALS = (Goal("loaded", "==", 0), Goal("rebuilt", "==", 1.0), Goal("wrong_results", "==", 0))
SOURCE = """#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void add(const double *x, double *y) { for (int64_t i = 0; i < N; i++) y[i] = x[i] + K; }
"""
DAMAGES, QUICK_DAMAGES = 10_000, 400
COMPILED, QUICK_COMPILED = 200, 20
REPEATS, QUICK_REPEATS = 61, 15
LABELS = 5
"""One in so many damages is that of a label."""


def add(x: tw.In("N"), y: tw.Out("N")) -> None: ...  # type: ignore[valid-type]


class Ground:
    """The kernel, its backend and a cache."""

    def __init__(self, folder: Path) -> None:
        (folder / "add.c").write_text(SOURCE)
        self.kernel = Kernel("add", add, Parameter.of(add, []), folder / "cache")
        self.backend = tw.C(folder / "add.c", flags="-O1")
        self.arguments = [np.ones(4), np.zeros(4)]
        self.signature = Signature.of(self.kernel.parameters, self.arguments)

    def build(self, number: int) -> Path:
        return self.backend.build(self.kernel, tw.Config(K=number), self.signature)

    def key(self) -> None:
        self.backend.key(self.kernel, self.signature, {})


def damage(path: Path, random: Random) -> None:
    """Truncates a file, or flips one of its bits."""
    content = bytearray(path.read_bytes())
    if random.random() < 0.5:
        content = content[: random.choice([0, random.randrange(len(content))])]
    else:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def damage_all(ground: Ground, count: int, random: Random) -> dict[str, Any]:
    """Damages one artifact again and again, and loads it each time."""
    path = ground.build(3)
    label_path = path.with_name(path.name + artifacts.LABEL_SUFFIX)
    content, label = artifacts.read_artifact(path)
    label_content, built = label_path.read_bytes(), sha256(content).digest()
    loaded = damaged_libraries = damaged_labels = rebuilt = refused = 0

    def rebuild(_: artifacts.ArtifactLabel) -> Path:
        return artifacts.save_artifact(ground.kernel.cache, content, label)

    def take(found: bytes) -> None:
        nonlocal loaded
        loaded += sha256(found).digest() != built

    for number in range(count):
        is_label = number % LABELS == 0
        damage(label_path if is_label else path, random)
        try:
            artifacts.load_artifact(path, take, rebuild)
        except tw.TunewrightError:  # a label that cannot be read: the next build does not find the artifact
            refused += 1
            if not artifacts.is_intact(path):
                rebuild(label)
        damaged_labels += is_label
        if not is_label:
            damaged_libraries += 1
            rebuilt += artifacts.is_intact(path) and path.read_bytes() == content
        label_path.write_bytes(label_content)
    return {
        "damages": count,
        "labels": damaged_labels,
        "refused_until_built": refused,
        "loaded": loaded,
        "rebuilt": rebuilt / damaged_libraries,
    }


def compile_again(ground: Ground, count: int, random: Random) -> dict[str, Any]:
    """Damages libraries that are then compiled, loaded and called by the backend."""
    x, y = ground.arguments
    compiled = wrong = 0
    for number in range(100, 100 + count):
        path = ground.build(number)
        before = path.stat().st_ino
        damage(path, random)
        ground.backend.load(ground.kernel, ground.build(number))(x, y)
        wrong += float(y[0]) != 1 + number
        compiled += path.stat().st_ino != before and artifacts.is_intact(path)
    return {"sample": count, "rebuilt": compiled / count, "wrong_results": wrong}


def microseconds(call: Callable[[], object]) -> float:
    began = cpu_seconds()
    call()
    return (cpu_seconds() - began) * 1e6


def first_loads(ground: Ground, count: int) -> dict[str, Series]:
    """The first loads of libraries: as they are, and bare."""
    bare, checked, checks = [], [], []
    for number in range(1000, 1000 + count):
        path = ground.build(number)
        copy = shutil.copy(path, path.with_name(f"copy-{path.name}"))
        bare.append(microseconds(lambda copy=copy: ctypes.CDLL(str(copy))["add"]))  # type: ignore[misc]
        load = lambda path=path: artifacts.load_artifact(  # type: ignore[misc]  # noqa: E731
            path, lambda content: open_library(content, path)["add"], lambda label: path
        )
        checked.append(microseconds(load))
        checks.append(microseconds(lambda path=path: artifacts.is_intact(path)))  # type: ignore[misc]
        Path(copy).unlink()
    return {"bare": Series(bare), "checked": Series(checked), "check_before": Series(checks)}


def keys(ground: Ground, count: int) -> dict[str, Series]:
    """The cost of keys, in milliseconds."""
    cold, warm, again = [], [], []
    ground.key()  # finds the compiler
    for _ in range(count):
        shutil.rmtree(ground.kernel.cache / "headers", ignore_errors=True)
        for times in (cold, warm, again):
            if times is not again:  # as in a new process
                c_headers._scans.clear()
                file_digests._remembered.clear()
            times.append(microseconds(ground.key) / 1000)
    return {"cold": Series(cold), "warm": Series(warm), "again": Series(again)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Damages, compiles, measures."""
    given = parser(__doc__).parse_args(arguments)
    logging.getLogger("tunewright").setLevel(logging.ERROR)  # each damage is a warning
    report, random = Report(), Random(1)
    with tempfile.TemporaryDirectory() as folder:
        ground = Ground(Path(folder))
        found = damage_all(ground, QUICK_DAMAGES if given.quick else DAMAGES, random)
        compiled = compile_again(ground, QUICK_COMPILED if given.quick else COMPILED, random)
        repeats = QUICK_REPEATS if given.quick else REPEATS
        loads, times = first_loads(ground, repeats), keys(ground, repeats)
        size = ground.build(3).stat().st_size
    report.figures |= found | {
        "wrong_results": compiled["wrong_results"],
        "compiled": compiled,
        "library_bytes": size,
        "first_load_us": {name: round(series.median, 1) for name, series in loads.items()},
        "key_ms": {name: round(series.median, 2) for name, series in times.items()},
    }
    report.check(compiled["rebuilt"] == 1.0, f"{compiled['rebuilt']:.3f} of the damaged libraries were compiled again")
    report.lines += [
        f"{found['damages']:,} damages: {found['loaded']} loaded, {found['rebuilt']:.4f} of the libraries built again",
        f"{compiled['sample']} compiled again: {compiled['rebuilt']:.3f}, {compiled['wrong_results']} wrong results",
        *(f"first load, {name}: {series.text('us', 0)}" for name, series in loads.items()),
        *(f"key, {name}: {series.text('ms', 2)}" for name, series in times.items()),
    ]
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
