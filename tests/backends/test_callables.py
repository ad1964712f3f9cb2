"""Callables compiled for a config, Numba and JAX: the contract of backends, and what they add to it."""

import os
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

import tunewright as tw
from tunewright.backends.numba import with_constants
from tunewright.backends.python import Python
from tunewright.errors import SignatureError, SpaceError
from tunewright.model.signature import Parameter, Signature
from tunewright.ports.backend import Kernel
from tunewright.spaces.config import Config
from tunewright.testing.backend_kit import BackendContract

with_jax = pytest.mark.skipif("WITH_JAX" not in os.environ, reason="runs in tests/test_with_jax.py, which says why")


def kernel_of(function, knobs, folder):
    return Kernel(function.__name__, function, Parameter.of(function, knobs), folder)


def key_of(kernel, *args):
    return kernel.problem(args).key


def multiplied(x: tw.In("N"), factor: float, *, step=1):
    return x * factor


def make_multiplied(config):
    def run(x, factor):
        return np.concatenate([x[i : i + config["step"]] * factor for i in range(0, len(x), config["step"])])

    return run


class TestCallable(BackendContract):
    @pytest.fixture
    def backend(self):
        return tw.Callable(make_multiplied, packages=["numpy"])

    @pytest.fixture
    def kernel(self, tmp_path):
        return kernel_of(multiplied, ["step"], tmp_path)

    @pytest.fixture
    def args(self):
        return [np.ones(6), 2.0]

    @pytest.fixture
    def config(self):
        return Config(step=4)

    def test_a_config_is_compiled_once_for_a_signature(self, kernel, config, args) -> None:
        compiled = []

        def compile_counted(settings):
            compiled.append(dict(settings))
            return make_multiplied(settings)

        backend = tw.Callable(compile_counted)
        here, there = (Signature.of(kernel.parameters, [np.ones(n), 2.0]) for n in (6, 7))
        first = backend.build(kernel, config, here)
        assert backend.build(kernel, config, here) is first
        backend.build(kernel, config, there)
        backend.build(kernel, Config(step=2), here)
        assert compiled == [{"step": 4}, {"step": 4}, {"step": 2}]

    def test_what_is_no_callable_is_a_failure_of_the_config(self, kernel, config, args) -> None:
        with pytest.raises(TypeError, match=r"compile returned a int for step=4"):
            tw.Callable(lambda config: 3).build(kernel, config, Signature.of(kernel.parameters, args))


class TestTorch(BackendContract):
    @pytest.fixture
    def backend(self):
        return Python()

    @pytest.fixture
    def kernel(self, tmp_path):
        return kernel_of(multiplied, ["step"], tmp_path)

    @pytest.fixture
    def args(self):
        return [pytest.importorskip("torch").ones(6), 2.0]

    @pytest.fixture
    def config(self):
        return Config(step=4)


@with_jax
class TestJax(BackendContract):
    @pytest.fixture
    def backend(self):
        pytest.importorskip("jax")
        return tw.Jax()

    @pytest.fixture
    def kernel(self, tmp_path):
        return kernel_of(multiplied, ["step"], tmp_path)

    @pytest.fixture
    def args(self):
        return [pytest.importorskip("jax").numpy.ones(6), 2.0]

    @pytest.fixture
    def config(self):
        return Config(step=4)

    @pytest.mark.clock("three launches take at least a third of one that is waited for")
    def test_the_time_of_a_launch_ends_when_its_result_is_there(self, backend, tmp_path) -> None:
        import jax

        def slow(x: tw.In("N", "N"), *, step=1):
            return jax.lax.fori_loop(0, 20, lambda i, y: (y @ x) / 400, x)

        kernel, x = kernel_of(slow, ["step"], tmp_path), jax.numpy.ones((400, 400))
        launch = backend.build(kernel, Config(step=1), Signature.of(kernel.parameters, [x]))
        backend.warm_up(launch, [x])
        timer = backend.timer(launch, [x], 2)
        timer(1)
        began = time.perf_counter()
        launch(x).block_until_ready()
        whole = time.perf_counter() - began
        assert timer(3) > 0.3 * whole


class TestNumba(BackendContract):
    @pytest.fixture
    def backend(self):
        pytest.importorskip("numba")
        return tw.Numba()

    @pytest.fixture
    def kernel(self, tmp_path):
        return kernel_of(multiplied, ["step"], tmp_path)

    @pytest.fixture
    def args(self):
        return [np.ones(6), 2.0]

    @pytest.fixture
    def config(self):
        return Config(step=4)

    def test_options_of_the_compiler_are_knobs_and_others_are_constants(self, backend, tmp_path) -> None:
        def scaled(x: tw.In("N"), by: float = 2.0, *, step=1, mode="plus", fastmath=False):
            if mode == "plus":
                return x * by + step
            return x * by - step

        kernel = kernel_of(scaled, ["step", "mode", "fastmath"], tmp_path)
        signature = Signature.of(kernel.parameters, [np.ones(4), 2.0])
        for config, expected in (
            (Config(step=3, mode="plus", fastmath=True), 5.0),
            (Config(step=1, mode="minus", fastmath=False), 1.0),
        ):
            launch = backend.build(kernel, config, signature)
            assert launch(np.ones(4), 2.0).tolist() == [expected] * 4


def test_constants_replace_the_defaults_of_a_function() -> None:
    free = 10

    def function(a, b=2, *, c=3, d):
        return a, b, c, d, free

    assert with_constants(function, {"d": 7})(1) == (1, 2, 3, 7, 10)
    assert with_constants(function, {"c": 5, "d": 7})(1, 4) == (1, 4, 5, 7, 10)


def test_a_callable_is_tuned_and_its_compilation_counts_as_building() -> None:
    def make(config):
        time.sleep(0.05)  # a compiler
        return partial(lambda x, block: x * 2, block=config["block"])

    @tw.tune(tw.Space(tw.Knob("block", [1, 2])), compile=make, session=tw.Session(pool="serial"))
    def doubled(x: tw.In("N")): ...

    assert doubled(np.ones(4)).tolist() == [2.0] * 4
    trials = list(doubled.session.store.trials(doubled.decide(np.ones(4)).key))
    assert [trial.works for trial in trials] == [True, True]
    assert trials[1].build_seconds > 0.05


def test_the_first_call_of_a_just_in_time_compiler_counts_as_building_too() -> None:
    class Lazy:
        def __init__(self):
            self.compiled = False

        def __call__(self, x):
            if not self.compiled:
                time.sleep(0.1)
                self.compiled = True
            return x * 2

    backend = tw.Callable(lambda config: Lazy())

    @tw.tune(
        tw.Space(tw.Knob("block", [1, 2])),
        backend=backend,
        reference=lambda x: 2 * x,
        session=tw.Session(pool="serial"),
    )
    def doubled(x: tw.In("N")): ...

    doubled(np.ones(4))
    trials = list(doubled.session.store.trials(doubled.decide(np.ones(4)).key))
    assert all(trial.works and trial.build_seconds > 0.1 for trial in trials)


def test_a_compiler_that_refuses_a_config_costs_one_trial_and_a_wrong_one_is_never_chosen() -> None:
    def make(config):
        if config["how"] == "refused":
            raise ValueError("too many registers")
        return {"right": lambda x: x * 2, "wrong": lambda x: x * 3, "raises": lambda x: x.missing}[config["how"]]

    space = tw.Space(tw.Knob("how", ["right", "refused", "wrong", "raises"]))

    @tw.tune(space, compile=make, session=tw.Session(pool="serial"))
    def doubled(x: tw.In("N")): ...

    assert doubled(np.ones(4)).tolist() == [2.0] * 4
    trials = {t.config["how"]: t for t in doubled.session.store.trials(doubled.decide(np.ones(4)).key)}
    assert [how for how, trial in trials.items() if trial.works] == ["right"]
    assert "too many registers" in trials["refused"].outcome.reason


def test_the_key_has_the_source_and_the_closure_of_the_compiler_and_the_versions_of_packages() -> None:
    def kernel(scale, packages=(), body=0):
        def first(config):
            return lambda x: x * scale

        def second(config):
            return lambda x: scale * x

        @tw.tune(
            tw.Space(tw.Knob("n", [1, 2])), backend=tw.Callable((first, second)[body], packages=packages), name="k"
        )
        def scaled(x: tw.In("N")): ...

        return key_of(scaled, np.ones(4))

    base = kernel(2)
    assert base == kernel(2)
    assert "source" in base.differences(kernel(3))
    assert "source" in base.differences(kernel(2, body=1))
    assert "msgspec" in str(base.differences(kernel(2, packages=["msgspec"])))


def test_the_body_of_a_jitted_helper_is_part_of_the_key() -> None:
    nb = pytest.importorskip("numba")
    scope: dict = {"nb": nb, "tw": tw, "np": np, "__name__": "helpers"}
    text = """
@nb.njit
def helper(x):
    return x + {number}

@tw.tune(tw.Space(tw.Knob("n", [1, 2])), backend=tw.Numba(), name="k")
def kernel(x: tw.In("N"), *, n=1):
    return helper(x)

key = kernel.problem([np.ones(4)]).key
"""
    keys = []
    for number in (1, 2, 1):
        exec(text.format(number=number), scope)
        keys.append(scope["key"])
    assert keys[0] == keys[2]
    assert "source" in keys[0].differences(keys[1])
    assert {"numba", "llvmlite"} <= set(keys[0].toolchain)


def test_compile_and_backend_exclude_each_other() -> None:
    with pytest.raises(SignatureError, match="both backend= and compile="):
        tw.tune(tw.Space(tw.Knob("n", [1])), compile=make_multiplied, backend=tw.Python())(multiplied)


def test_the_function_of_a_numba_kernel_takes_knobs_that_are_no_options_of_the_compiler() -> None:
    def plain(x: tw.In("N"), *, block=8): ...

    knobs = [tw.Knob("block", [8, 16]), tw.Knob("parallel", [False, True])]
    assert tw.tune(tw.Space(*knobs), backend=tw.Numba())(plain).default == {"block": 8, "parallel": False}
    with pytest.raises(SpaceError, match="takes no argument 'unroll'"):
        tw.tune(tw.Space(*knobs, tw.Knob("unroll", [1, 2])), backend=tw.Numba())(plain)


@with_jax
def test_a_jax_kernel_is_tuned_with_knobs_and_sizes_as_constants() -> None:
    jax = pytest.importorskip("jax")

    @tw.tune(tw.Space(tw.Knob("parts", [1, 2, 4, 3])), backend=tw.Jax(), session=tw.Session(pool="serial"))
    def total(x: tw.In("N"), times: int, *, parts=2):
        return sum(part.sum() for part in jax.numpy.split(x, parts)) * sum(range(times))

    for x in (jax.numpy.ones(8), np.ones(8, np.float32)):
        assert float(total(x, 3)) == 24
        trials = {t.config["parts"]: t for t in total.session.store.trials(total.decide(x, 3).key)}
        assert [parts for parts, trial in sorted(trials.items()) if trial.works] == [1, 2, 4]
        assert "array split does not result in an equal division" in trials[3].outcome.reason
        assert trials[3].outcome.stage == "build"


@pytest.mark.slow
def test_threads_of_numba_work_in_workers_after_they_were_used_here(tmp_path) -> None:
    pytest.importorskip("numba")
    (tmp_path / "kernels.py").write_text(
        "import numba as nb, numpy as np, tunewright as tw\n"
        "space = tw.Space(tw.Knob('parallel', [False, True]), tw.Knob('block', [8, 64]))\n"
        "@tw.tune(space, backend=tw.Numba(), budget='4', reference=lambda x: 2 * x, threads=2)\n"
        "def doubled(x: tw.In('N'), y: tw.Out('N'), *, block=8):\n"
        "    for part in nb.prange(len(x) // block):\n"
        "        for i in range(part * block, part * block + block):\n"
        "            y[i] = 2 * x[i]\n"
    )
    (tmp_path / "main.py").write_text(
        "import numpy as np\n"
        "from kernels import doubled\n"
        "x, y = np.ones(512), np.zeros(512)\n"
        "doubled(x, y, parallel=True, block=8)\n"
        "assert y.sum() == 1024\n"
        "decision = doubled.decide(x, y)\n"
        "trials = list(doubled.session.store.trials(decision.key))\n"
        "print(sum(trial.works for trial in trials), len(trials), min(t.build_seconds for t in trials) > 0.05)\n"
    )
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4", "4", "True"]
