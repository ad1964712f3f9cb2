"""What a fleet that pulls one bundle costs: bytes and seconds of a pull from a real registry, and 10,000 of them.

    python benchmarks/bundle_pull.py [--quick] [--json] [--decisions 1000] [--hosts 10000]

- pull_ms: from the first connection until the bundle is verified and installed, one host at a time.
- bytes: what a pull receives, headers not counted.
- server_ms: CPU time of the registry for one pull.
- at_once: the same with several hosts at a time, each with its own file and its own record of versions.

The registry is Debian's, on loopback. Hosts are threads of this process and share its cores with the registry. What a
fleet needs is computed from bytes and from the registry's CPU time, which do not depend on that.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter

from figures import Report, parser

from tunewright.shipping import artifact, receive
from tunewright.shipping.receive import PullOptions
from tunewright.shipping.registry import Access, Reference
from tunewright.stores.bundle import signing
from tunewright.stores.bundle.build import Attachment, ReleaseInfo, build, write
from tunewright.testing import servers
from tunewright.testing.keys import other_decision, other_key

WIDTHS = (1, 2, 4, 8)
LINKS = {"1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9}
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time of processes so far."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def main(arguments: Sequence[str] | None = None) -> int:
    """Push once, pull often."""
    takes = parser(__doc__)
    takes.add_argument("--decisions", type=int, default=1000, help="decisions in the bundle")
    takes.add_argument("--build-kilobytes", type=int, default=2000, help="machine code in the bundle, in kB")
    takes.add_argument("--hosts", type=int, default=10_000, help="hosts to reckon with")
    given = takes.parse_args(arguments)
    pulls = 16 if given.quick else 100
    report = Report()
    with tempfile.TemporaryDirectory() as text, servers.registry(Path(text) / "registry") as server:
        folder = Path(text)
        key, signers = folder / "key.pem", folder / "signers"
        signers.write_text(f"{signing.generate_key(key)} team\n")
        decisions = [other_decision(key=other_key(mode={"number": str(i)})) for i in range(given.decisions)]
        code = [Attachment("race", "x", os.urandom(given.build_kilobytes * 1000))]
        content = build(decisions, code, release=ReleaseInfo("prod", 1, "2099-01-01"))
        write(folder / "made", content, signing.load_private_key(key))
        place = f"{server.location}/kernels:prod"
        artifact.push(folder / "made", Reference.parse(place), Access(folder / "none"))
        options = PullOptions(Access(folder / "none"), signers)

        def pull(number: int) -> tuple[float, int]:
            began = perf_counter()
            pulled = receive.pull(place, folder / f"in{number}", options, folder / f"cache{number}")
            return perf_counter() - began, pulled.received

        for width in WIDTHS:
            before, began = cpu_seconds(server.pids), perf_counter()
            with ThreadPoolExecutor(width) as pool:
                done = list(pool.map(pull, range(pulls)))
            elapsed, spent = perf_counter() - began, cpu_seconds(server.pids) - before
            report.check(len({size for _, size in done}) == 1, "pulls received different numbers of bytes")
            report.figures[f"at_once_{width}"] = {
                "pull_ms": round(1e3 * median(seconds for seconds, _ in done), 1),
                "slowest_ms": round(1e3 * max(seconds for seconds, _ in done), 1),
                "pulls_per_s": round(pulls / elapsed, 1),
                "server_ms": round(1e3 * spent / pulls, 2),
            }
            report.lines.append(f"{width} at once: {report.figures[f'at_once_{width}']}")
    size, server_ms = done[0][1], max(report.figures[f"at_once_{width}"]["server_ms"] for width in WIDTHS)
    total = size * given.hosts
    report.figures |= {"bytes": size, "hosts": given.hosts, "total_gb": round(total / 1e9, 2),
                       "server_cpu_s": round(server_ms * given.hosts / 1e3, 1)}  # fmt: skip
    report.figures["links_s"] = {name: round(total / rate, 1) for name, rate in LINKS.items()}
    links = ", ".join(f"{name}: {seconds} s" for name, seconds in report.figures["links_s"].items())
    report.lines.append(
        f"{given.hosts} hosts, {size} bytes each: {report.figures['total_gb']} GB, "
        f"{report.figures['server_cpu_s']} s of one core of the registry; {links}"
    )
    return report.finish((), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
