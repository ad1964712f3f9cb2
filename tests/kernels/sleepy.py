"""Kernels that take as long as their knobs say, in CPU time, which neighbors do not change: for campaigns."""

import time

import tunewright as tw

KNOBS = [tw.Knob("step", [1, 2, 4, 8]), tw.Knob("other", range(8))]


def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@tw.tune(tw.Space(*KNOBS), default={"step": 1, "other": 0}, shapes=[{"N": 10}, {"N": 20}])
def sleepy(x: tw.In("N"), *, step: int, other: int):
    spin(0.004 / step)
    return 1


@tw.tune(tw.Space(*KNOBS), default={"step": 8, "other": 0}, shapes=[{"N": 10}])
def settled(x: tw.In("N"), *, step: int, other: int):
    spin(0.002)
    return 1


@tw.tune(tw.Space(*KNOBS), default={"step": 1, "other": 0}, shapes=[{"N": 10}])
def broken(x: tw.In("N"), *, step: int, other: int):
    raise ValueError("it never works")
