"""Storm: a campaign on simulated machines while workers, captains, machines, links and drivers are killed.

    python benchmarks/fleet_storm.py [--quick] [--json] [--faults 200]

Everything is real but the machines: four raylets with a home of their own. Faults come at random: a worker killed, a
captain killed, a raylet stopped for some seconds (a cut link), a machine lost and another put in its place, the driver
killed and the campaign resumed. Two configs of every item crash and hang by themselves. At the end: is every trial that
was ever acknowledged still there, was one made twice, did two processes ever run on one device at once?
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from figures import Goal, Report, parser

from tunewright.stores import locations
from tunewright.testing.ray_cluster import Raylets, command, inside, raylets

HERE = Path(__file__).resolve().parent
MACHINES = 4
KINDS = {"worker": 52, "captain": 30, "link": 8, "machine": 4, "driver": 6}
"""Of a hundred faults, how many are of each kind; hangs and crashes of configs come on top."""

GOALS = [
    Goal("faults", ">=", 200),
    Goal("trials", ">=", 500),
    Goal("lost", "==", 0),
    Goal("doubled", "==", 0),
    Goal("overlaps", "==", 0),
    Goal("finished", "==", True),
]


def ours(sign: str) -> list[int]:
    """Processes in this network namespace whose command line has `sign` in it: never those of a neighbour."""
    mine, found = os.readlink("/proc/self/ns/net"), []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            here = os.readlink(folder / "ns" / "net") == mine
            if here and sign in (folder / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


class Storm:
    """A campaign, its driver as a process, and faults."""

    def __init__(self, folder: Path, machines: Raylets, seed: int, items: int) -> None:
        self.folder, self.machines, self.random = folder, machines, random.Random(seed)
        self.trials = 60 * items
        self.homes: list[Path] = []
        self.nodes: list[Any] = []
        self.counts: Counter[str] = Counter()
        self.stopped: list[tuple[float, int]] = []
        self.acknowledged: set[Any] = set()
        self.driver: subprocess.Popen[bytes] | None = None
        self.store = locations.open_authoritative(str(folder / "store.sqlite"))
        self.file = folder / "campaign.toml"
        shutil.copy(HERE / "storm_kernel.py", folder)
        self.file.write_text(
            'name = "storm"\nbudget = "10000"\nportion = 15\nworth = 0.0\ndevices = ["sim"]\n'
            '[[kernels]]\ntarget = "storm_kernel.py:stormy"\n'
            f"shapes = {[f'N={10 + i}' for i in range(items)]}\n"
            f'[settings]\nstore = "{folder / "store.sqlite"}"\npool = "process:1"\nstrategy = "random"\n'
            "run_seconds = 2.0\n"
        )
        for _ in range(MACHINES):
            self.add()

    def add(self) -> None:
        home = self.folder / f"home{len(self.homes)}"
        self.homes.append(home)
        self.nodes.append(self.machines.add("sim", home))

    def drive(self) -> None:
        """Let the campaign run, or run on, in a process of its own."""
        verb = "resume" if self.counts["driver"] and self.journal() else "run"
        log = (self.folder / "driver.log").open("ab")
        environ = {**os.environ, "RAY_ADDRESS": self.machines.cluster.address}
        argv = [sys.executable, "-m", "tunewright", "fleet", verb, str(self.file)]
        self.driver = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)

    def journal(self) -> list[Any]:
        """Every trial in the store, by key and config."""
        return [(key.digest, trial.config) for key in list(self.store.keys()) for trial in self.store.trials(key)]

    def strike(self) -> None:
        """One fault."""
        kind = self.random.choices(list(KINDS), weights=list(KINDS.values()))[0]
        if getattr(self, f"_{kind}")():
            self.counts[kind] += 1

    def _kill(self, sign: str) -> bool:
        found = ours(sign)
        if found:
            try:
                os.kill(self.random.choice(found), signal.SIGKILL)
            except ProcessLookupError:
                return False
        return bool(found)

    def _worker(self) -> bool:
        return self._kill("tunewright.pools.worker_main")

    def _captain(self) -> bool:
        return self._kill("ray::DeviceActor")

    def _link(self) -> bool:
        node = self.random.choice(self.nodes)
        pid = node.all_processes["raylet"][0].process.pid
        if any(one == pid for _, one in self.stopped):
            return False
        os.kill(pid, signal.SIGSTOP)
        self.stopped.append((time.monotonic() + self.random.uniform(1, 5), pid))
        return True

    def _machine(self) -> bool:
        node = self.nodes.pop(self.random.randrange(len(self.nodes)))
        pid = node.all_processes["raylet"][0].process.pid
        self.stopped = [(until, one) for until, one in self.stopped if one != pid]
        self.machines.remove(node)
        self.add()
        return True

    def _driver(self) -> bool:
        if self.driver is None or self.driver.poll() is not None:
            return False
        self.acknowledged |= set(self.journal())
        self.driver.kill()
        self.driver.wait()
        self.drive()
        return True

    def mend(self) -> None:
        """Let links that were cut long enough work again."""
        for until, pid in list(self.stopped):
            if time.monotonic() > until:
                self.stopped.remove((until, pid))
                os.kill(pid, signal.SIGCONT)

    def run(self, faults: int, most: float) -> bool:
        """Faults, until there were enough and the campaign is through; whether it came to its end."""
        self.drive()
        until, next_fault = time.monotonic() + most, time.monotonic() + 15
        while time.monotonic() < until:
            time.sleep(0.2)
            self.mend()
            struck = sum(self.counts.values())
            if struck < faults and time.monotonic() > next_fault:
                self.strike()
                next_fault = time.monotonic() + self.random.uniform(0.2, 1.2)
            assert self.driver is not None
            if self.driver.poll() is not None:
                self.acknowledged |= set(self.journal())
                if self.driver.returncode == 0 and self._is_done():
                    return True
                self.drive()
        return False

    def _is_done(self) -> bool:
        return len(set(self.journal())) >= self.trials

    def overlaps(self) -> tuple[int, int]:
        """How often two processes ran on one simulated device at once, and how many runs there were."""
        found = runs = 0
        for home in self.homes:
            log = home / "timings.log"
            lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
            spans = sorted((float(a), float(b), pid) for a, b, pid in (line for line in lines if len(line) == 3))
            runs += len(spans)
            found += sum(two[0] < one[1] and two[2] != one[2] for one, two in pairwise(spans))
        return found, runs


def main() -> int:
    """Let it storm in a namespace, and count."""
    takes = parser(__doc__)
    takes.add_argument("--faults", type=int, default=200)
    takes.add_argument("--seed", type=int, default=0)
    takes.add_argument("--minutes", type=float, default=20.0)
    given = takes.parse_args()
    if not inside():
        argv, environ = command([sys.executable, *sys.argv])
        return subprocess.run(argv, env=environ, check=False).returncode
    faults, report = 8 if given.quick else given.faults, Report()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, raylets(processors=2) as machines:
        storm = Storm(Path(folder), machines, given.seed, items=4 if given.quick else 14)
        try:
            finished = storm.run(faults, 60 * given.minutes)
        finally:
            if storm.driver is not None:
                storm.driver.kill()
            for _, pid in storm.stopped:
                os.kill(pid, signal.SIGCONT)
        journal = storm.journal()
        overlaps, runs = storm.overlaps()
        tail = (Path(folder) / "driver.log").read_text(errors="replace")[-3000:]
    counts = Counter(journal)
    report.figures = {
        "finished": finished,
        "faults": sum(storm.counts.values()),
        "by_kind": dict(storm.counts),
        "trials": len(journal),
        "trials_there_are": storm.trials,
        "acknowledged": len(storm.acknowledged),
        "lost": len(storm.acknowledged - set(journal)),
        "doubled": sum(count - 1 for count in counts.values()),
        "runs": runs,
        "overlaps": overlaps,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    report.lines += [f"{name:>14}  {value}" for name, value in report.figures.items()]
    if not finished:
        report.lines.append(tail)
    report.check(not report.figures["lost"], "an acknowledged trial is gone")
    report.check(not report.figures["doubled"], "a trial was made twice")
    report.check(not overlaps, "two processes ran on one device at once")
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    raise SystemExit(main())
