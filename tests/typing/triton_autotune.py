"""Correct and wrong uses of `tunewright.triton.autotune`, for the type checker; a wrong line is marked `# error:`."""

from collections.abc import Callable
from typing import Any, assert_type

import tunewright as tw
from tunewright.triton import Config, TritonTuner, autotune

SPACE = tw.Space(tw.Knob("BLOCK", [64, 128, 256]), tw.Knob("num_warps", [2, 4]))


@autotune([Config({"BLOCK": 64}), Config({"BLOCK": 128})], ["n"], reset_to_zero=["out"], cache_results=True)
def listed(x: Any, out: Any, n: int, block: int) -> None: ...


@autotune(
    space=SPACE,
    key=["n"],
    buckets={"n": "pow2"},
    reference=lambda x: 2 * x,
    tolerance=1e-3,
    shapes=[{"n": 1024}],
    seeds=[{"BLOCK": 128}],
    budget="200,5m",
    targets=["sm_90"],
    session=tw.Session(store="memory:"),
)
def searched(x: Any, out: Any, n: int, block: int) -> None: ...


def correct(fn: Callable[..., None]) -> None:
    assert_type(listed, TritonTuner)
    assert_type(autotune(space=SPACE, model=False), Callable[[Any], TritonTuner])
    autotune([], [], None, None, None, None, None, 25, 100)(fn)
    autotune(configs=[Config({})], key=["n"], do_bench=lambda fn, quantiles: 1.0, use_cuda_graph=False)(fn)


def wrong() -> None:
    autotune(3, ["n"])  # error: arg-type
    autotune([], 3)  # error: arg-type
    autotune(space=[64, 128])  # error: arg-type
    autotune(space=SPACE, budget=200)  # error: arg-type
    autotune(space=SPACE, model="yes")  # error: arg-type
    autotune(space=SPACE, buckets={"n": 64})  # error: dict-item
    autotune(space=SPACE, targets=[90])  # error: list-item
    autotune(space=SPACE, warm_up=25)  # error: call-arg
    autotune(space=SPACE, session="memory:")  # error: arg-type
