"""Fleet: what our pool on Ray costs beyond Ray itself, and what builders apart from devices bring.

    python benchmarks/fleet.py [--quick] [--json] [--only overhead|overlap]

Ray runs for real, on simulated machines in a network namespace of their own. `overhead`: trials per second through
the pool, on one device, against bare actor calls that sleep as long and send as much, in turns; both have two entries
at the device. `overlap`: C kernels that compile for long and run for little, through one process that builds and times
in turn (`process:1`), and with builders apart (`ray:4`), in turns, each time in an empty cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import fleet_payload
import numpy as np
from figures import Goal, Report, Series, parser

from tunewright import C, Config, In, Knob, Out, Space, tune
from tunewright.cases.inputs import Inputs
from tunewright.model.trial import Trial, TrialRequest
from tunewright.pools.process import ProcessPool
from tunewright.pools.worker import IsolatedAttempt
from tunewright.ports.pool import Pool
from tunewright.stores import serialization
from tunewright.testing.ray_cluster import command, inside, raylets

HERE = Path(__file__).resolve().parent
WARM = 20
"""Trials before the clock starts: actors and workers begin, and builders that are of no use are let go."""

GOALS = [
    Goal("overhead_ratio_10ms", ">=", 0.8),
    Goal("overhead_ratio_100ms", ">=", 0.95),
    Goal("overlap_gain", ">=", 1.6),
]


@tune(
    Space(Knob("STEP", [1, 2, 3, 4]), Knob("VARIANT", range(10_000))),
    backend=C(HERE / "kernels" / "heavy.c", flags="-O3"),
    default={"STEP": 1, "VARIANT": 0},
)
def heavy(x: In("N"), y: Out(1)): ...  # type: ignore[valid-type]


def rate(trials: Iterable[Any], warm: int, measured: int) -> float:
    """Trials per second after the warm ones."""
    came: Iterator[Any] = iter(trials)
    for _ in islice(came, warm):
        pass
    began = time.perf_counter()
    got = sum(1 for _ in islice(came, measured))
    return got / (time.perf_counter() - began)


def entries() -> Iterator[TrialRequest]:
    return (TrialRequest(Config(step=i)) for i in count())


def ours(name: str, total: int) -> float:
    """Trials per second through the pool."""
    from tunewright.fleet.ray import RayPool

    target = f"{HERE / 'fleet_payload.py'}:{name}"
    attempt = IsolatedAttempt(None, (Inputs(),), Path(tempfile.gettempdir()), target)  # type: ignore[arg-type]
    run = RayPool(2).run(attempt, islice(entries(), total + WARM))
    return rate(run, WARM, total)


def bare(name: str, total: int) -> float:
    """Calls per second of one actor, two at a time; what goes and comes is as large."""
    import ray

    seconds = getattr(fleet_payload, name).seconds

    @ray.remote(num_cpus=0)
    class Bare:
        def attempt(self, body: bytes) -> bytes:
            return serialization.encode(fleet_payload.answer(serialization.decode(body, TrialRequest), seconds))

    actor: Any = Bare.remote()

    def answers() -> Iterator[Trial]:
        flying: list[Any] = []
        for entry in islice(entries(), total + WARM):
            flying.append(actor.attempt.remote(serialization.encode(entry)))
            if len(flying) < 2:
                continue
            (done,), flying = ray.wait(flying, num_returns=1)
            yield serialization.decode(ray.get(done), Trial)
        yield from (serialization.decode(ray.get(one), Trial) for one in flying)

    try:
        return rate(answers(), WARM, total)
    finally:
        ray.kill(actor)


def overhead(report: Report, quick: bool) -> None:
    """The pool against bare calls, in turns."""
    for name, label, total in (("ten", "10ms", 60 if quick else 500), ("hundred", "100ms", 12 if quick else 80)):
        pairs = [(ours(name, total), bare(name, total)) for _ in range(1 if quick else 7)]
        mine, theirs = Series(a for a, _ in pairs), Series(b for _, b in pairs)
        ratio = Series(a / b for a, b in pairs)
        report.figures[f"overhead_ratio_{label}"] = round(ratio.median, 3)
        report.figures[f"overhead_{label}"] = {"ours": mine.plain(), "bare": theirs.plain(), "ratio": ratio.plain()}
        report.lines.append(
            f"{label:>6} payload: ours {mine.text('trials/s', 1)}, bare Ray {theirs.text('calls/s', 1)}, "
            f"ratio {ratio.text('x', 3)}"
        )


def compiled(make: Callable[[], Pool], first: int, total: int) -> tuple[float, bool]:
    """Trials per second of configs that nobody has compiled, and whether all worked."""
    with tempfile.TemporaryDirectory() as cache:
        recipe = Inputs.like(heavy.parameters, [np.ones(256), np.empty(1)], {"N": 256})
        attempt = IsolatedAttempt(None, (recipe,), Path(cache), f"{HERE / 'fleet.py'}:heavy")  # type: ignore[arg-type]
        # More than are counted: both are measured while they are in full swing.
        configs = [Config(STEP=1 + i % 4, VARIANT=first + i) for i in range(total + 16)]
        trials: list[Trial] = []

        def kept() -> Iterator[Trial]:
            for trial in make().run(attempt, map(TrialRequest, configs)):
                trials.append(trial)
                yield trial

        run = kept()
        found = rate(run, 6, total)
        run.close()
        return found, all(trial.works for trial in trials)


def ceiling(total: int) -> float:
    """How much more two compilers do side by side than one alone, here and now: no pool can gain more."""
    line = "for i in $(seq {count}); do cc -O3 -DN=256 -DSTEP=1 -DVARIANT=$i -c {source} -o /dev/null; done"
    script = line.format(count=total, source=HERE / "kernels" / "heavy.c")
    spent = []
    for workers in (1, 2):
        began = time.perf_counter()
        running = [subprocess.Popen(["sh", "-c", script]) for _ in range(workers)]
        for one in running:
            one.wait()
        spent.append((time.perf_counter() - began) / workers)
    return spent[0] / spent[1]


def overlap(report: Report, quick: bool) -> None:
    """Builders apart against one process that does both in turn."""
    from tunewright.fleet.ray import RayPool

    total, pairs, ceilings = 8 if quick else 40, [], []
    for number in range(1 if quick else 5):
        first = number * 1000
        turn, right = compiled(lambda: ProcessPool(1), first, total)
        apart, also = compiled(lambda: RayPool(4), first, total)
        report.check(right and also, "a kernel that was compiled did not work")
        pairs.append((apart, turn))
        ceilings.append(ceiling(6))
    gain = Series(a / b for a, b in pairs)
    apart_, turn_ = Series(a for a, _ in pairs), Series(b for _, b in pairs)
    report.figures["overlap_gain"] = round(gain.median, 3)
    report.figures["overlap"] = {"apart": apart_.plain(), "in_turn": turn_.plain(), "gain": gain.plain()}
    report.lines.append(
        f"compile-heavy C: in turn {turn_.text('trials/s', 2)}, builders apart {apart_.text('trials/s', 2)}, "
        f"gain {gain.text('x', 2)}; two bare compilers at once do {Series(ceilings).text('x', 2)} of one"
    )
    report.figures["ceiling"] = Series(ceilings).plain()


def main() -> int:
    """Run in a namespace, measure, and say."""
    takes = parser(__doc__)
    takes.add_argument("--only", choices=["overhead", "overlap"])
    given = takes.parse_args()
    if not inside():
        argv, environ = command([sys.executable, *sys.argv])
        return subprocess.run(argv, env=environ, check=False).returncode
    report = Report()
    with raylets(processors=2):
        for part in (overhead, overlap):
            if given.only in (None, part.__name__):
                part(report, given.quick)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    raise SystemExit(main())
