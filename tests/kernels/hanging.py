"""A kernel of whose candidates one works, and three never end: they wait, compute, or allocate."""

import tunewright as tw

CASES = {
    0: None,
    2: ("verify", "hung", "did not end within 3 s"),
    12: ("verify", "hung", "did not end within 3 s"),
    13: ("verify", "memory", "MiB, and it did not end within 3 s"),
}


@tw.tune(
    tw.Space(tw.Knob("CASE", CASES)),
    backend=tw.C("faulty.c", flags="-O1"),
    reference=lambda x: 2 * x,
    default={"CASE": 0},
    shapes=[{"N": 1000}],
)
def twice(x: tw.In("N"), y: tw.Out("N")): ...
