"""What our service costs beside a bare handler: look-ups, batches and bundles, by wrk, in turn.

    python benchmarks/service.py [--quick] [--json] [--seconds 5] [--rounds 5]

Both sides are granian with one worker and Litestar. The bare handler returns bytes of the same size from a constant; it
asks for no token, counts nothing, logs nothing, adds no header. For a batch it gets the same request of 100 digests and
reads it, since no server can answer what it has not read; beside it stands one that does not (`batch_unread_ratio`).
Ours is asked with a token, and its records are warm. wrk runs with one thread and 16 connections, on each side in turn;
a ratio is our requests per second over the bare ones, the median of rounds. `cpu` are ratios of the processor time that
a request takes in the server, for a machine that is busy; 1 is level, below is dearer.

- lookup: GET of one decision. batch: POST of 100 digests. bundle: conditional GET of a bundle that did not change.
- client_ratio: get_many of 100 keys through `stores/http` against the same request by httpx alone, undecoded.

Needs the extra `service` and wrk.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from figures import Goal, Report, Series, parser

from tunewright.service.tokens import Scope, TokenStore
from tunewright.stores import serialization
from tunewright.stores.bundle import build, signing
from tunewright.stores.sqlite import SqliteStore
from tunewright.testing import servers
from tunewright.testing.keys import other_decision, other_key

GOALS = (
    Goal("lookup_ratio", ">=", 0.5),
    Goal("batch_ratio", ">=", 0.5),
    Goal("bundle_ratio", ">=", 0.8),
)
KEYS = [other_key(mode={"size": str(number)}) for number in range(100)]

BARE = """
from litestar import Litestar, Request, Response, get, post

ONE, MANY, TAG = b"x" * {one}, b"x" * {many}, '"{tag}"'

@get("/one", media_type="application/json")
async def one() -> bytes:
    return ONE

@post("/many", media_type="application/json", status_code=200)
async def many(request: Request) -> bytes:
    await request.body()
    return MANY

@post("/unread", media_type="application/json", status_code=200)
async def unread() -> bytes:
    return MANY

@get("/bundle")
async def bundle() -> Response[bytes]:
    return Response(b"", status_code=304, headers={{"etag": TAG}})

app = Litestar([one, many, unread, bundle])
"""


@dataclass(frozen=True)
class Side:
    """A server, and how wrk is to ask it."""

    url: str
    pids: Callable[[], list[int]]
    headers: tuple[str, ...] = ()
    script: Path | None = None


@dataclass(frozen=True)
class Run:
    """What wrk saw in a few seconds."""

    rate: float
    p99: float
    cpu: float


def asked(side: Side, seconds: float) -> Run:
    """One run of wrk."""
    command = ["wrk", "-t1", "-c16", f"-d{seconds:g}s", "--latency"]
    for header in side.headers:
        command += ["-H", header]
    if side.script is not None:
        command += ["-s", str(side.script)]
    before = cpu_seconds(side.pids())
    said = subprocess.run([*command, side.url], capture_output=True, text=True, check=True).stdout
    spent = cpu_seconds(side.pids()) - before
    if "Non-2xx" in said:
        raise SystemExit(f"{side.url} answers with errors: {said}")
    count = int(re.search(r"(\d+) requests in", said)[1])
    found = re.search(r"99%\s+([\d.]+)(us|ms|s)\b", said)
    p99 = float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]
    return Run(float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]), p99, spent / max(1, count))


def cpu_seconds(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / 100


@contextmanager
def bare(folder: Path, one: int, many: int, tag: str) -> Iterator[servers.Server]:
    """The handlers that do nothing."""
    (folder / "bare.py").write_text(BARE.format(one=one, many=many, tag=tag))
    port = servers._free_port()
    command = [sys.executable, "-m", "granian", "--interface", "asgi", "--no-ws", "--no-log", "--port", str(port)]
    command += ["--working-dir", str(folder), "bare:app"]
    server = servers.Server(f"http://127.0.0.1:{port}", command, folder / "bare.log", lambda _: servers._listens(port))
    with servers._running(server):
        yield server


def compared(ours: Side, theirs: Side, seconds: float, rounds: int) -> tuple[list[Run], list[Run]]:
    """Both sides in turn, the first one changing."""
    mine, others = [], []
    for number in range(rounds):
        pair = [(ours, mine), (theirs, others)]
        for side, runs in pair if number % 2 else reversed(pair):
            runs.append(asked(side, seconds))
    return mine, others


def note(report: Report, name: str, mine: list[Run], others: list[Run]) -> None:
    """Put a comparison into the report."""
    ratio = Series(a.rate / b.rate for a, b in zip(mine, others, strict=True))
    cpu = Series(b.cpu / a.cpu for a, b in zip(mine, others, strict=True) if a.cpu and b.cpu)
    rate, p99 = Series(run.rate for run in mine), Series(1e3 * run.p99 for run in mine)
    bare_p99 = Series(1e3 * run.p99 for run in others)
    report.figures[f"{name}_ratio"] = round(ratio.median, 3)
    report.figures[name] = {
        "ratio": ratio.plain(),
        "cpu_ratio": cpu.plain(),
        "requests_per_second": rate.plain(),
        "bare_requests_per_second": Series(run.rate for run in others).plain(),
        "p99_ms": p99.plain(),
        "bare_p99_ms": bare_p99.plain(),
    }
    report.lines.append(
        f"  {name:<14} {ratio.text('x', 2)}   cpu {cpu.median:.2f} x   {rate.text('/s', 0)}   "
        f"p99 {p99.median:.1f} ms, bare {bare_p99.median:.1f} ms"
    )


def client_ratio(location: str, token: str, rounds: int) -> dict[str, Any]:
    """Our client against httpx alone, for a batch of 100 keys."""
    import httpx
    import msgspec

    from tunewright.stores.http import HttpStore

    store = HttpStore.at(f"{location.replace('://', f'://{token}@')}?pack=no")
    body = msgspec.json.encode({"digests": [key.digest for key in KEYS]})
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json", "accept-encoding": "identity"}
    pairs = []
    with httpx.Client(base_url=location, headers=headers, trust_env=False) as raw:
        for _ in range(20 * rounds):
            began = time.perf_counter()
            raw.post("/v1/decisions/lookup", content=body).read()
            between = time.perf_counter()
            found = store.get_many(KEYS)
            pairs.append((time.perf_counter() - between, between - began))
            assert len(found) == len(KEYS)
    ratio = Series(bare / ours for ours, bare in pairs)
    return {"median": round(ratio.median, 3), "low": round(ratio.low, 3), "high": round(ratio.high, 3)}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=5.0, help="of each run of wrk")
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("there is no program wrk; install it, for example: apt-get install wrk")
    seconds, rounds = (1.0, 3) if given.quick else (given.seconds, given.rounds)
    report = Report()
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = SqliteStore(folder / "store.sqlite")
        for key in KEYS:
            store.put(other_decision(key=key))
        token = TokenStore(store).add("benchmark", [Scope.READ, Scope.SIGN], rate=0.0)[1]
        digests = [key.digest for key in KEYS]
        asking = '{"digests":["' + '","'.join(digests) + '"]}'
        script = folder / "batch.lua"
        script.write_text(f"wrk.method='POST'\nwrk.headers['content-type']='application/json'\nwrk.body='{asking}'\n")
        records = [serialization.dump_decision(store.get(key)) for key in KEYS]
        many = len(b'{"found":{}}') + sum(len(record) + 68 for record in records) - 1
        signing.generate_key(folder / "key.pem")
        build.write(folder / "a.bundle", build.build(store.decisions()), signing.load_private_key(folder / "key.pem"))
        body = (folder / "a.bundle").read_bytes()
        tag = sha256(body).hexdigest()
        auth = f"authorization: Bearer {token}"
        with servers.service(folder, "--fresh", "3600") as service, bare(folder, len(records[0]), many, tag) as other:
            import httpx

            put = httpx.put(
                f"{service.location}/v1/bundles/{tag}",
                content=body,
                headers={"authorization": f"Bearer {token}"},
                trust_env=False,
            )
            report.check(put.status_code == 200, f"the bundle was not taken: {put.text}")
            ours, theirs = service.location, other.location
            conditional = f'if-none-match: "{tag}"'
            pids = (lambda: service.pids), (lambda: other.pids)
            report.lines.append(f"one worker, 16 connections, {rounds} rounds of {seconds:g} s, ours over bare")
            plan = {
                "lookup": (f"/v1/decisions/{digests[0]}", "/one", None, ()),
                "batch": ("/v1/decisions/lookup", "/many", script, ()),
                "batch_unread": ("/v1/decisions/lookup", "/unread", script, ()),
                "bundle": (f"/v1/bundles/{tag}", "/bundle", None, (conditional,)),
            }
            for what, (mine, bares, lua, headers) in plan.items():
                note(
                    report,
                    what,
                    *compared(
                        Side(ours + mine, pids[0], (auth, *headers), lua),
                        Side(theirs + bares, pids[1], headers, lua),
                        seconds,
                        rounds,
                    ),
                )
            report.figures["client_ratio"] = client_ratio(ours, token, rounds)
            report.lines.append(f"  stores/http get_many of 100 over bare httpx: {report.figures['client_ratio']}")
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
