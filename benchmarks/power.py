"""Power cuts: nothing acknowledged is lost, and nothing torn is served, whatever of the pending writes arrived.

    python benchmarks/power.py [--quick] [--json] [--only audit] [--states 1500] [--seed 7]

For each path (SQLite as the service opens it and as a laptop does, the mirror of a remote store that is down, answers
of the service, artifacts, bundles, the audit log) real code works in a child process. A shim records every write,
change of size, create, rename, unlink and fsync, of files and of folders; replaying them must give the same files. Then
the disk is rebuilt as it may be after a cut at each boundary, as `power_model.py` states, and opened by the real code.

`lost` counts states that lack something acknowledged, `torn` those that serve something damaged. `publish_ms` is what
one publication of the service takes on the disk, synced as it is and without. Needs cc, Linux, and the extras
`service`, `redis` and `bundle`.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from figures import Goal, Report, parser
from power_cost import publish_costs
from power_paths import PATHS, UNSAFE, Damage, PowerPath
from power_record import build_shim, record
from power_states import State, states, write_state

from tunewright.errors import TunewrightError
from tunewright.stores.sqlite import connection, store

FULL, QUICK = 1500, 60
"""States of each path."""

GOALS = (Goal("power_lost", "==", 0), Goal("power_torn", "==", 0), Goal("power_states", ">=", 300))

SHOWN = 5
"""Damaged states of a path that are described."""


def memory() -> str | None:
    """A folder in memory, where opening thousands of states waits for no disk; None if there is none."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextmanager
def rebooted() -> Iterator[None]:
    """A machine whose power was cut boots anew, which ends all leases of SQLite stores."""
    with patch.object(connection, "boot_id", lambda: "after"), patch.object(store, "boot_id", lambda: "after"):
        yield


def judge(path: PowerPath, state: State, acknowledged: list[Any], folder: Path) -> Damage:
    """Opens a state by the real code; an error is a state that serves nothing."""
    folder.mkdir()
    try:
        write_state(state.content, folder)
        return path.check(folder, acknowledged[: state.acknowledged])
    except (TunewrightError, OSError) as error:
        return Damage([], [f"{type(error).__name__}: {error}"])
    finally:
        shutil.rmtree(folder)


def cut(name: str, limit: int, seed: int, shim: Path) -> tuple[Counter[str], list[str]]:
    """Records a path and judges its states; returns counts, and what some of the damaged ones show."""
    path = (PATHS | UNSAFE)[name]
    root = shim.parent / name
    root.mkdir()
    path.before(root)
    child = [str(Path(__file__).with_name("power_paths.py")), name, str(root)]
    disk, operations = record(child, root, shim, TUNEWRIGHT_CACHE=str(root / "cache"))
    acknowledged = [json.loads(one.data) for one in operations if one.kind == "ack"]
    counts, shown = Counter(operations=len(operations), acknowledged=len(acknowledged)), []
    counts.update(states=0, lost=0, torn=0)
    for state in states(disk, operations, limit, seed):
        with rebooted():
            damage = judge(path, state, acknowledged, shim.parent / "state")
        counts.update(states=1, lost=bool(damage.lost), torn=bool(damage.torn))
        if (damage.lost or damage.torn) and len(shown) < SHOWN:
            shown.append(f"{name}, {state.what}: lost {damage.lost[:3]}, torn {damage.torn[:3]}")
    return counts, shown


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--only", choices=[*PATHS, *UNSAFE], help="one path")
    arguments.add_argument("--states", type=int, help="states of each path")
    arguments.add_argument("--seed", type=int, default=7)
    given = arguments.parse_args()
    logging.disable(logging.CRITICAL)
    limit = given.states or (QUICK if given.quick else FULL)
    report, total = Report(), Counter[str](states=0, lost=0, torn=0)
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        shim = build_shim(Path(folder))
        for name in [given.only] if given.only else PATHS:
            counts, shown = cut(name, limit, given.seed, shim)
            report.figures[name] = dict(counts)
            report.lines.append(f"  {name:<16}" + ", ".join(f"{value:,} {what}" for what, value in counts.items()))
            report.wrong += shown
            total.update({what: counts[what] for what in total})
    report.figures |= {f"power_{what}": value for what, value in total.items()}
    if not given.only:
        costs = publish_costs(50 if given.quick else 500)
        report.figures["publish_ms"] = {"synced": costs.dearer.median, "relaxed": costs.cheaper.median}
        report.lines.append(
            f"  a publication takes {costs.dearer.text('ms', 2)}, not synced {costs.cheaper.text('ms', 2)}"
        )
    return report.finish(GOALS, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
