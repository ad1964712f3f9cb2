"""What opening a bundle costs: verifying every byte of it, then the first look-up.

    python benchmarks/bundles.py [--quick] [--json] [--decisions 100000]

- verify_mb_s: reading, hashing and checking the signature of the whole file, in megabytes a second.
- open_ms: from verified bytes to the first config: sections, manifest, one look-up. The highest of all repeats, each
  for another key.

The peer is what a reader of the same content cannot do without: `hashlib.sha256` over the same file, in the same run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from statistics import median
from time import perf_counter

from figures import Goal, Report, parser

from tunewright.stores.bundle import BundleStore, signing, verify_bundle
from tunewright.stores.bundle.build import build, write
from tunewright.testing.keys import other_decision, other_key

GOALS = (Goal("open_ms", "<=", 50), Goal("verify_mb_s", ">=", 200))
REPEATS = 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, sign, open."""
    takes = parser(__doc__)
    takes.add_argument("--decisions", type=int, help="how many; 100000, or 10000 if quick")
    given = takes.parse_args(arguments)
    count = given.decisions or (10_000 if given.quick else 100_000)
    report = Report()
    decisions = [other_decision(key=other_key(mode={"number": str(i)})) for i in range(count)]
    rates, bare, opened = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        place, key = Path(folder) / "some.bundle", Path(folder) / "key.pem"
        public = signing.generate_key(key)
        began = perf_counter()
        content = build(decisions)
        report.figures["build_s"] = round(perf_counter() - began, 2)
        write(place, content, signing.load_private_key(key))
        megabytes = len(content) / 1e6
        for repeat in range(REPEATS):
            began = perf_counter()
            sha256(place.read_bytes()).hexdigest()
            bare.append(megabytes / (perf_counter() - began))
            began = perf_counter()
            whole = verify_bundle(place, signers=[public])
            rates.append(megabytes / (perf_counter() - began))
            wanted = decisions[repeat * count // REPEATS]
            began = perf_counter()
            found = BundleStore(whole).get(wanted.key)
            report.check(found is not None and found.config == wanted.config, "a decision is not found")
            opened.append(1e3 * (perf_counter() - began))
    report.figures |= {
        "decisions": count,
        "megabytes": round(megabytes, 1),
        "verify_mb_s": round(median(rates)),
        "verify_lowest_mb_s": round(min(rates)),
        "sha256_mb_s": round(median(bare)),
        "open_ms": round(max(opened), 3),
        "open_median_ms": round(median(opened), 3),
    }
    said = report.figures
    report.lines.append(
        f"{count} decisions, {said['megabytes']} MB: verified at {said['verify_mb_s']} MB/s (sha256 alone "
        f"{said['sha256_mb_s']}), first look-up after {said['open_ms']} ms at most"
    )
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
