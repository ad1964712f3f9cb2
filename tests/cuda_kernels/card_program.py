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
from tunewright.errors import DeviceLost, TunewrightError
from tunewright.model.trial import Incumbent, TrialRequest
from tunewright.testing.cuda_driver import install_driver

SOURCE = """
extern "C" __global__ void scale(const float *x, float *y, float factor, int n) {
    extern __shared__ float kept[];
    int i = blockIdx.x * WIDTH + threadIdx.x;
    if (i < n || FAULT == 1) kept[threadIdx.x] = factor * x[FAULT == 1 ? i + 1000000 : i];
    if (i < n) y[i] = kept[threadIdx.x] + (FAULT == 2);
}
"""
NUMBERS = """
#include <cuda_fp16.h>
struct Three { int x, y, z; };
extern "C" __global__ void take_half(float *y, __half value) { y[threadIdx.x] = __half2float(value); }
extern "C" __global__ void take_three(float *y, Three value) { y[threadIdx.x] = value.z; }
extern "C" __global__ void take_bool(float *y, bool value) { y[threadIdx.x] = value; }
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
    launch = scale.backend.load(scale.kernel, artifact)
    timer = CardTimer(launch, args)
    timer(1)
    DRIVER.history.clear()
    timer.flush(whole=True)
    once, order = timer(1), list(DRIVER.history)
    few, many = timer(3), timer(130)
    del timer
    before = DRIVER.live
    CardTimer(launch, args)(1)
    return {
        "once": once, "order": order, "few": few, "many": many, "kept": DRIVER.live - before, "right": is_right(args),
    }  # fmt: skip


def numbers():
    """What becomes of parameters that are no plain numbers, and of a bool of numpy."""
    found = {}
    for kind, value in (("half", 1.0), ("three", 1), ("bool", np.bool_(True))):
        FILE.with_name(f"{kind}.cu").write_text(NUMBERS)

        made = tw.Cuda(FILE.with_name(f"{kind}.cu"), f"take_{kind}", grid=1, block=32)

        @tw.tune(tw.Space(tw.Knob("WIDTH", [32])), backend=made, session=scale.session)
        def take(y: tw.Out("N"), value): ...

        y = np.zeros(32, np.float32)
        try:
            take(y, value, WIDTH=32)
            found[kind] = float(y[0])
        except TunewrightError as error:
            found[kind] = str(error)
    return found


def lost():
    try:
        scale(*arguments(), WIDTH=32, FAULT=1)
    except TunewrightError as error:
        return {"error": type(error).__name__, "text": str(error)}


def blame():
    """An incumbent that breaks the GPU in a candidate's trial, when it is loaded or when it is timed."""
    args, blamed = arguments(), []
    for error in ("load", "time"):
        evaluator = scale.make_evaluator(scale.cases_like(args), FOLDER)
        evaluator.prepare()
        workload = evaluator.workload
        evaluator.workload = Breaks(workload, INCUMBENT, error)
        try:
            evaluator(TrialRequest(tw.Config(WIDTH=32, FAULT=0), Incumbent(INCUMBENT, 1e-3)))
        except DeviceLost as lost:
            blamed.append(str(lost.config))
    return blamed


INCUMBENT = tw.Config(WIDTH=64, FAULT=0)


class Breaks:
    """A workload in which one config loses the device, in `load` or when it is timed against others."""

    def __init__(self, workload, config, when):
        self._workload, self._config, self._when = workload, config, when

    def __getattr__(self, name):
        return getattr(self._workload, name)

    def load(self, config, artifact):
        candidate = self._workload.load(config, artifact)
        if config == self._config:
            if self._when == "load":
                raise DeviceLost("lost", reason="lost")
            own, calls = candidate.sample, []

            def sample(*args, **named):
                calls.append(1)
                if len(calls) > 1:
                    raise DeviceLost("lost", reason="lost")
                return own(*args, **named)

            candidate.sample = sample
        return candidate


def target():
    backends = backend(target="sm_80"), backend(device="emulator"), backend()
    runs = {arch: find_card().runs(arch) for arch in ("sm_90", "sm_90a", "sm_80", "sm_89", "sm_100")}
    untimed, newest = [bool(each.untimed) for each in backends], {}
    for capability in ((7, 5), (8, 7), (8, 9), (10, 3)):
        find_card().capability = capability
        newest[f"sm_{capability[0]}{capability[1]}"] = backend().arch
    return {"runs": runs, "untimed": untimed, "newest": newest}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()))
