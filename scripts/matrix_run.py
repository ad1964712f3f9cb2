"""Tests on every supported version of Python, torch and Triton, each in an environment of its own."""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

import count
import processes

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "matrix"
PYTHON = "3.11"
"""For torch and Triton."""

TOOLS = ("hypothesis", "pytest", "pytest-rerunfailures", "pytest-xdist")
"""What tests need, at the versions that the dependency group `dev` asks for."""

LIGHT = ("bundle", "http", "notebook", "plot", "postgres", "redis", "replay")
"""Extras that are installed everywhere: their wheels are small, and the tests of stores and reports use them."""

CORE = (
    "tests/cases",
    "tests/cli",
    "tests/engine",
    "tests/interop",
    "tests/kernel",
    "tests/keylint",
    "tests/memoization",
    "tests/replay",
    "tests/shipping",
    "tests/dashboard",
    "tests/measure",
    "tests/model",
    "tests/pools",
    "tests/report",
    "tests/spaces",
    "tests/stores",
    "tests/strategies",
    "tests/test_settings.py",
)
"""Tests that need nothing heavy: no torch, Triton, Ray, MLIR, OpenCL or browser."""

NOT_NEEDED = ("nvidia-cusolver", "nvidia-nvtx", "nvidia-cuda-cccl")
"""Packages of CUDA that torch requires and that `import torch` does not load."""

NOT_SUPPORTED_YET = {
    "torch-2.10": "five tests of the doctor fail: Dynamo reports other lines and reasons there",
}
"""Environments whose tests fail, and why. An entry goes when its tests pass."""


class Unavailable(Exception):
    """An environment that cannot be made, and why."""


@dataclass(frozen=True)
class Environment:
    """What is installed, and which tests run with it."""

    kind: str
    version: str
    requirements: tuple[str, ...]
    tests: tuple[str, ...]
    python: str = PYTHON
    limit: float = 1800.0
    extras: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As `--only` takes it: python-3.12, torch-2.10."""
        return f"{self.kind}-{'.'.join(self.version.split('.')[:2])}"


def environments() -> list[Environment]:
    """Every row of the matrix."""
    torch_tests, triton_tests = ("tests/torch_compile",), ("tests/triton_autotune", "tests/triton_static")
    return [
        *(
            Environment("python", version, (), CORE, version, limit=3600.0, extras=LIGHT)
            for version in ("3.11", "3.12", "3.13")
        ),
        *(
            Environment("torch", version, (f"torch=={version}", "setuptools"), torch_tests, extras=LIGHT)
            for version in ("2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
        ),
        *(
            Environment("triton", version, (f"triton=={version}", "torch==2.13.0"), triton_tests, extras=LIGHT)
            for version in ("3.6.0", "3.7.1", "3.8.0", "3.9.0")
        ),
    ]


@dataclass
class Row:
    """What the tests in one environment said."""

    name: str
    version: str
    status: str = "failed"
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""


def test(environment: Environment, *, folder: Path) -> Row:
    """Make the environment, run its tests, judge."""
    row, began = Row(environment.name, environment.version), time.monotonic()
    try:
        python = made(environment)
        _test(environment, python, row, folder)
    except Unavailable as why:
        row.status, row.reason = "unavailable", str(why)
    row.seconds = round(time.monotonic() - began, 1)
    if why := NOT_SUPPORTED_YET.get(row.name):
        if row.status == "failed":
            row.status, row.reason = "expected", why
        elif row.status == "passed":
            row.status = "unexpected"
            row.reason = f"it passes now: remove {row.name} from NOT_SUPPORTED_YET in scripts/matrix_run.py"
    return row


def _test(environment: Environment, python: Path, row: Row, folder: Path) -> None:
    log, report = folder / f"{row.name}.log", folder / f"{row.name}.xml"
    report.unlink(missing_ok=True)
    # Tests of real time need the machine for themselves, and say nothing about a version.
    command = [str(python), "-m", "pytest", "-m", "not slow and not clock", *environment.tests]
    command += [f"--junitxml={report}", "-p", "no:cacheprovider", "-n", "auto", "--dist", "loadfile"]
    place = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(python.parent.parent)}
    with log.open("wb") as output:
        ended = processes.run(
            command, environment.limit, environment={**os.environ, **place}, folder=ROOT, output=output
        )
    if report.exists():
        row.passed, row.failed, row.skipped = count.tests([report])
    if ended.status == 0:
        row.status = "passed"
    elif ended.status is None:
        row.reason = f"stopped at its limit of {environment.limit:g} s; read {shown(log)}"
    else:
        row.reason = f"pytest ended with status {ended.status}; read {shown(log)}"


def made(environment: Environment) -> Path:
    """The Python of an environment with exactly this installed. It is made once, and used again."""
    base, wanted = interpreter(environment.python), requirements(environment)
    unneeded = "".join(f"{name}{suffix} ; python_version < '3'\n" for name in NOT_NEEDED for suffix in ("", "-cu12"))
    overrides = cache_folder() / "overrides.txt"
    overrides.write_text(unneeded)
    lock = _uv(
        "pip", "compile", "-q", "--no-header", "--no-annotate", "--python", base,
        "--overrides", str(overrides), *index_options(), "-", given="\n".join(wanted),
    )  # fmt: skip
    place = cache_folder() / sha256(f"{base}\n{ROOT}\n{lock}".encode()).hexdigest()[:16]
    python, complete = place / "bin" / "python", place / "complete"
    if not complete.exists():
        shutil.rmtree(place, ignore_errors=True)
        _uv("venv", "-q", "--python", base, str(place))
        listed = place / "requirements.txt"
        listed.write_text(lock)
        _uv("pip", "install", "-q", "--no-deps", "--python", str(python), *index_options(), "-r", str(listed))
        complete.touch()
    os.utime(complete)
    _uv("pip", "install", "-q", "--no-deps", "--python", str(python), *index_options(), "-e", str(ROOT))
    return python


def requirements(environment: Environment) -> list[str]:
    """The core's dependencies, what tests need, and what the environment is about."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = [one for one in project["dependency-groups"]["dev"] if _distribution(one) in TOOLS]
    extras = [one for name in environment.extras for one in project["project"]["optional-dependencies"][name]]
    return [*project["project"]["dependencies"], *extras, *tools, *environment.requirements]


def _distribution(requirement: str) -> str:
    return requirement.partition(">")[0].partition("=")[0].partition("[")[0].strip()


def interpreter(version: str) -> str:
    """A Python of this version: on the path, or one of pyenv's."""
    found = [shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False).stdout.strip()
        found += sorted(map(str, Path(root, "versions").glob(f"{version}.*/bin/python")), reverse=True)
    for one in filter(None, found):
        asked = [one, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
        if said[:1] == [version]:
            return said[1]
    raise Unavailable(
        f"there is no Python {version}: put python{version} on the PATH, or run `pyenv install {version}`"
    )


def cache_folder() -> Path:
    """Where environments are kept."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("TUNEWRIGHT_DEV_CACHE") or Path(caches, "tunewright-dev")) / "matrix"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def index_options() -> list[str]:
    """Where packages come from, as pip is configured: uv does not read that itself."""
    command = ["-m", "pip", "config", "list"]
    try:
        said = _run([sys.executable, *command])
    except Unavailable:  # an environment that uv made has no pip; the Python it was made from may have one
        said = _run([sys._base_executable, *command])
    options, seen = ["--index-strategy", "unsafe-best-match"], set()
    # Lines are ordered by file; variables of the environment are stated under :env:.
    for line in said.splitlines():
        name, _, value = line.partition("=")
        option = name.rpartition(".")[2]
        if option in ("index-url", "extra-index-url", "find-links"):
            for one in str(ast.literal_eval(value)).split():
                if (option, one) not in seen:
                    options += [f"--{option}", one]
                seen.add((option, one))
    return options


def _uv(*words: str, given: str = "") -> str:
    """What uv says; its downloads are shared with scripts/bootstrap."""
    return _run([str(ROOT / "scripts" / "uv"), *words], given=given)


def _run(command: Sequence[str], *, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())[-600:]
        raise Unavailable(f"`{Path(command[0]).name} {' '.join(command[1:3])}` failed: {said}")
    return done.stdout


def prune(days: float) -> None:
    """Remove environments that were not used lately, and downloads that none of the rest needs."""
    for complete in cache_folder().glob("*/complete"):
        if time.time() - complete.stat().st_mtime > 86400 * days:
            print(f"remove {complete.parent.name}")
            shutil.rmtree(complete.parent)
    _uv("cache", "prune")


def table(rows: Iterable[Row]) -> list[str]:
    """The rows as Markdown."""
    lines = [
        "| environment | version | status | passed | failed | skipped | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (row.name, row.version, row.status, row.passed, row.failed, row.skipped, f"{row.seconds:.0f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def shown(path: Path) -> str:
    """A path as one would type it."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Test in every environment, or in some."""
    known = environments()
    takes = argparse.ArgumentParser(prog="scripts/matrix", description=(__doc__ or "").splitlines()[0])
    takes.add_argument("--list", action="store_true", help="name the environments, and do nothing")
    takes.add_argument("--only", nargs="+", metavar="NAME", default=[], help="these instead of all: python-3.12")
    takes.add_argument("--json", metavar="FILE", help="also write the rows as JSON; - for standard output")
    takes.add_argument("--prune", type=float, metavar="DAYS", help="remove what was not used for so long, and stop")
    given = takes.parse_args(arguments)
    if unknown := set(given.only) - {one.name for one in known}:
        takes.error(f"unknown: {', '.join(sorted(unknown))}; see scripts/matrix --list")
    chosen = [one for one in known if not given.only or one.name in given.only]
    if given.list:
        for one in chosen:
            note = NOT_SUPPORTED_YET.get(one.name)
            print(
                f"{one.name:<12} {one.version:<8} {' '.join(one.tests)}{f'; expected to fail: {note}' if note else ''}"
            )
        return 0
    if given.prune is not None:
        prune(given.prune)
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    say = sys.stderr if given.json == "-" else sys.stdout
    rows = []
    for number, one in enumerate(chosen, 1):
        print(f"{number} of {len(chosen)}: {one.name}", file=say, flush=True)
        rows.append(test(one, folder=LOGS))
    print("\n".join(table(rows)), file=say)
    for row in rows:
        if row.reason:
            print(f"{row.name}: {row.reason}", file=say)
    if given.json:
        text = json.dumps({"rows": [asdict(row) for row in rows]})
        print(text) if given.json == "-" else Path(given.json).write_text(text + "\n")
    return int(any(row.status in ("failed", "unavailable") for row in rows))
