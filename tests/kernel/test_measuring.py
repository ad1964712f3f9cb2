"""What a user is promised about measuring, through the front door."""

import logging
import threading
from functools import partial

import msgspec
import numpy as np
import pytest

import tunewright as tw
from tunewright.backends.python import Python
from tunewright.model.event import DecisionMade
from tunewright.stores.memory import MemoryStore
from worked_time import work

pytestmark = pytest.mark.usefixtures("by_work")

POOLS = pytest.mark.parametrize("pool", ["serial", "process"])


def own(pool="serial", **settings):
    return tw.Session(store=settings.pop("store", MemoryStore()), pool=pool, strategy="exhaustive", **settings)


def space(*steps):
    return tw.Space(tw.Knob("step", steps or [1, 2, 4]))


@POOLS
def test_a_kernel_that_works_in_place_is_tuned_without_a_trace(pool) -> None:
    @tw.tune(space(), session=own(pool))
    def double(x: tw.InOut("N"), *, step):
        for i in range(step):
            x[i::step] *= 2

    x = np.arange(64.0)
    double(x)
    assert np.array_equal(x, 2 * np.arange(64.0))


@POOLS
def test_a_kernel_that_accumulates_is_tuned_without_a_trace(pool) -> None:
    @tw.tune(space(), session=own(pool), reference=lambda x, total: total + x.sum())
    def accumulate(x: tw.In("N"), total: tw.InOut(1), *, step):
        for i in range(step):
            total += x[i::step].sum()

    total = np.array([10.0])
    accumulate(np.ones(64), total)
    assert total[0] == 74


@POOLS
def test_a_kernel_that_writes_a_part_of_its_output_leaves_the_rest_alone(pool) -> None:
    @tw.tune(space(), session=own(pool))
    def halves(x: tw.In("N"), y: tw.InOut("N"), *, step):
        for i in range(step):
            y[: len(x) // 2][i::step] = x[: len(x) // 2][i::step]

    y = np.full(64, -1.0)
    halves(np.arange(64.0), y)
    assert np.array_equal(y, np.r_[np.arange(32.0), np.full(32, -1.0)])


# ---- regimes, cases, numerics -----------------------------------------------------------------------------------


def test_the_regime_is_part_of_the_key() -> None:
    digests = set()
    for regime in ("hot", "context", "cold"):
        kernel = tw.tune(space(1, 2), session=own(), regime=regime)(lambda x, *, step: x.sum())
        digests.add(kernel.problem([np.ones(8)]).key.digest)
        assert kernel.decide(np.ones(8)).key.mode["regime"] == regime
    assert len(digests) == 3
    with pytest.raises(tw.TunewrightError, match="regimes: hot, context, cold"):
        tw.tune(space(), regime="tepid")(lambda x, *, step: x)


def by_size(x: tw.In("N"), *, step):
    """Step 1 is good at small sizes, step 2 at large ones."""
    work(10 + len(x) if step == 1 else 200)
    return x.sum()


@pytest.mark.parametrize(("often", "best"), [(100, 1), (800, 2)])
def test_the_least_total_time_over_the_calls_that_come_wins(often, best) -> None:
    cases = [tw.Case(weight=10, N=often), tw.Case(weight=1, N=900 - often)]
    kernel = tw.tune(space(1, 2), session=own(), buckets={"N": [1024]}, cases=cases, reference=np.sum)(by_size)
    assert kernel.decide(np.ones(500)).config["step"] == best


def test_only_cases_of_the_same_bucket_count() -> None:
    cases = [tw.Case(N=100), tw.Case(N=5000)]
    kernel = tw.tune(space(1, 2), session=own(), buckets={"N": "pow2"}, cases=cases)(by_size)
    assert [inputs.dims for inputs in kernel.cases_like([np.ones(120)])] == [{"N": 100}]
    (alone,) = kernel.cases_like([np.ones(2000)])
    assert alone.dims == {"N": 2048}
    assert alone.case == -1


def skewed(N):  # noqa: N803 - the name of a dimension
    return [np.r_[np.full(N // 10, 1.0), np.zeros(N - N // 10)]]


def even(N):  # noqa: N803 - the name of a dimension
    return [np.ones(N)]


def test_a_decision_may_be_raced_over_kinds_of_inputs() -> None:
    def count(x: tw.In("N"), *, step):
        """Step 1 pays for every one that is not 0, step 2 the same for all."""
        work(np.count_nonzero(x) if step == 1 else 300)
        return x.sum()

    chosen = {}
    for name, weights in {"skewed": (9, 1), "even": (1, 9)}.items():
        cases = [tw.Case(inputs=skewed, weight=weights[0]), tw.Case(inputs=even, weight=weights[1])]
        kernel = tw.tune(space(1, 2), session=own(), cases=cases, reference=np.sum)(count)
        decision = kernel.decide(np.ones(1000))
        chosen[name] = decision.config["step"]
        assert "cases" in decision.key.mode
    assert chosen == {"skewed": 1, "even": 2}


def test_inputs_that_are_another_problem_are_noticed(caplog) -> None:
    def other(N):  # noqa: N803 - the name of a dimension
        return [np.ones(N, np.float32)]

    kernel = tw.tune(space(1, 2), session=own(), cases=[tw.Case(inputs=other)])(by_size)
    with caplog.at_level(logging.WARNING):
        kernel.cases_like([np.ones(8)])
    assert "is tuned on the arguments that `inputs` makes" in caplog.text


def test_cases_that_differ_make_keys_that_differ() -> None:
    made = [[tw.Case(weight=w, inputs=partial(even))] for w in (1234567, 1234568)] + [[tw.Case(N=8)], [tw.Case(N=9)]]
    keys = {tw.tune(space(1, 2), session=own(), cases=cases)(by_size).problem([np.ones(8)]).key for cases in made}
    assert len(keys) == 4


def test_a_case_that_makes_no_sense_says_so() -> None:
    with pytest.raises(tw.TunewrightError, match="positive number"):
        tw.Case(weight=0)
    with pytest.raises(tw.TunewrightError, match=r"Case\(weight=3, M=100\)"):
        tw.tune(space(), cases=[{"N": 3}])(by_size)
    with pytest.raises(tw.TunewrightError, match="a case sizes 'M'"):
        tw.tune(space(), cases=[tw.Case(M=3)])(by_size)


FAST = tw.Space(tw.Knob("fast", [False, True], numerics=[True]))


def mean(x: tw.In("N"), *, fast):
    work(1 if fast else 300)
    return x.mean(dtype=np.float32 if fast else np.float64)


def test_what_changes_numerics_is_left_out_unless_it_is_allowed() -> None:
    tuned = tw.tune(FAST, session=own(), reference=np.mean, tolerance=1e-3)
    strict = tuned(mean)
    assert strict.space.size == 1
    assert strict.decide(np.ones(64)).config == {"fast": False}
    allowed = tw.tune(FAST, session=own(), reference=np.mean, tolerance=1e-3, numerics=["fast"])(mean)
    assert allowed.decide(np.ones(64)).config == {"fast": True}
    assert allowed.decide(np.ones(64)).key.mode["numerics"] == "fast"
    assert strict.problem([np.ones(64)]).key != allowed.problem([np.ones(64)]).key


def test_a_variant_may_change_numerics_too() -> None:
    choice = tw.Space(variants=[tw.Variant("exact"), tw.Variant("tf32", numerics=True)])
    assert choice.exact().size == 1
    assert choice.exact(["tf32"]).size == 2


def test_mistakes_about_numerics_say_what_to_do() -> None:
    with pytest.raises(tw.TunewrightError, match=r"allow it by name with numerics=\[...\]"):
        tw.tune(FAST, default={"fast": True})(mean)
    with pytest.raises(tw.TunewrightError, match="these do: fast"):
        tw.tune(FAST, numerics=["fats"])(mean)
    with pytest.raises(tw.TunewrightError, match="lists 'yes', which it cannot have"):
        tw.Knob("fast", [False, True], numerics=["yes"])
    with pytest.raises(tw.TunewrightError, match="every value of 'fast' changes numerics"):
        tw.tune(tw.Space(tw.Knob("fast", [True], numerics=[True])))(mean)


# ---- results bit for bit ----------------------------------------------------------------------------------------


class Distorted(Python):
    """A backend on whose clock each config is off by up to 30 %, otherwise in every run."""

    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.off = {}

    def build(self, kernel, config, signature):
        launch = super().build(kernel, config, signature)
        self.off[launch] = self.off.get(launch) or self.rng.uniform(0.7, 1.3)
        return launch

    def timer(self, launch, args, threads):
        return Reading(1e-3 * self.off[launch], self.rng, lambda: launch(*args))


class Reading:
    clock = "distorted"

    def __init__(self, seconds, rng, call=lambda: None):
        self.seconds, self.rng, self.call = seconds, rng, call

    def __call__(self, count):
        self.call()
        return count * self.seconds * self.rng.uniform(0.98, 1.02)

    def flush(self, *, whole): ...


def summed(x: tw.In("N"), y: tw.Out(1), *, step):
    """Sums in another order for each step, in single precision: other bits, though always right."""
    y[0] = np.float32(sum(np.float32(x[i::step].sum(dtype=np.float32)) for i in range(step)))


def twins(x: tw.In("N"), y: tw.Out(1), *, step, twin):
    summed(x, y, step=step)


@pytest.mark.slow
def test_distorted_timings_change_the_speed_but_never_a_bit() -> None:
    x = np.random.default_rng(0).standard_normal(5000, dtype=np.float32)
    seen = {True: set(), False: set()}
    chosen = {True: set(), False: set()}
    for deterministic, outputs in seen.items():
        for seed in range(200 if deterministic else 40):
            kernel = tw.tune(
                tw.Space(tw.Knob("step", [1, 2, 3, 5, 7]), tw.Knob("twin", [1, 2, 3])),
                session=own(deterministic=deterministic),
                backend=Distorted(seed),
                reference=lambda x: x.sum(keepdims=True),
                tolerance=1e-2,
            )(twins)
            y = np.zeros(1, np.float32)
            kernel(x, y)
            outputs.add(y.tobytes())
            chosen[deterministic].add(kernel.decide(x, y).config)
    assert len(seen[True]) == 1
    assert len(chosen[True]) > 1  # the speed did change
    assert len(seen[False]) > 1  # and without it, so did the bits


def test_bitwise_results_are_part_of_the_key_and_what_is_left_out_is_said() -> None:
    x, y = np.random.default_rng(0).standard_normal(5000, dtype=np.float32), np.zeros(1, np.float32)
    kernels = [
        tw.tune(space(1, 2, 3, 5), session=own(deterministic=flag), tolerance=1e-2)(summed) for flag in (True, False)
    ]
    assert kernels[0].problem([x, y]).key.mode["results"] == "bitwise"
    assert kernels[0].problem([x, y]).key != kernels[1].problem([x, y]).key
    decision = kernels[0].decide(x, y)
    assert decision.config == {"step": 1}
    assert any("excluded: their results differ bit for bit" in note for note in decision.evidence.notes)
    assert len(decision.evidence.fingerprint) == 16


def test_results_that_vary_from_run_to_run_are_noticed() -> None:
    rng = np.random.default_rng(0)

    @tw.tune(space(1, 2), session=own(), reference=np.sum, tolerance=1e-3)
    def shaky(x: tw.In("N"), *, step):
        work(300 if step == 1 else 1)
        return x.sum() * (1 + 1e-5 * rng.random()) if step == 2 else x.sum()

    decision = shaky.decide(np.ones(64))
    assert decision.config == {"step": 2}
    assert decision.evidence.fingerprint == "varies"
    assert "its results vary from run to run" in decision.evidence.notes


# ---- what is claimed --------------------------------------------------------------------------------------------


def uneven(x: tw.In("N"), *, step):
    work(100 * step)
    return x.sum()


def test_every_decision_has_a_receipt() -> None:
    kernel = tw.tune(space(1, 2, 4), session=own(), default={"step": 4})(uneven)
    evidence = kernel.decide(np.ones(8)).evidence
    gain = evidence.over_default
    assert gain.low <= gain.ratio <= gain.high
    assert (gain.low, gain.high) == pytest.approx((3.7, 3.7), rel=0.02)  # with what a launch takes itself
    assert evidence.gain == gain.ratio
    assert evidence.resolution is None  # nobody came near: what was told is larger than any doubt
    assert evidence.conditions.seconds > 0
    assert evidence.clock in ("thread", "cpu", "wall")


def test_no_gain_over_the_default_is_a_visible_answer() -> None:
    evidence = tw.tune(space(1, 2), session=own())(lambda x, *, step: work(200)).decide(np.ones(8)).evidence
    assert evidence.notes == ("no gain over the default",)
    assert evidence.over_default.ratio == 1


def test_what_the_machine_cannot_tell_is_not_kept_if_so_wished(caplog) -> None:
    store, events = MemoryStore(), []
    for wanted, kept in ((1e-9, False), (1.0, True)):
        session = own(store=store, resolution=wanted, listeners=[events.append])
        kernel = tw.tune(space(1, 2, 4), session=session)(lambda x, *, step: work(200))
        decision = kernel.decide(np.ones(8))
        assert decision.evidence.resolution > 1e-9
        searches = session.counts["searches"]
        kernel.decide(np.ones(8))
        assert session.counts["searches"] == searches == 1  # the process that made it uses it
        assert (store.get(decision.key) is not None) is kept
        assert next(event.kept for event in reversed(events) if isinstance(event, DecisionMade)) is kept
    assert "not stored: the race could tell" in caplog.text


def test_trials_are_comparable_though_the_machine_changes_its_pace() -> None:
    """The same work, on a clock that runs twice as slow from the fifth trial on."""

    class Sour(Python):
        trials = 0

        def build(self, kernel, config, signature):
            self.trials += 1
            return super().build(kernel, config, signature)

        def timer(self, launch, args, threads):
            backend = self

            class Clock(Reading):
                def __call__(self, count):
                    return super().__call__(count) * (2 if backend.trials > 5 else 1)

            return Clock(1e-3, np.random.default_rng(self.trials))

    store = MemoryStore()
    kernel = tw.tune(space(*range(1, 11)), session=own(store=store), backend=Sour())(lambda x, *, step: x.sum())
    decision = kernel.decide(np.ones(8))
    trials = list(store.trials(decision.key))
    raw = [np.median(trial.outcome.samples) for trial in trials]
    assert max(raw) / min(raw) > 1.8
    assert max(trial.seconds for trial in trials) / min(trial.seconds for trial in trials) < 1.05


# ---- the whole program ------------------------------------------------------------------------------------------


class Deferred:
    """A kernel that is fast because it leaves the work to whoever uses its result."""

    def __init__(self, **declared):
        @tw.tune(tw.Space(tw.Knob("copy", [True, False])), session=own(), **declared)
        def transposed(x: tw.In("M", "N"), *, copy):
            work(1000 if copy else 1)
            return np.ascontiguousarray(x.T) if copy else x.T

        self.kernel = transposed
        self.x = np.random.default_rng(0).standard_normal((7, 7))

    def program(self):
        """Uses the result often, where it must lie in order."""
        y = self.kernel(self.x)
        for _ in range(6):
            work(100 if y.flags.c_contiguous else 1100)


def test_a_kernel_win_that_makes_the_whole_slower_is_refused() -> None:
    alone = Deferred()
    assert alone.kernel.decide(alone.x).config == {"copy": False}
    within = Deferred()
    within.kernel.declaration = msgspec.structs.replace(within.kernel.declaration, program=within.program)
    decision = within.kernel.decide(within.x)
    assert decision.config == {"copy": True}
    assert decision.evidence.end_to_end.high < 1
    assert any("faster alone, but the whole program takes" in note for note in decision.evidence.notes)
    assert within.kernel.session.store.get(decision.key).config == {"copy": True}


def test_a_program_may_call_the_kernel_from_a_thread_of_its_own() -> None:
    within = Deferred()

    def program():
        thread = threading.Thread(target=within.program)
        thread.start()
        thread.join(120)
        assert not thread.is_alive()

    within.kernel.declaration = msgspec.structs.replace(within.kernel.declaration, program=program)
    assert within.kernel.decide(within.x).config == {"copy": True}
    assert within.kernel.tune(within.x).config == {"copy": True}


def test_a_program_that_never_calls_the_kernel_cannot_judge_it() -> None:
    alone = Deferred(program=lambda: work(10))
    with pytest.raises(tw.TunewrightError, match="the program never called transposed"):
        alone.kernel.decide(alone.x)


@pytest.mark.parametrize(("others", "wash"), [(10_000_000, True), (1000, False)])
def test_a_win_that_the_whole_does_not_feel_is_kept_and_called_a_wash(others, wash) -> None:
    alone = Deferred()
    kernel, x = alone.kernel, alone.x

    def program():
        work(others)
        return kernel(x)[0, 0]

    kernel.declaration = msgspec.structs.replace(kernel.declaration, program=program)
    decision = kernel.decide(x)
    assert decision.config == {"copy": False}
    assert decision.evidence.end_to_end.is_inconclusive is wash
    assert decision.evidence.end_to_end.ratio == pytest.approx((1000 + others) / (1 + others), rel=0.02)
    assert ("no gain end to end" in decision.evidence.notes) is wash


PROGRAM = """
import sys
import numpy as np
import tunewright as tw

@tw.tune(tw.Space(tw.Knob("copy", [True, False])))
def transposed(x: tw.In("M", "N"), *, copy):
    return np.ascontiguousarray(x.T) if copy else x.T

def main(times):
    y = transposed(np.random.default_rng(0).standard_normal((700, 700), dtype=np.float32))
    for _ in range(times):
        y.ravel().sum()

if __name__ == "__main__":
    main(int(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.clock("the two programs differ about fivefold: neighbors may slow one of them down to a third of that")
def test_a_command_can_be_the_whole_program(tmp_path) -> None:
    import subprocess
    import sys

    (tmp_path / "app.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "tunewright", "tune", "app.py:transposed", "--shape", "700,700", "--json"]
    program = ["--program", f"{sys.executable} app.py 1500"]
    said = [
        subprocess.run(
            [*command, "--store", str(tmp_path / name), *more], cwd=tmp_path, capture_output=True, check=True
        )
        for name, more in (("alone", []), ("whole", program))
    ]
    alone, whole = (msgspec.json.decode(one.stdout)["decision"] for one in said)
    assert alone["config"] == {"copy": False}
    assert whole["config"] == {"copy": True}
    assert whole["evidence"]["end_to_end"]["high"] < 1
