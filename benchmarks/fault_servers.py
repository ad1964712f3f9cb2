"""Faults of servers and of the network to them, while processes launch."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import log2
from typing import Any

import fault_children as children
from fault_parts import FORKS, HANG, SLACK, Crew, Tally, Yard, ended
from fault_places import Network

from tunewright import Config
from tunewright.errors import StoreError
from tunewright.stores import locations
from tunewright.stores.mirror import MirrorStore
from tunewright.stores.postgres.location import SECONDS as POSTGRES_SECONDS
from tunewright.stores.redis import TIMEOUT_SECONDS as REDIS_SECONDS
from tunewright.stores.sqlite import SqliteStore

STATED = POSTGRES_SECONDS + REDIS_SECONDS
"""Seconds after which a launch goes on, both servers being away."""

SLOW = 0.9
"""Seconds from which a launch was held up by a server: less than any time-out, more than catching up may take."""

LAUNCHERS = 3
KILLS = ("redis killed", "postgres killed", "both killed")
FREEZES = ("redis frozen", "postgres frozen", "both frozen")


class Outages:
    """Processes that launch, and servers that go away and come back."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.location = f"{yard.redis.location} {yard.postgres.location}"
        self.folder = yard.fresh("outages")
        # Two processes of one machine share a mirror; the third is on another.
        self.caches = [self.folder / f"cache{min(number, 1)}" for number in range(LAUNCHERS)]
        self.logs = [self.folder / f"log{number}" for number in range(LAUNCHERS)]
        self._checked = [0] * LAUNCHERS

    def run(self, ways: list[str], tally: Tally) -> None:
        """One outage after the other; then all that was acknowledged is there."""
        truth = locations.open_single(self.yard.postgres.location)
        for number in range(children.KNOWN):
            truth.put(children.known(number))
        with Crew() as crew:
            over = FORKS.Event()
            members = [
                crew.start(children.launcher, self.location, self.caches[number], self.logs[number], number, over)
                for number in range(LAUNCHERS)
            ]
            self._wait(lambda: all(log.exists() for log in self.logs), HANG)
            time.sleep(1.0)
            for way in ways:
                began = time.monotonic()
                wrong, away = self._outage(way, crew)
                wrong += [] if self._all_there() else ["what was acknowledged is not sent on"]
                wrong += [f"launcher {i} ended" for i, member in enumerate(members) if member.exitcode is not None]
                held, worst = self._held_up(began, away)
                tally.note(way, wrong + held, worst)
            over.set()
            wrong = [said for member in members for said in ended(member, time.monotonic() + HANG)]
        for cache in set(self.caches):
            MirrorStore(truth, SqliteStore(locations.mirror_path(self.location, cache))).send_pending()
        wrong += [] if self._all_there(whole=True) else ["what was acknowledged is lost"]
        if wrong:
            tally.wrong += wrong
            tally.survived = min(tally.survived, tally.injected - 1)

    def _outage(self, way: str, crew: Crew) -> tuple[list[str], float]:
        """Take servers away, start a process meanwhile, bring them back; what went wrong, how long they were away."""
        rng, network = self.yard.rng, self.yard.network
        hit = [
            s for n, s in (("redis", self.yard.redis), ("postgres", self.yard.postgres)) if n in way or "both" in way
        ]
        began = time.monotonic()
        if way in Network.WAYS:
            assert network is not None
            network.cut(way)
        for server in hit:
            server.kill() if "killed" in way else server.freeze()
        log = self.folder / f"starter{next(self.yard.numbers)}"
        try:
            starter = crew.start(children.starter, self.location, rng.choice(self.caches), log)
            time.sleep(rng.uniform(0.5, 2.0) if "killed" in way else rng.uniform(3.0, 4.0))
            wrong = ended(starter, began + STATED + SLACK)
        finally:
            if way in Network.WAYS and network is not None:
                network.cut(way, mend=True)
            for server in hit:
                if "killed" in way:
                    with self.yard.within():
                        server.start()
                else:
                    server.thaw()
        for _, mistakes, seconds in children.noted(log):
            wrong += [] if mistakes == "0" else [f"{mistakes} wrong answers to a process that starts"]
            wrong += [] if float(seconds) < STATED + SLACK else [f"a process starts after {float(seconds):.1f} s"]
        return wrong, time.monotonic() - began

    def _held_up(self, since: float, away: float) -> tuple[list[str], float]:
        """What is wrong with the launches since then, and the longest that one was held up."""
        wrong, worst = [], 0.0
        # Each probe of a server that is away takes its time-out, and comes after twice the pause of the one before.
        probes = 2 * (2 + log2(1 + away))
        for log in self.logs:
            launches = [line for line in children.noted(log) if len(line) == 5 and float(line[4]) >= since]
            held = [float(line[3]) for line in launches]
            worst = max(worst, *held, 0.0)
            wrong += ["a launch got another's config"] if any(line[1] == "WRONG" for line in launches) else []
            wrong += ["no launch at all"] if not held else []
            if (slow := sum(seconds > SLOW for seconds in held)) > probes:
                wrong.append(f"{slow} launches were held up in {away:.1f} s, where {probes:.0f} probes are due")
        if worst > STATED + SLACK:
            wrong.append(f"a launch was held up for {worst:.1f} s")
        return wrong, worst

    def _all_there(self, *, whole: bool = False) -> bool:
        """Whether all that is acknowledged by now comes to be on the PostgreSQL server, in time."""
        owed: dict[Any, Config] = {}
        for number, log in enumerate(self.logs):
            puts = [line for line in children.noted(log) if line[0] == "put" and len(line) == 5]
            fresh = puts if whole else puts[self._checked[number] :]
            self._checked[number] = len(puts)
            owed |= {children.key_of("launcher", n, t): Config(writer=int(n), turn=int(t)) for _, n, t, *_ in fresh}

        def there() -> bool:
            try:
                found = locations.open_single(self.yard.postgres.location).get_many(list(owed))
            except StoreError:
                return False
            return all(key in found and found[key].config == config for key, config in owed.items())

        # What a machine owes goes with its next write after the pause of the breaker, which is twice the one before.
        return self._wait(there, HANG)

    @staticmethod
    def _wait(holds: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not (held := holds()) and time.monotonic() < until:
            time.sleep(0.05)
        return held


def killed(yard: Yard, tally: Tally) -> None:
    """Servers are killed and started again."""
    ways = ["redis killed", "postgres killed"] if yard.quick else [*KILLS] * 3
    Outages(yard).run(ways, tally)


def cut(yard: Yard, tally: Tally) -> None:
    """Servers cannot be reached, or do not answer."""
    ways = [yard.rng.choice(Network.WAYS), "both frozen"] if yard.quick else [*Network.WAYS, *FREEZES]
    Outages(yard).run([way for way in ways if yard.network is not None or way in FREEZES], tally)
