"""A kernel that other machines can find: it fails at step 4, hangs at 99, crashes at 66, and takes a while at 50."""

import os
import time

import tunewright as tw

SPACE = tw.Space(tw.Knob("step", [1, 2, 4, 8, 50, 66, 99, *range(100, 160)]))


@tw.tune(SPACE, default={"step": 1})
def stepped(*, step: int):
    if step == 4:
        raise ValueError("no step 4")
    if step == 66:
        os.abort()
    if step in (50, 99):
        time.sleep(600 if step == 99 else 0.5)
    return 1


@tw.tune(tw.Space(tw.Knob("SHIFT", range(40))), backend=tw.C("shifted.c"), reference=lambda x: x)
def shifted(x: tw.In("N"), y: tw.Out("N")): ...
