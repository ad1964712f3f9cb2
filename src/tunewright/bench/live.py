"""Live: two builds raced against each other in one session, in turn, each in processes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tunewright.bench.bouts import Entry, Outing, raced, samples_of
from tunewright.bench.calls import Call
from tunewright.bench.comparing import MARGIN, Change, Comparison, broken, judged
from tunewright.bench.doubt import ALARMS, estimate, ratios
from tunewright.bench.driving import Plan, Progress
from tunewright.bench.seat import Build

BEFORE, AFTER = "before", "after"


def versus(
    plan: Plan, builds: tuple[Build, Build], cells: Sequence[tuple[Call, str]], say: Progress, margin: float = MARGIN
) -> Comparison:
    """Two builds at the same calls, round by round in turn; new processes in every sitting.

    Neighbours in time are compared, so what the machine does strikes both; what a process does to its kernel for as
    long as it lives, by where its memory lies, differs from sitting to sitting, and is part of the doubt.
    """
    outings: list[list[dict[str, Outing]]] = [[] for _ in cells]
    with TemporaryDirectory(prefix="tunewright-bench-") as folder:
        for sitting in range(plan.sittings):
            with plan.crew(Path(folder), sitting) as crew:
                for number, (call, name) in enumerate(cells):
                    if any(outing.mishap for one in outings[number] for outing in one.values()):
                        continue
                    say(f"sitting {sitting + 1} of {plan.sittings} · {number + 1} of {len(cells)} · {call}  {name}")
                    sides = [Entry(BEFORE, name, builds[0]), Entry(AFTER, name, builds[1])]
                    terms = msgspec.structs.replace(plan.terms, seed=plan.terms.seed + sitting)
                    # Who is made ready first lies elsewhere in memory, and meets a colder machine.
                    outings[number].append(raced(crew, call, sides if sitting % 2 else sides[::-1], terms)[0])
    return Comparison(tuple(_change(cell, own, margin, len(cells)) for cell, own in zip(cells, outings, strict=True)))


def _change(cell: tuple[Call, str], outings: Sequence[dict[str, Outing]], margin: float, count: int) -> Change:
    call, name = str(cell[0]), cell[1]
    mishaps = [next((one[side].mishap for one in outings if side in one and one[side].mishap), None)
               for side in (BEFORE, AFTER)]  # fmt: skip
    if found := broken(call, name, *mishaps):
        return found
    apart = estimate(ratios(samples_of(outings, AFTER), samples_of(outings, BEFORE)))
    return judged(call, name, apart, margin, ALARMS / count)
