"""Results are checked where they are timed: on new contents, at moments that nobody can foresee."""

import sys
import time

import numpy as np
import pytest

import tunewright as tw
from tunewright.measure.audit import MAX_AUDITS, AuditedSampler, AuditSchedule, audited_draws
from tunewright.model.trial import Kind

N = 64


def tune(way, *, reference=np.matmul, pool="serial", size=N, **options):
    """Tunes a kernel with an honest and another way, and returns the decision with the trial of the other."""
    session = tw.Session(store="memory:", pool=pool, trials=4, min_expected_gain=0.0)

    @tw.tune(tw.Space(tw.Knob("how", ["honest", "other"])), reference=reference, session=session, **options)
    def product(a: tw.In("N", "N"), b: tw.In("N", "N"), c: tw.Out("N", "N"), *, how="honest"):
        if how == "honest":
            c[...] = a.astype(np.float64) @ b.astype(np.float64)
        else:
            way(a, b, c)

    rng = np.random.default_rng(0)
    args = [rng.standard_normal((size, size), np.float32) for _ in range(3)]
    decision = product.tune(*args)
    trials = {trial.config["how"]: trial for trial in session.store.trials(decision.key)}
    return decision, trials["other"]


def remembering(key):
    """Returns a kernel that remembers results by a key."""
    kept = {}

    def kernel(a, b, c):
        place = key(a, b, c)
        if place not in kept:
            kept[place] = a @ b
        c[...] = kept[place]

    return kernel


def first_calls(count):
    calls = []  # a worker gets it by value, which a counter of itertools does not support from Python 3.14 on

    def kernel(a, b, c):
        calls.append(1)
        if len(calls) <= count:
            np.matmul(a, b, out=c)

    return kernel


def every(count):
    calls = []

    def kernel(a, b, c):
        calls.append(1)
        np.matmul(a, b, out=c)
        if len(calls) % count == 0:
            c[0] = 0

    return kernel


def address(array):
    return array.ctypes.data


def unless_poisoned(a, b, c):
    if np.isnan(c[0, 0]):
        np.matmul(a, b, out=c)


CHEATS = {
    "first 3 calls": lambda: first_calls(3),
    "first 200 calls": lambda: first_calls(200),
    "by pointer": lambda: remembering(lambda a, b, c: (address(a), address(b))),
    "by pointer and value": lambda: remembering(lambda a, b, c: (address(a), a[0, 0], b[0, 0])),
    "by rows": lambda: remembering(lambda a, b, c: (a[:2].tobytes(), b[:2].tobytes())),
    "only into poison": lambda: unless_poisoned,
    "every 7th wrong": lambda: every(7),
}


@pytest.mark.parametrize("name", CHEATS)
@pytest.mark.parametrize("pool", ["serial", "process:1"])
def test_a_kernel_that_computes_only_sometimes_is_wrong_and_not_chosen(name, pool) -> None:
    decision, trial = tune(CHEATS[name](), pool=pool)
    assert decision.config["how"] == "honest"
    assert trial.outcome.kind is Kind.WRONG
    assert "launch" in trial.outcome.reason


def test_remembering_whole_inputs_gains_nothing() -> None:
    """It is charged for inputs that it has not seen, or refused if it seems to begin with it during the trial."""
    kept = {}

    def kernel(a, b, c):
        key = a.tobytes(), b.tobytes()
        if key not in kept:
            kept[key] = a.astype(np.float64) @ b.astype(np.float64)
        c[...] = kept[key]

    decision, trial = tune(kernel, size=256)
    assert decision.config["how"] == "honest"
    assert trial.works or "remember" in trial.outcome.reason


def test_constant_inputs_may_be_kept_packed() -> None:
    session = tw.Session(store="memory:", pool="serial", trials=4)
    packed = {}

    @tw.tune(tw.Space(tw.Knob("how", ["plain", "packed"])), reference=np.matmul, session=session)
    def product(a: tw.In("N", "N"), w: tw.In("N", "N", constant=True), c: tw.Out("N", "N"), *, how="plain"):
        if how == "packed":
            w = packed.setdefault(address(w), w.copy())
        np.matmul(a, w, out=c)

    args = [np.ones((N, N), np.float32) for _ in range(3)]
    decision = product.tune(*args)
    assert all(trial.works for trial in session.store.trials(decision.key))


def test_a_result_that_changes_later_is_wrong() -> None:
    session = tw.Session(store="memory:", pool="serial", trials=4)
    buffer = np.empty(N)

    @tw.tune(tw.Space(tw.Knob("how", ["new", "same"])), reference=lambda x: x + 1, session=session)
    def add(x: tw.In("N"), *, how="new"):
        return np.add(x, 1, out=buffer) if how == "same" else x + 1

    decision = add.tune(np.ones(N))
    trials = {trial.config["how"]: trial for trial in session.store.trials(decision.key)}
    assert trials["new"].works
    assert "the same memory" in trials["same"].outcome.reason


def test_what_patches_the_clock_of_its_process_is_found_out() -> None:
    def patched(a, b, c):
        clocks = sys.modules["tunewright.measure.clock"].CLOCKS
        for name, now in list(clocks.items()):
            if not getattr(now, "slow", False):
                clocks[name] = lambda now=now: now() // 50
                clocks[name].slow = True
        np.matmul(a, b, out=c)

    decision, trial = tune(patched, pool="process:1")
    assert decision.config["how"] == "honest"
    assert "clock" in trial.outcome.reason


def test_what_patches_its_judge_is_found_out() -> None:
    def patched(a, b, c):
        sys.modules["tunewright.pools.judging"].RemoteJudge.compare = lambda *_: None
        c[...] = 0

    decision, trial = tune(patched, pool="process:1")
    assert decision.config["how"] == "honest"
    assert "judged" in trial.outcome.reason


def test_few_rounds_are_audited_on_contents_that_are_shared_if_the_reference_is_slow() -> None:
    schedule = AuditSchedule(0.1, audited_draws())
    first, second = ([schedule.round(number) for number in range(200)] for _ in range(2))
    assert [audited for _, audited in first] == [audited for _, audited in second]
    assert all((one == other) is one[1] for one, other in zip(first, second, strict=True))
    assert len({draw for draw, _ in first}) == 200
    assert 1 <= sum(audited for _, audited in first) <= MAX_AUDITS


def test_fast_references_are_asked_for_contents_that_no_other_candidate_has_seen() -> None:
    schedule = AuditSchedule(1e-3, audited_draws())
    draws = [schedule.round(number)[0] for number in [*range(100)] * 2] + [schedule.last, schedule.last]
    assert len(set(draws)) == len(draws)


class Recorder:
    """A candidate that notes on which contents it runs."""

    launches = 0

    def __init__(self):
        self.counted, self.audited = [], []

    def sample(self, draw, *, audited):
        (self.audited if audited else self.counted).append(draw)
        return float(draw)

    def check(self, draw, *, launches):
        return None


@pytest.mark.parametrize("is_audited", [True, False])
def test_samples_on_contents_that_others_have_seen_do_not_count(is_audited) -> None:
    schedule, recorder = AuditSchedule(0.1, audited_draws(), always_new=True), Recorder()
    sampler = AuditedSampler(recorder, schedule, lambda: None, audited=is_audited)
    shared = {draw for draw, audited in map(schedule.round, range(50)) if audited}
    assert [sampler() for _ in range(50)] == recorder.counted
    assert not shared & set(recorder.counted)
    assert set(recorder.audited) <= shared
    assert bool(recorder.audited) is is_audited


@pytest.mark.parametrize("seconds", [1e-3, pytest.param(0.02, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reference_seconds", [0.0, 0.01])
def test_what_another_config_computed_is_of_no_use(seconds, reference_seconds) -> None:
    """A config that reuses results of another, and is slower by itself, is measured as slower."""
    kept = {}
    session = tw.Session(store="memory:", pool="serial", trials=4, min_expected_gain=0.0)

    def reference(a):
        time.sleep(reference_seconds)
        return a * a

    @tw.tune(tw.Space(tw.Knob("how", ["honest", "other"])), reference=reference, session=session)
    def square(a: tw.In("N"), *, how="honest"):
        if how == "other" and a.tobytes() in kept:
            return kept[a.tobytes()]
        # CPU time: what the clock of the race counts, on a busy machine too
        ends = time.thread_time() + seconds * (1.3 if how == "other" else 1)
        while time.thread_time() < ends:
            pass
        return kept.setdefault(a.tobytes(), a * a)

    decision = square.tune(np.ones(256))
    assert decision.config["how"] == "honest"
    honest, other = sorted(session.store.trials(decision.key), key=lambda trial: trial.config["how"])
    assert not other.works or other.seconds > 1.2 * honest.seconds


def test_a_config_that_only_knows_what_another_computed_is_wrong() -> None:
    kept = {}
    session = tw.Session(store="memory:", pool="serial", trials=4, min_expected_gain=0.0)

    @tw.tune(tw.Space(tw.Knob("how", ["honest", "other"])), reference=np.square, session=session)
    def square(a: tw.In("N"), *, how="honest"):
        if how == "other":
            return kept.get(a.tobytes(), a)
        return kept.setdefault(a.tobytes(), a * a)

    decision = square.tune(np.arange(256.0))
    trials = {trial.config["how"]: trial for trial in session.store.trials(decision.key)}
    assert decision.config["how"] == "honest"
    assert trials["other"].outcome.kind is Kind.WRONG


def test_slow_references_are_not_asked_for_new_contents_in_trials() -> None:
    draws = audited_draws()
    assert AuditSchedule(10.0, draws).last == 0
    assert AuditSchedule(10.0, draws, always_new=True).last in draws
    assert AuditSchedule(0.1, draws).last in draws
