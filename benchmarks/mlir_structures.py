"""Which structures of schedules suit which product: what a model says that was fitted on other products.

    python benchmarks/mlir_structures.py [--quick] [--json]
    python benchmarks/mlir_structures.py --record FILE [--minutes 30] [--seed 0] [--only NAME]

Each product of the tables in the package is searched in turn, by replay, with a model of those of other sizes:
`trials_*` is how many trials it takes until one is within 5 % of the best recorded, the mean over seeds and products.
`portfolio` starts from nothing, `registers` from the config of each structure with the best register use
(`register_configs`), `predicted` from configs of the structures that the model puts first. All go on with the
portfolio, which draws at random where a table has 24 configs or fewer. The tables have only some configs of each space,
so these numbers compare ways to start, and say nothing about a whole search.

`after_6_*` is the time of the best of six trials, relative to the best recorded, where the first trial is what another
product found (the nearest config of the same structure): the mean over all pairs of products of one element, and the
worst.

`--record` builds and times configs of every structure of every payload, as ratios to a product by numpy that is called
in turn, in a process each, and adds them to the file, round by round over the payloads. What takes longer than the
deadline says nothing and is left out. The tables of the package are what such runs recorded.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from figures import Report, parser

from tunewright.mlir import Mlir, payloads
from tunewright.mlir.contraction_plans import contraction_plan
from tunewright.mlir.dot_plans import dot_plan
from tunewright.mlir.gemm_plans import gemm_plan
from tunewright.mlir.payload import Payload
from tunewright.mlir.plan import SchedulePlan
from tunewright.mlir.seeds import nearest, register_use
from tunewright.mlir.structure_model import Core, ProductShape, StructureModel, Table, shipped_tables
from tunewright.model.signature import In, Out, Parameter, Signature
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.ports.backend import Kernel
from tunewright.replay.tables import space_of
from tunewright.spaces.config import VARIANT, Config
from tunewright.strategies.portfolio import Portfolio

PLANS = {"gemm": gemm_plan, "contraction": contraction_plan, "dot": dot_plan}
PAYLOADS: dict[str, tuple[str, str, tuple[Any, ...], dict[str, Any]]] = {
    **{
        f"gemm {m}x{n}x{k}": ("gemm", "matmul", (m, n, k), {"after": "relu"})
        for m, n, k in (
            (512, 512, 512), (1024, 1024, 1024), (256, 256, 256), (128, 128, 128), (768, 768, 768), (1024, 1024, 64),
            (64, 1024, 1024), (256, 2048, 512), (500, 500, 500), (128, 768, 3072),
        )
    },
    **{
        f"{element} {m}x{n}x{k}": ("dot", "matmul", (m, n, k), {"element": element})
        for element, m, n, k in (
            ("bf16", 512, 512, 512), ("bf16", 1024, 1024, 1024), ("bf16", 128, 768, 768), ("i8", 512, 512, 512),
        )
    },
    "batch 16x128x128x64": ("contraction", "batch_matmul", (16, 128, 128, 64), {}),
    "batch 4x256x256x128": ("contraction", "batch_matmul", (4, 256, 256, 128), {}),
}  # fmt: skip
"""The plan of each payload, the helper that makes it, and its arguments."""

DEADLINE, ROUNDS = 25, 9


def planned(name: str) -> SchedulePlan:
    """The plan of a payload."""
    plan, helper, sizes, options = PAYLOADS[name]
    return PLANS[plan](getattr(payloads, helper)(*sizes, **options))


def candidates(plan: SchedulePlan, seed: int) -> Iterator[Config]:
    """Configs, one of each structure in turn: the larger blocks of some at random as often as any."""
    rng = np.random.default_rng(seed)
    by_structure: dict[str, list[Config]] = {}
    for config in plan.space.sample(rng, 300 * len(plan.space.variants)):
        by_structure.setdefault(str(config[VARIANT]), []).append(config)
    names = [name for name in by_structure if name != "as written"]
    seen = set()
    for number in range(200):
        for name in names:
            some = by_structure[name]
            drawn = [some[i] for i in rng.integers(len(some), size=1 if number % 3 == 2 else 6)]
            config = max(drawn, key=lambda one: int(one.get("mr", 1)) * int(one.get("nr", 1)))
            if config not in seen:
                seen.add(config)
                yield config


def arrays(payload: Payload) -> list[Any]:
    """Arrays of a payload, the result last."""
    import ml_dtypes

    kinds = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "i32": np.int32}
    rng = np.random.default_rng(0)
    return [rng.standard_normal(one.shape).astype(kinds[one.element]) for one in payload.arguments]


def measured(payload: Payload, plan: SchedulePlan, config: Config, folder: Path) -> float:
    """How long a config takes, as a multiple of the product by numpy that is called in turn."""
    given = arrays(payload)
    roles = tuple(Parameter(one.name, Out if one.written else In) for one in payload.arguments)
    kernel, backend = Kernel("k", lambda: None, roles, folder), Mlir(payload, plan)
    launch = backend.load(kernel, backend.build(kernel, config, Signature.of(kernel.parameters, given)))
    square = np.ones((160, 160), np.float32)
    out = np.empty_like(square)
    launch(*given)
    started = time.thread_time()
    launch(*given)
    once = time.thread_time() - started
    calls, ratios = max(1, int(0.002 / max(once, 1e-6))), []
    fixed = max(1, int(calls * once / 1e-4))
    for _ in range(ROUNDS if once < 0.1 else 3):
        start = time.thread_time()
        for _ in range(fixed):
            np.matmul(square, square, out=out)
        middle = time.thread_time()
        for _ in range(calls):
            launch(*given)
        end = time.thread_time()
        ratios.append((end - middle) / calls / ((middle - start) / fixed))
    return float(np.median(ratios))


def in_a_process(payload: Payload, plan: SchedulePlan, config: Config, folder: Path) -> float | None:
    """The same in a child; None if it fails.

    Raises TimeoutError after the deadline, which may be the machine's fault.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(DEADLINE)
        try:
            os.write(writes, repr(measured(payload, plan, config, folder)).encode())
        except Exception as error:  # noqa: BLE001 - a config that fails is a row without a time
            print(f"{config}: {error}"[:300], file=sys.stderr)
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        raise TimeoutError(f"not done after {DEADLINE} s: {config}")
    return float(text) if text else None


def table(name: str, rows: list[Any]) -> Table:
    """The rows of a payload as the package has them, recorded here."""
    shape = ProductShape.of(planned(name).payload)
    if shape is None:
        raise ValueError(f"{name} has no single product")
    return Table(name, shape.batches, shape.rows, shape.columns, shape.terms, shape.element, Core.here(), rows)


def record(path: Path, minutes: float, seed: int, only: Sequence[str]) -> None:
    """Add rows to the file until the time is over."""
    known = msgspec.json.decode(path.read_bytes(), type=list[Table]) if path.exists() else []
    if others := [one.name for one in known if one.core != Core.here()]:
        raise SystemExit(f"{path.name} has rows of another processor ({', '.join(others)}): record into a new file")
    found: dict[str, list[Any]] = {one.name: one.times for one in known}
    plans = {name: planned(name) for name in PAYLOADS if not only or name in only}
    seen = {name: {Config(config) for config, _ in rows} for name, rows in found.items()}
    more = {name: candidates(plan, seed) for name, plan in plans.items()}
    ends = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as place:
        while more and time.monotonic() < ends:
            for name in list(more):
                for _ in plans[name].space.variants[:3]:
                    config = next(more[name], None)
                    if config is None or time.monotonic() > ends:
                        break
                    if config in seen.setdefault(name, set()):
                        continue
                    seen[name].add(config)
                    try:
                        took = in_a_process(plans[name].payload, plans[name], config, Path(place))
                    except TimeoutError as late:
                        print(late, file=sys.stderr)
                        continue
                    found.setdefault(name, []).append((config.plain(), took and round(took, 4)))
                path.write_bytes(msgspec.json.encode([table(*one) for one in found.items()]))
            print(f"{sum(map(len, found.values()))} rows", file=sys.stderr, flush=True)


class Recorded:
    """The rows of a table as trials."""

    def __init__(self, one: Table) -> None:
        self.shape = one.shape
        self.times = {Config(config): took for config, took in one.times}
        self.configs = list(self.times)
        self.space = space_of(self.configs)
        self.best = min(took for took in self.times.values() if took)
        self.winner = next(config for config, took in self.times.items() if took == self.best)

    def trial(self, config: Config) -> Trial:
        """What a config did when it was recorded."""
        took = self.times[config]
        failed = Failure(Stage.BUILD, Kind.REFUSED, "it failed when it was recorded")
        return Trial(config, Timing((took,)) if took else failed)

    def searched(self, first: Sequence[Config], seed: int) -> Iterator[float]:
        """The best time so far after each trial, relative to the best recorded: first these, then the portfolio's."""
        strategy, best = Portfolio(self.space, np.random.default_rng(seed)), np.inf
        todo = list(dict.fromkeys(first))
        tried: set[Config] = set()
        while len(tried) < len(self.configs):
            config = todo.pop(0) if todo else next(iter(strategy.ask(1)))
            strategy.tell([self.trial(config)])
            tried.add(config)
            best = min(best, (self.times[config] or np.inf) / self.best)
            yield best

    def by_registers(self) -> list[Config]:
        """The config of each structure with the best register use."""
        best: dict[Any, Config] = {}
        for config in self.configs:
            if config[VARIANT] not in best or register_use(config) > register_use(best[config[VARIANT]]):
                best[config[VARIANT]] = config
        return list(best.values())


def model_without(left_out: Table, tables: Sequence[Table]) -> StructureModel:
    """The model of all products of other sizes."""
    return StructureModel([other for other in tables if sizes(other) != sizes(left_out)])


def sizes(one: Table) -> tuple[int, ...]:
    """What makes a product the same but for its elements."""
    return one.batches, one.rows, one.columns, one.terms


def until_near(tables: Sequence[Table], seeds: int) -> dict[str, dict[str, float]]:
    """The mean number of trials until one is within 5 % of the best, by way to start and product."""
    found: dict[str, dict[str, float]] = {"portfolio": {}, "registers": {}, "predicted": {}}
    for one in tables:
        recorded = Recorded(one)
        starts = {
            "portfolio": [],
            "registers": recorded.by_registers(),
            "predicted": model_without(one, tables).first(one.shape, recorded.configs, core=one.core),
        }
        for name, first in starts.items():
            counts = [
                next(i for i, best in enumerate(recorded.searched(first, seed), 1) if best <= 1.05)
                for seed in range(seeds)
            ]
            found[name][one.name] = float(np.mean(counts))
    return found


def after_few(tables: Sequence[Table], seeds: int, trials: int = 6) -> dict[str, list[float]]:
    """The best of a few trials that start from what another product of the element found, relative to the best."""
    found: dict[str, list[float]] = {"adapted": [], "predicted": []}
    for one in tables:
        recorded = Recorded(one)
        predicted = model_without(one, tables).first(one.shape, recorded.configs, core=one.core)
        for other in tables:
            if other.name == one.name or other.element != one.element:
                continue
            adapted = nearest(recorded.configs, [Recorded(other).winner])
            for name, first in (("adapted", adapted), ("predicted", [*adapted, *predicted])):
                reached = [list(recorded.searched(first, seed))[trials - 1] for seed in range(seeds)]
                found[name].append(exp(float(np.mean([log(min(ratio, 100.0)) for ratio in reached]))))
    return found


def told(report: Report, seeds: int) -> None:
    """Replay with models of other products."""
    tables = shipped_tables()
    counts, few = until_near(tables, seeds), after_few(tables, seeds)
    for one in tables:
        line = ", ".join(f"{name} {by_table[one.name]:.1f}" for name, by_table in counts.items())
        report.lines.append(f"{one.name:>24}  of {len(one.times)} rows, trials until within 5 %: {line}")
    for name, by_table in counts.items():
        report.figures[f"trials_{name}"] = round(float(np.mean(list(by_table.values()))), 2)
    for name, ratios in few.items():
        report.figures[f"after_6_{name}"] = round(float(np.mean(ratios)), 3)
        report.figures[f"after_6_{name}_worst"] = round(max(ratios), 3)
    report.figures["by_table"] = counts
    report.lines.append(str({name: one for name, one in report.figures.items() if name != "by_table"}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay, or record."""
    takes = parser(__doc__)
    takes.add_argument("--record", type=Path, metavar="FILE", help="add measured rows to this file instead")
    takes.add_argument("--minutes", type=float, default=30, help="for --record")
    takes.add_argument("--seed", type=int, default=0, help="for --record: which configs")
    takes.add_argument("--only", action="append", choices=list(PAYLOADS), help="for --record: this payload alone")
    given = takes.parse_args(arguments)
    if given.record:
        record(given.record, given.minutes, given.seed, given.only or ())
        return 0
    report = Report()
    told(report, 5 if given.quick else 20)
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
