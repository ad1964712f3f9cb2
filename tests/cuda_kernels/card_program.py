"""Uses a CUDA kernel on a driver that emulates a GPU, and prints what happened: `card_program.py PART`.

The driver stays in a process for good. Workers load this file too, and then have one of their own.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

import tunewright as tw
from tunewright.cuda.card import CardTimer
from tunewright.cuda.driver import find_card
from tunewright.errors import TunewrightError
from tunewright.testing.cuda_driver import install_driver

SOURCE = """
extern "C" __global__ void scale(const float *x, float *y, float factor, int n) {
    extern __shared__ float kept[];
    int i = blockIdx.x * WIDTH + threadIdx.x;
    if (i < n || FAULT == 1) kept[threadIdx.x] = factor * x[FAULT == 1 ? i + 1000000 : i];
    if (i < n) y[i] = kept[threadIdx.x] + (FAULT == 2);
}
"""
FOLDER = Path(os.environ["CARD_PROGRAM"])
FILE = FOLDER / "scale.cu"
FILE.write_text(SOURCE)
DRIVER = install_driver(FOLDER, seconds=lambda launch: 4e-2 / launch.block[0], capability=(9, 0))
SPACE = tw.Space(tw.Knob("WIDTH", [32, 64, 128]), tw.Knob("FAULT", [0, 1, 2]))


def backend(**options):
    return tw.Cuda(
        FILE, grid=lambda N, WIDTH: -(-N // WIDTH), block=("WIDTH",), shared=lambda WIDTH: 4 * WIDTH, **options
    )


@tw.tune(
    SPACE,
    backend=backend(),
    reference=lambda x, factor: factor * x,
    default={"WIDTH": 64, "FAULT": 0},
    session=tw.Session(store="memory:", cache=str(FOLDER), pool="process:1", trials=9, min_expected_gain=0.0),
)
def scale(x: tw.In("N"), y: tw.Out("N"), factor: float): ...


def arguments():
    return np.arange(100, dtype=np.float32), np.zeros(100, np.float32), 3.0


def is_right(args):
    return bool((args[1] == args[2] * args[0]).all())


def call():
    args = arguments()
    scale(*args, WIDTH=32, FAULT=0)
    device = scale.problem(args).key.device
    return {"right": is_right(args), "device": device.model, "arch": device.architecture, "launches": DRIVER.launches}


def tune():
    decision = scale.tune(*arguments())
    trials = list(scale.session.store.trials(decision.key))
    failed = {str(trial.config): trial.outcome for trial in trials if not trial.works}
    return {
        "config": dict(decision.config),
        "failed": {config: [failure.kind, failure.reason] for config, failure in failed.items()},
        "clocks": sorted({trial.outcome.clock for trial in trials if trial.works}),
    }


def graph():
    args = arguments()
    artifact = scale.backend.build(scale.kernel, tw.Config(WIDTH=64, FAULT=0), scale.problem(args).key.signature)
    timer = CardTimer(scale.backend.load(scale.kernel, artifact), args)
    timer.flush(whole=True)
    few, clock = timer(3), timer.clock
    many = timer(130)
    return {"few": few, "many": many, "clocks": [clock, timer.clock], "right": is_right(args)}


def lost():
    try:
        scale(*arguments(), WIDTH=32, FAULT=1)
    except TunewrightError as error:
        return {"error": type(error).__name__, "text": str(error)}


def target():
    backends = backend(target="sm_80"), backend(device="emulator"), backend()
    runs = {arch: find_card().runs(arch) for arch in ("sm_90", "sm_90a", "sm_80", "sm_89", "sm_100")}
    return {"runs": runs, "untimed": [bool(each.untimed) for each in backends]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()))
