"""A storm: many clients of one service, while what stands behind it and the service itself are killed.

    python benchmarks/service_storm.py [--quick] [--json] [--minutes 10] [--clients 64] [--seed 7]

The service stands before Redis, a cache, and PostgreSQL, the record of truth. Clients read, publish and replace; each
decision says in its config who made it and in which turn, and a client replaces only its own keys, so that it is known
what may stand: the last publication of its that was acknowledged, or a later one that was not. Meanwhile Redis and
PostgreSQL are killed and started again in turn, and the service is restarted five times: three times told to end
(SIGTERM), twice killed.

- lost: acknowledged publications that are not there in the end, read from PostgreSQL itself.
- wrong: answers that nobody published for that key, that are older than what was acknowledged to the reader before the
  question, or a miss where something stands.
- error_rate: requests that were turned away or cut; recovery_seconds: from the moment that a server is back until the
  first request that needs it is answered; memory: of the service at its first and its last look, in MB.

Needs the extras `service`, `redis` and `postgres`, and the servers themselves.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from figures import Goal, Report, parser

from tunewright.errors import StoreError
from tunewright.service.tokens import Scope, TokenStore
from tunewright.spaces.config import Config
from tunewright.stores import locations
from tunewright.stores.http import HttpStore
from tunewright.testing import servers
from tunewright.testing.keys import other_decision, other_key

GOALS = (Goal("lost", "==", 0), Goal("wrong", "==", 0), Goal("memory_growth", "<=", 1.5))
KEYS = 20
"""Keys of each client."""


@dataclass
class Client:
    """One who reads and publishes, and what it knows of its own keys."""

    number: int
    store: HttpStore
    luck: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    tried: dict[int, int] = field(default_factory=dict)
    answered: float = 0.0

    def key(self, slot: int) -> Any:
        return other_key(kernel=f"storm {self.number}", mode={"slot": str(slot)})

    def publish(self, slot: int) -> None:
        turn = self.tried.get(slot, 0) + 1
        self.tried[slot] = turn
        self.store.put(other_decision(key=self.key(slot), config=Config(who=self.number, turn=turn)))
        self.acknowledged[slot] = turn

    def read(self, slots: list[int]) -> None:
        known = {slot: self.acknowledged.get(slot, 0) for slot in slots}
        found = self.store.get_many([self.key(slot) for slot in slots])
        for slot, least in known.items():
            decision = found.get(self.key(slot))
            if decision is None:
                if least:
                    self.wrong.append(f"client {self.number}: {slot} is a miss, turn {least} was acknowledged")
                continue
            self.judge(slot, decision.config, least)

    def judge(self, slot: int, config: Config, least: int) -> None:
        who, turn = config["who"], config["turn"]
        if who != self.number or not least <= turn <= self.tried.get(slot, 0):
            self.wrong.append(
                f"client {self.number}: {slot} is {who}/{turn}, {least} acknowledged, {self.tried.get(slot)} tried"
            )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            verb = "publish" if self.luck.random() < 0.2 else "read"
            slots = [self.luck.randrange(KEYS) for _ in range(8)]
            try:
                self.publish(slots[0]) if verb == "publish" else self.read(slots)
            except StoreError:
                self.counts[f"{verb} failed"] += 1
                time.sleep(0.05)
            else:
                self.counts[verb] += 1
                self.answered = time.monotonic()
            time.sleep(self.luck.uniform(0.0, 0.05))


def memory(service: servers.Server) -> float:
    """Of the largest process of a service, in MB."""
    sizes = [0.0]
    for pid in service.pids:
        try:
            text = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue  # it ended meanwhile
        sizes += [int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("VmRSS:")]
    return max(sizes)


def recovered(probe: HttpStore, what: str, number: int) -> float:
    """Seconds until a request is answered that needs all of what stands behind a service."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        try:
            probe.put(other_decision(key=other_key(kernel="probe", mode={"n": str(number)}), config=Config(what=what)))
            return time.monotonic() - began
        except StoreError:
            time.sleep(0.02)
    return float("inf")


def faults(
    plan: dict[str, servers.Server], seconds: float, probe: HttpStore, luck: random.Random
) -> dict[str, list[float]]:
    """Kill and start again, until the time is over; how long each took to be of use again."""
    schedule = ["redis", "postgres", "service", "postgres", "service killed", "redis", "service", "postgres"]
    schedule += ["service killed", "redis", "service"]
    found: dict[str, list[float]] = {}
    began = time.monotonic()
    for number, what in enumerate(schedule):
        due = seconds * (number + luck.uniform(0.2, 0.8)) / len(schedule)
        time.sleep(max(0.0, began + due - time.monotonic()))
        server = plan[what.partition(" ")[0]]
        if what == "service":
            server.stop()
        else:
            server.kill()
        time.sleep(luck.uniform(0.0, 1.0))
        server.start()
        found.setdefault(what, []).append(recovered(probe, what, number))
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    return found


def lost(clients: list[Client], truth: Any) -> list[str]:
    """What was acknowledged and is not there, in the record of truth itself."""
    missing = []
    for client in clients:
        standing = {decision.key: decision for decision in truth.decisions(f"storm {client.number}")}
        for slot, turn in client.acknowledged.items():
            there = standing.get(client.key(slot))
            if there is None or not turn <= there.config["turn"] <= client.tried[slot]:
                missing.append(f"client {client.number}, {slot}: turn {turn}, there is {there and there.config}")
    return missing


def storm(given: Any, folder: Path, report: Report) -> None:
    seconds = 20.0 if given.quick else 60 * given.minutes
    count = min(given.clients, 16) if given.quick else given.clients
    with servers.postgres(folder / "postgres") as postgres, servers.redis(folder / "redis") as redis:
        truth = locations.open_single(postgres.location)
        token = TokenStore(truth).add("storm", [Scope.READ, Scope.PUBLISH], rate=0.0)[1]
        with servers.service(folder / "service", store=f"{redis.location} {postgres.location}") as service:
            location = f"{service.location.replace('://', f'://{token}@')}?tries=2&timeout=10"
            luck = random.Random(given.seed)
            clients = [Client(n, HttpStore.at(location), random.Random(luck.random())) for n in range(count)]
            stop = threading.Event()
            threads = [threading.Thread(target=client.run, args=(stop,), daemon=True) for client in clients]
            for thread in threads:
                thread.start()
            time.sleep(3)
            first = memory(service)
            plan = {"redis": redis, "postgres": postgres, "service": service}
            times = faults(plan, seconds, HttpStore.at(location), luck)
            time.sleep(3)
            last = memory(service)
            stop.set()
            for thread in threads:
                thread.join(60)
            missing = lost(clients, truth)
    told(report, clients, missing, times, (first, last))


def told(
    report: Report, clients: list[Client], missing: list[str], times: dict[str, list[float]], sizes: tuple[float, float]
) -> None:
    counts = sum((client.counts for client in clients), Counter())
    wrong = [one for client in clients for one in client.wrong]
    total = sum(counts.values())
    failed = counts["read failed"] + counts["publish failed"]
    report.figures |= {
        "clients": len(clients),
        "requests": total,
        "acknowledged": counts["publish"],
        "lost": len(missing),
        "wrong": len(wrong),
        "error_rate": round(failed / max(1, total), 4),
        "recovery_seconds": {what: [round(one, 2) for one in found] for what, found in times.items()},
        "memory_mb": [round(size, 1) for size in sizes],
        "memory_growth": round(sizes[1] / max(1.0, sizes[0]), 3),
    }
    report.check(not missing, f"acknowledged and lost: {missing[:5]}")
    report.check(not wrong, f"wrong answers: {wrong[:5]}")
    report.lines += [
        f"{len(clients)} clients, {total:,} requests, {counts['publish']:,} publications acknowledged",
        f"  lost {len(missing)}, wrong answers {len(wrong)}, turned away or cut {failed / max(1, total):.1%}",
        *(
            f"  {what:<16} of use again after {', '.join(f'{one:.2f}' for one in found)} s"
            for what, found in times.items()
        ),
        f"  memory of the service {sizes[0]:.0f} MB at first, {sizes[1]:.0f} MB at last",
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--seed", type=int, default=7)
    given = options.parse_args()
    report = Report()
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        storm(given, Path(name), report)
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
