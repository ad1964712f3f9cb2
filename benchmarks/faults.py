"""Faults, with real processes: nothing acknowledged is lost, nothing wrong is believed, nothing hangs.

    python benchmarks/faults.py [--quick] [--json] [--only leaders] [--seed 7]

- writers: processes that put and record are killed at random moments, on SQLite and PostgreSQL.
- leaders: of four processes that miss one key, the one that tunes is killed, on SQLite, PostgreSQL and Redis.
- servers: Redis, before PostgreSQL as a cache, and PostgreSQL are killed and started again while processes launch.
- network: the cable to both is cut, its packets are dropped, or they are frozen, while processes launch.
- disks: a disk of 1 MB is full, under a SQLite store and under the mirror of a server.
- homes: the home is read-only, empty or with a store in it, in the modes `frozen` and `tune`.
- clocks: the clock on the wall jumps, by an hour or by years, ahead or back.
- files: a SQLite file is cut short, or bits or pages of it are changed; it is used as a store and as a mirror.

For each: how many faults were injected, how many were survived, and the worst seconds that a process was held up: by a
write, a take-over, a launch. A fault is survived if all that was acknowledged is there, all that is answered is right,
and no one was held up for longer than is stated: the time-outs of the servers, for a leader the lease and its search,
and in each case some seconds for a busy machine.

Must be root, for mounts and network namespaces; where these are not permitted, that is said, and what needs them is
left out: servers are then frozen only. Needs the extras `redis` and `postgres`, the servers themselves, and cc.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fault_children as children
import fault_servers
from fault_parts import HANG, SLACK, Crew, Tally, Yard, ended, kill, yard
from fault_places import Clock, disk, set_writable
from figures import Goal, Report, parser

from tunewright.stores import locations as places
from tunewright.stores import serialization
from tunewright.stores.postgres.location import SECONDS as POSTGRES_SECONDS
from tunewright.stores.singleflight import LEASE
from tunewright.stores.sqlite import SqliteStore

TUNERS = 4
SEARCH = 1.0
"""Seconds that a search of twelve trials sleeps."""

PATIENT = 20.0
"""Seconds that a tuner waits for a server: here leaders die, not servers, and two dozen processes share few cores."""

YEAR = 365 * 86_400
JUMPS = (3600, -YEAR, -3600, 10 * YEAR, 5, -10 * YEAR, -5, YEAR)

PROGRAM = """
import numpy as np, tunewright as tw

@tw.tune(tw.Space(tw.Knob("step", [1, 2, 3])))
def triple(x: tw.In("N"), *, step: int):
    return 3 * x

print(triple(np.ones(3)).sum(), triple(np.ones(3)).sum())
"""


def engine_of(location: str) -> str:
    """The store at a location, in a word."""
    return location.partition(":")[0] if "//" in location else "sqlite"


def writers(yard: Yard, tally: Tally) -> None:
    """Processes that write are killed."""
    for location in (str(yard.fresh("writers") / "store.sqlite"), yard.postgres.location):
        agreed: dict[str, str] = {}
        places.open_single(location).put(children.known(0))
        for _ in range(yard.times(4, 25)):
            logs = [yard.folder / f"writer{next(yard.numbers)}" for _ in range(4)]
            with Crew() as crew:
                members = [crew.start(children.writer, location, log, int(log.name[6:]), 1000) for log in logs]
                while not all(log.exists() for log in logs):
                    time.sleep(0.01)
                for member in members:
                    time.sleep(yard.rng.uniform(0.0, 0.15))
                    kill(member)
            store = places.open_single(location)
            for log in logs:
                wrong, worst = _written(store, log, agreed)
                tally.note(f"a writer to {engine_of(location)}", wrong, worst)
        found: Any = places.open_single(location)
        if faults := list(found.faults()):
            tally.note("writers", faults)


def _written(store: Any, log: Path, agreed: dict[str, str]) -> tuple[list[str], float]:
    """What is wrong with what a writer left, and the longest that it waited for a write."""
    wrong, worst = [], 0.0
    number = log.name[6:]
    trials = [trial.config["turn"] for trial in store.trials(children.key_of("writer", number))]
    if any(trials.count(turn) != children.BATCH for turn in set(trials)):
        wrong.append("a batch of trials is kept in part")
    lines = [line for line in children.noted(log) if len(line) == 4]
    puts = {turn: children.key_of("writer", number, turn) for verb, _, turn, _ in lines if verb == "put"}
    found = store.get_many(list(puts.values()))
    for verb, first, second, seconds in lines:
        worst = max(worst, float(seconds))
        if verb == "trials" and int(second) not in trials:
            wrong.append("acknowledged trials are lost")
        if verb == "put" and (puts[second] not in found or found[puts[second]].config["turn"] != int(second)):
            wrong.append("an acknowledged decision is lost")
        if verb == "agreed" and agreed.setdefault(first, second) != second:
            wrong.append("two believe in different first decisions")
    if worst > POSTGRES_SECONDS + SLACK:
        wrong.append(f"a write took {worst:.1f} s")
    return wrong, worst


def leaders(yard: Yard, tally: Tally) -> None:
    """The process that tunes is killed; one other takes over."""
    for _ in range(yard.times(1, 3)):
        rounds = [
            (location, f"led {next(yard.numbers)}")
            for location in (
                str(yard.fresh("leaders") / "store.sqlite"),
                f"{yard.postgres.location}?tunewright_timeout={PATIENT}",
                f"{yard.redis.location}?socket_timeout={PATIENT}&socket_connect_timeout={PATIENT}",
            )
            for _ in range(yard.times(2, 4))
        ]
        with Crew() as crew:
            _lead(yard, tally, crew, rounds)


def _lead(yard: Yard, tally: Tally, crew: Crew, rounds: Sequence[tuple[str, str]]) -> None:
    teams = []
    for number, (location, name) in enumerate(rounds):
        folder = yard.fresh("team")
        # As processes of one machine, and as machines: with one mirror, or with one each.
        caches = [folder / ("cache" if number % 2 else f"cache{i}") for i in range(TUNERS)]
        members = [
            crew.start(children.tuner, location, caches[i], folder / "log", name, next(yard.numbers))
            for i in range(TUNERS)
        ]
        teams.append((location, name, folder / "log", {member.pid: member for member in members}))
    killed: dict[str, tuple[int, float]] = {}
    moments = {name: yard.rng.uniform(0.0, 0.8 * SEARCH) for _, name in rounds}
    seen: dict[str, float] = {}
    until = time.monotonic() + HANG
    while len(killed) < len(teams) and time.monotonic() < until:
        for _, name, log, members in teams:
            leader = next((int(words[1]) for words in children.noted(log) if words[0] == "leads"), None)
            if leader is None or name in killed:
                continue
            if time.monotonic() >= seen.setdefault(name, time.monotonic()) + moments[name]:
                kill(members[leader])
                killed[name] = leader, time.monotonic()
        time.sleep(0.01)
    for location, name, log, members in teams:
        leader, moment = killed.get(name, (0, time.monotonic()))
        wrong, worst = _led(location, name, log, members, (leader, moment))
        if leader and ended(members[leader], moment + SLACK) == []:
            continue  # it had ended before
        wrong += [] if leader else ["nobody led"]
        tally.note(f"a leader on {engine_of(location)}", wrong, worst)


def _led(
    location: str, name: str, log: Path, members: dict[int | None, Any], killed: tuple[int, float]
) -> tuple[list[str], float]:
    """What is wrong with what a team ended with, and how long after the kill its last member did."""
    leader, moment = killed
    bound = LEASE + SEARCH + PATIENT + SLACK
    survivors = [member for pid, member in members.items() if pid != leader]
    wrong = [said for member in survivors for said in ended(member, moment + bound)]
    lines = [words for words in children.noted(log) if words[0] == "ends"]
    numbers = {pid: number for _, pid, number in (w for w in children.noted(log) if w[0] == "asks")}
    finished = str(numbers.get(str(leader))) in {words[1] for words in lines}
    searches = sum(int(words[2]) for words in lines)
    if searches != 1:
        # One that is killed between its decision and its log has published for all.
        published = children.key_of(name)
        if not (searches == 0 and places.open_single(location).get(published) is not None):
            wrong.append(f"{searches} searches were made to the end")
    if len({words[4] for words in lines}) != 1:
        wrong.append("not all have the same bytes")
    if len(lines) != len(survivors) + finished:
        wrong.append(f"{len(lines)} of {len(survivors)} ended")
    stands = places.open_single(location).get(children.key_of(name))
    if stands is None or serialization.dump_decision(stands).hex() not in {words[4] for words in lines}:
        wrong.append("what stands is not what they believe")
    return wrong, max((float(words[3]) for words in lines), default=moment) - moment


def disks(yard: Yard, tally: Tally) -> None:
    """A disk is full."""
    for number in range(yard.times(4, 24)):
        folder = yard.folder / f"disk{next(yard.numbers)}"
        log = yard.folder / f"filler{next(yard.numbers)}"
        with disk(folder, "1m"), Crew() as crew:
            (folder / "ballast").write_bytes(bytes(yard.rng.randrange(100_000, 900_000)))
            location = yard.redis.location if number % 4 == 3 else str(folder / "store.sqlite")
            member = crew.start(children.filler, location, folder, log, next(yard.numbers))
            wrong = ended(member, time.monotonic() + HANG)
        worst = 0.0
        for _, kept, refused, seconds, *said in children.noted(log):
            worst = float(seconds)
            wrong += json.loads(" ".join(said))
            if location.startswith("redis"):
                wrong += [] if refused == "0" else ["a full disk here keeps a server from being written to"]
            elif refused == "0":
                wrong.append(f"the disk was not full after {kept} decisions")
        tally.note("a full disk", wrong, worst)


def homes(yard: Yard, tally: Tally) -> None:
    """A home is read-only."""
    cases = [
        (kept, mode, pool, location)
        for location in ("", yard.postgres.location)
        for kept in (False, True)
        for mode in ("frozen", "tune")
        for pool in ("serial", "process")
    ]
    for kept, mode, pool, location in cases[:: yard.times(5, 1)]:
        folder = yard.folder / f"home{next(yard.numbers)}"
        with disk(folder, "4m"):
            cache = folder / "cache"
            environ = os.environ | {"HOME": str(folder), "TUNEWRIGHT_CACHE": str(cache), "TUNEWRIGHT_MODE": "tune"}
            environ |= {"TUNEWRIGHT_POOL": pool, "TUNEWRIGHT_STORE": location}
            program = folder / "program.py"
            program.write_text(PROGRAM)
            if kept:
                subprocess.run([sys.executable, program], env=environ, check=True, capture_output=True)
            set_writable(folder, writable=False)
            began = time.monotonic()
            environ["TUNEWRIGHT_MODE"] = mode
            done = subprocess.run(
                [sys.executable, program], env=environ, capture_output=True, text=True, timeout=HANG, check=False
            )
            said = [line for line in done.stderr.splitlines() if "The default is used" not in line]
            wrong = [] if (done.returncode, done.stdout) == (0, "9.0 9.0\n") else [f"it ended with {said[-1:]}"]
            wrong += [] if len(said) <= 1 else [f"{len(said)} lines are said: {said}"]
            wrong += ["what is stored there is not read"] if kept and "The default is used" in done.stderr else []
            tally.note(f"a read-only home, {mode}", wrong, time.monotonic() - began)


def clocks(yard: Yard, tally: Tally) -> None:
    """The clock jumps."""
    folder = yard.fresh("clock")
    locations = (str(folder / "store.sqlite"), yard.postgres.location, yard.redis.location)
    for start in range(0, yard.times(2, len(JUMPS)), 2):
        running = []
        for location in locations:
            for jump in JUMPS[start : start + 2]:
                own = Clock(yard.fresh("clock"))
                command = (sys.executable, children.__file__, location, own.file, str(jump))
                started = subprocess.Popen(command, env=os.environ | own.environment, stdout=subprocess.PIPE, text=True)
                running.append((location, jump, started, time.monotonic()))
        for location, jump, process, began in running:
            try:
                said, _ = process.communicate(timeout=HANG)
                wrong = json.loads(said) if process.returncode == 0 else [f"it ended with {process.returncode}"]
            except subprocess.TimeoutExpired:
                process.kill()
                wrong = ["it hangs"]
            tally.note(f"a jump by {jump} s on {engine_of(location)}", wrong, time.monotonic() - began)


def files(yard: Yard, tally: Tally) -> None:
    """Files are damaged."""
    folder = yard.fresh("files")
    whole = folder / "whole.sqlite"
    store = SqliteStore(whole)
    children.fill(store)
    log, paths = folder / "log", list[Path]()
    for number in range(yard.times(30, 200)):
        path = folder / f"{number}.sqlite"
        shutil.copy(whole, path)
        wal = path.with_name(f"{path.name}-wal")
        if number % 3:
            shutil.copy(f"{whole}-wal", wal)  # with it all is there; without it, what was written into the file itself
        damage(yard.rng, wal if number % 3 == 1 else path)
        paths.append(path)
    while paths:
        some = paths[:25]
        with Crew() as crew:
            ending = ended(crew.start(children.reader, some, log), time.monotonic() + HANG)
        read = {words[1]: words for words in children.noted(log) if words[0] == "ends"}
        for path in some:
            paths.remove(path)
            if path.name not in read:  # the process hung or died here; another goes on with the rest
                tally.note(f"damage to {path.name}", ending or ["it is passed over"])
                break
            _, _, seconds, *said = read[path.name]
            tally.note(f"damage to {path.name}", json.loads(" ".join(said)), float(seconds))


def damage(rng: random.Random, path: Path) -> None:
    """Cut a file short, flip bits of it, or change a page of it."""
    body = bytearray(path.read_bytes())
    kind = rng.randrange(3)
    if kind == 0:
        del body[rng.randrange(len(body)) :]
    elif kind == 1:
        for _ in range(rng.choice((1, 10, 100))):
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    else:
        page = 4096 * rng.randrange(max(1, len(body) // 4096))
        body[page : page + 4096] = rng.choice((bytes(4096), rng.randbytes(4096), body[:4096]))
    path.write_bytes(body)


FAULTS: dict[str, Callable[[Yard, Tally], None]] = {
    "writers": writers,
    "leaders": leaders,
    "servers": fault_servers.killed,
    "network": fault_servers.cut,
    "disks": disks,
    "homes": homes,
    "clocks": clocks,
    "files": files,
}
NEED_MOUNTS = ("disks", "homes")
GOALS = tuple(Goal(f"{kind}.lost", "==", 0) for kind in (*FAULTS, "total"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Inject, count, report."""
    options = parser(__doc__)
    options.add_argument("--only", choices=FAULTS, action="append", help="leave the others out")
    options.add_argument("--seed", type=int, default=7, help="what chance does")
    given = options.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is taken down
    report, total = Report(), Tally()
    with yard(given.seed, quick=given.quick) as ours:
        for kind in given.only or FAULTS:
            tally, began = Tally(), time.monotonic()
            if kind in NEED_MOUNTS and not ours.mounts:
                report.lines.append(f"{kind:<8} left out: no mounts are permitted here")
                continue
            FAULTS[kind](ours, tally)
            note(report, kind, tally, time.monotonic() - began)
            total.injected, total.survived = total.injected + tally.injected, total.survived + tally.survived
            total.worst = max(total.worst, tally.worst)
            report.wrong += [f"{kind}: {said}" for said in tally.wrong]
    note(report, "total", total, 0.0)
    return report.finish(GOALS, as_json=given.json)


def note(report: Report, kind: str, tally: Tally, took: float) -> None:
    """Add the counts of a kind."""
    report.figures[kind] = tally.plain() | {"lost": tally.injected - tally.survived}
    report.lines.append(
        f"{kind:<8} {tally.injected:>4} injected, {tally.survived:>4} survived, worst {tally.worst:.2f} s"
        + (f"  ({took:.0f} s)" if took else "")
    )


if __name__ == "__main__":
    sys.exit(main())
