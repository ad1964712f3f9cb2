"""What runs every night: slow tests, every benchmark, tutorials, the gallery, long fuzzing, other versions."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import matrix_run

ROOT = Path(__file__).resolve().parent.parent
PYTHON = str(ROOT / ".venv" / "bin" / "python")
MINUTE = 60.0

BENCHMARK_LIMITS = {
    "faults": 30 * MINUTE,
    "fleet_storm": 30 * MINUTE,
    "gate": 25 * MINUTE,
    "gpu_accept": 30 * MINUTE,
    "gpu_faults": 20 * MINUTE,
    "lint": 20 * MINUTE,
    "mlir_exported": 20 * MINUTE,
    "mlir_payloads": 25 * MINUTE,
    "racing": 20 * MINUTE,
    "referee": 30 * MINUTE,
    "referee_attacks": 30 * MINUTE,
    "search": 20 * MINUTE,
    "service_storm": 20 * MINUTE,
    "shapes": 45 * MINUTE,
    "shapes_many": 25 * MINUTE,
    "torch_compile": 30 * MINUTE,
}
"""Limits of benchmarks that take longer than others, quick as they run here."""

SCHEMA = "tests/service/test_schema.py"


@dataclass(frozen=True)
class Step:
    """Commands that run one after another within a limit.

    `ends_with` is what the last line of the last command must end with. `prints` says what standard output holds:
    the figures of a benchmark, or a row of the matrix. A step has an empty cache of its own unless it `keeps_cache`.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    limit: float
    ends_with: str = ""
    prints: str = ""
    keeps_cache: bool = False


def steps() -> list[Step]:
    """Every step, in the order in which they run."""
    return [*setup(), *tests(), *benchmarks(), *tutorials(), *others(), *versions()]


def setup() -> list[Step]:
    """What the other steps need."""
    return [
        Step("system", (("scripts/system", "--nightly"),), 10 * MINUTE),
        Step("bootstrap", (("scripts/bootstrap", "--peers"),), 20 * MINUTE, keeps_cache=True),
    ]


def tests() -> list[Step]:
    """Tests that a pull request does not wait for."""
    pytest = (PYTHON, "-m", "pytest")
    apart = ("--ignore=tests/browser", f"--ignore={SCHEMA}")
    both = ("-n", "2", "--dist", "loadfile")
    return [
        Step("test-slow", ((*pytest, "-m", "slow and not clock", *both, *apart),), 90 * MINUTE),
        Step("test-clock", ((*pytest, "-m", "clock"),), 30 * MINUTE),
        Step("test-browser", ((*pytest, "tests/browser"),), 20 * MINUTE),
        Step("test-schema", ((*pytest, SCHEMA),), 15 * MINUTE),
        Step("test-fuzz", ((*pytest, "tests/fuzz", "--hypothesis-profile=nightly"),), 90 * MINUTE),
    ]


def benchmarks() -> list[Step]:
    """Every benchmark, with fewer repeats."""
    found = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if is_benchmark(path))
    return [
        Step(
            f"benchmark-{path.stem}",
            ((PYTHON, f"benchmarks/{path.name}", "--quick", "--json"),),
            BENCHMARK_LIMITS.get(path.stem, 10 * MINUTE),
            prints="figures",
        )
        for path in found
    ]


def is_benchmark(path: Path) -> bool:
    """Whether a file of `benchmarks/` is a program that takes `--quick`, not a part of one."""
    text = path.read_text()
    return "parser(__doc__" in text and '__name__ == "__main__"' in text


def tutorials() -> list[Step]:
    """Each tutorial twice: the second process has nothing left to measure."""
    return [
        Step(
            f"tutorial-{path.stem}",
            ((PYTHON, f"tutorials/{path.name}"),) * 2,
            15 * MINUTE,
            ends_with="measurements 0",
        )
        for path in sorted((ROOT / "tutorials").glob("[0-9]*.py"))
    ]


def others() -> list[Step]:
    """The gallery."""
    return [Step("gallery", (("scripts/gallery",),), 30 * MINUTE)]


def versions() -> list[Step]:
    """Other versions of Python, torch and Triton, each in its own environment."""
    return [
        Step(
            f"matrix-{one.name}",
            ((sys.executable, "scripts/matrix", "--only", one.name, "--json", "-"),),
            one.limit + 20 * MINUTE,
            prints="row",
            keeps_cache=True,
        )
        for one in matrix_run.environments()
    ]
