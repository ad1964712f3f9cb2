"""A kernel whose candidates misbehave in every way that comes to an end by itself; `hanging.py` has the others."""

import tunewright as tw

CASES = {
    0: None,
    1: ("verify", "crashed", "SIGSEGV"),
    3: ("verify", "memory", "MiB"),
    4: ("build", "refused", "this candidate does not compile"),
    5: ("verify", "wrong", "the reference gives"),
    6: ("verify", "wrong", "past the end of y"),
    7: ("verify", "wrong", "wrote to its input x"),
    8: ("verify", "wrong", "nan"),
    9: ("verify", "wrong", "before the beginning of y"),
    10: ("verify", "crashed", "exited with status 3"),
    11: ("verify", "crashed", "SIGABRT"),
    14: ("verify", "crashed", "a file of more than 256 MiB"),
}


@tw.tune(
    tw.Space(tw.Knob("CASE", CASES)),
    backend=tw.C("faulty.c", flags="-O1"),
    reference=lambda x: 2 * x,
    default={"CASE": 0},
    shapes=[{"N": 1000}],
)
def twice(x: tw.In("N"), y: tw.Out("N")): ...
