"""Any schedule is either refused with the step that is wrong, before anything runs, or computes the right thing."""

import numpy as np
import pytest

pytest.importorskip("torch_mlir")

from schedules_at_random import BROKEN, named_step, schedule_at_random

from tunewright.errors import ScheduleError
from tunewright.mlir import Mlir, compiler, payloads
from tunewright.model.signature import In, Out, Parameter, Signature
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import Config

PAYLOAD = payloads.matmul(12, 16, 8, after="relu")
FAST = 20


def seeds(count: int = 200):
    return [seed if seed < FAST else pytest.param(seed, marks=pytest.mark.slow) for seed in range(count)]


@pytest.fixture(scope="module")
def accepted() -> dict[bool, int]:
    return {True: 0, False: 0}


@pytest.mark.parametrize("seed", seeds())
def test_a_random_schedule_is_right_or_refused_with_its_step(seed, tmp_path, accepted) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((12, 8), dtype=np.float32), rng.standard_normal((8, 16), dtype=np.float32)
    c = np.full((12, 16), 7, np.float32)
    kernel = Kernel("k", lambda: None, tuple(map(Parameter, "abc", (In, In, Out))), tmp_path)
    backend = Mlir(PAYLOAD, schedule_at_random(rng))
    try:
        artifact = backend.build(kernel, Config(), Signature.of(kernel.parameters, [a, b, c]))
    except ScheduleError as error:
        said = str(error)
        accepted[False] += 1
    else:
        said = ""
    if said:
        assert named_step(said), said
        return
    accepted[True] += 1
    backend.load(kernel, artifact)(a, b, c)
    np.testing.assert_allclose(c, PAYLOAD.reference(a.astype(float), b.astype(float)), atol=1e-5)


def test_a_fair_share_of_random_schedules_is_accepted(accepted) -> None:
    assert accepted[True] >= sum(accepted.values()) / 3


@pytest.mark.parametrize("seed", seeds())
def test_a_broken_schedule_is_refused_before_it_runs_with_the_step_that_is_wrong(seed) -> None:
    rng = np.random.default_rng(seed)
    broken = BROKEN[seed % len(BROKEN)]
    if broken is BROKEN[0]:
        with pytest.raises(ScheduleError, match=r"step \d+ \(\w+\): "):
            broken(rng)
        return
    script, number = broken(rng)
    with pytest.raises(ScheduleError) as caught:
        compiler.apply_script(PAYLOAD.text, script)
    assert named_step(str(caught.value)) == number, caught.value
