"""What was decided elsewhere, raced here: kernels that say how long they take, and faults that were planted."""

import sys
from dataclasses import replace
from itertools import count

import msgspec
import numpy as np
import pytest

import tunewright as tw
from tunewright.engine.budget import Budget
from tunewright.model.decision import Decision, Evidence, Finalist
from tunewright.shipping import arrival_check
from tunewright.shipping.rerace import ArrivalCheck, ReraceVerdict
from tunewright.stores.bundle import BundleStore, verify_bundle
from tunewright.stores.bundle.build import build, write
from tunewright.stores.bundle.quarantine import Quarantine
from tunewright.stores.memory import MemoryStore
from tunewright.stores.sqlite import SqliteStore
from tunewright.stores.tiered import TieredStore
from tunewright.stores.transcripts import load_transcript
from worked_time import work

SPACE = tw.Space(tw.Knob("step", [1, 2, 3, 40, 80, 5, -1]))
FAST, MIDDLE, SLOW, CRASHES, WRONG = (tw.Config(step=step) for step in (1, 40, 80, 5, -1))

SOURCE = """
void spin(const float *x, float *y) {
    for (int r = 0; r < REPEAT; r++)
        for (int i = 0; i < N; i++) { y[i] = 2 * x[i]; __asm__ volatile("" ::: "memory"); }
}
"""
COMPILER = '#!/bin/sh\nif [ "$1" = --version ]; then echo "cc of vendor {version}"; else exec cc "$@"; fi\n'


def summed(x: tw.In("N"), *, step: int):
    if step == 5:
        raise RuntimeError("not on this machine")
    work(10 * abs(step))
    return sum(float(x[i::step].sum()) for i in range(step)) if step > 0 else 0.0


def session(**options):
    return tw.Session(store=options.pop("store", None) or MemoryStore(), pool="serial", **options)


def kernel(own, **declared):
    said = {"session": own, "default": {"step": 40}, "reference": lambda x: x.sum(), **declared}
    return tw.tune(SPACE, **said)(summed)


def shipped(tuned, config, size=1000, rivals=(FAST,), **changed):
    """A decision as it came: with evidence that names who was as good."""
    key = msgspec.structs.replace(tuned.problem([np.ones(size)]).key, **changed)
    ties = tuple(Finalist(rival, 1e-5, 1e-5, 1e-5) for rival in rivals)
    return Decision(key, config, Evidence(1e-5, 1e-5, 1e-5, ties=ties))


def bundled(folder, *decisions):
    digest = write(folder / "some.bundle", build(decisions))
    return BundleStore(verify_bundle(folder / "some.bundle", pin=digest))


@pytest.fixture
def own(by_work):
    return session()


@pytest.fixture
def tuned(own):
    return kernel(own)


def arrived(own, tuned, source=None, **more):
    return ArrivalCheck(source, own, {tuned.name: tuned}, level=1e-4, **more)


def test_what_holds_stands(own, tuned) -> None:
    result = arrived(own, tuned).rerace(shipped(tuned, FAST))
    assert (result.verdict, result.reason) == (ReraceVerdict.STANDS, "")
    assert result.new_decision.config == FAST
    assert result.raced == own.counts["measurements"] == 2  # itself and the default; its only rival is itself


def test_a_slow_one_is_healed_by_another_of_its_race(own, tuned) -> None:
    result = arrived(own, tuned).rerace(shipped(tuned, MIDDLE))
    assert result.verdict is ReraceVerdict.HEALED
    assert result.new_decision.config == FAST
    assert result.slower.low > 1.05
    assert "times as long as step=1" in result.reason


def test_one_slower_than_the_default_is_bad(own, tuned) -> None:
    result = arrived(own, tuned).rerace(shipped(tuned, SLOW, rivals=()))
    assert result.verdict is ReraceVerdict.BAD
    assert "longer than the default" in result.reason
    assert result.new_decision.config == MIDDLE


@pytest.mark.parametrize(("config", "said"), [(CRASHES, "not on this machine"), (WRONG, "wrong")])
def test_one_that_fails_or_is_wrong_is_bad_however_fast_it_is(own, tuned, config, said) -> None:
    result = arrived(own, tuned).rerace(shipped(tuned, config))
    assert result.verdict is ReraceVerdict.BAD
    assert said in result.reason
    assert result.new_decision.config == FAST


def test_where_bits_count_one_that_varies_is_bad_and_one_with_other_bits_heals_nothing(by_work) -> None:
    from random import random

    def noisy(x: tw.In("N"), *, step: int):
        work(400 if step == 40 else 10)
        late = sum(float(x[i::40].sum()) for i in range(40)) if step == 40 else float(x.sum())
        return late + (1e-9 * random() if step == 2 else 1e-9 * (step == 1))

    own = session(deterministic=True)
    tuned = tw.tune(SPACE, session=own, default={"step": 40}, tolerance=1e-6)(noisy)
    varies = arrived(own, tuned).rerace(shipped(tuned, tw.Config(step=2)))
    assert (varies.verdict, varies.reason) == (ReraceVerdict.BAD, "its results vary from run to run")
    faster = arrived(own, tuned).rerace(shipped(tuned, MIDDLE))
    assert (faster.verdict, faster.new_decision.config) == (ReraceVerdict.STANDS, MIDDLE)


def test_what_cannot_be_raced_says_why(own, tuned, tmp_path, monkeypatch) -> None:
    arrival = arrived(own, tuned)
    assert "source is" in arrival.rerace(shipped(tuned, FAST, source="another")).reason
    assert "no longer in the space" in arrival.rerace(shipped(tuned, tw.Config(step=7))).reason
    broken = kernel(own, inputs=lambda **sizes: 1 / 0)
    assert "ZeroDivisionError" in arrived(own, broken).rerace(shipped(tuned, FAST)).reason
    alone = replace(arrival, kernels={})
    result = alone.rerace(shipped(tuned, FAST))
    assert (result.verdict, result.new_decision) == (ReraceVerdict.UNRACED, None)
    assert "give it as FILE.py:NAME" in result.reason


def test_a_file_is_not_run_because_a_bundle_names_it(own, tuned, tmp_path, monkeypatch) -> None:
    tuned.decide(np.ones(1000))
    decision = tuned.decide(np.ones(1000))
    told = load_transcript(own.store, decision.key)
    (tmp_path / "trap").write_text("raise SystemExit('run')")
    (tmp_path / "trap.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)

    class Bundle:
        def __init__(self, target):
            self.target = target

        def read_attachment(self, kind, name):
            from tunewright.stores import serialization

            return serialization.encode(msgspec.structs.replace(told, target=self.target))

        def artifact_labels(self, kernel):
            return ()

    for target in (f"{tmp_path}/trap.py:summed", "trap.py:summed", "trap:summed", "./trap:summed"):
        assert "FILE.py:NAME" in ArrivalCheck(Bundle(target), own).rerace(decision).reason
    assert "its kernel is not found" in ArrivalCheck(Bundle("nowhere.at:all"), own).rerace(decision).reason
    assert "not a kernel" in ArrivalCheck(Bundle("math:pi"), own).rerace(decision).reason


def test_a_kernel_and_its_arguments_are_found_by_its_transcript(own, tmp_path, monkeypatch) -> None:
    (tmp_path / "shipped_kernels.py").write_text(
        "import tunewright as tw\nfrom worked_time import work\n"
        "@tw.tune(tw.Space(tw.Knob('step', [1, 2, 40])), default={'step': 40})\n"
        "def total(x: tw.In('N'), scale: float, *, step):\n"
        "    work(10 * step)\n"
        "    return scale * sum(float(x[i::step].sum()) for i in range(step))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import shipped_kernels

    shipped_kernels.total.using(own)
    decision = shipped_kernels.total.decide(np.ones(500), 3.0)
    assert decision.config == tw.Config(step=1)
    told = load_transcript(own.store, decision.key)
    assert told.target == "shipped_kernels:total"
    result = ArrivalCheck(own.store, session()).rerace(decision)
    assert result.verdict is ReraceVerdict.STANDS, result.reason
    assert result.new_decision.key == decision.key
    del sys.modules["shipped_kernels"]


def test_a_new_toolchain_races_only_the_best_and_the_default(tmp_path) -> None:
    (tmp_path / "spin.c").write_text(SOURCE)
    for version in ("1", "2"):
        script = tmp_path / f"cc-{version}"
        script.write_text(COMPILER.format(version=version))
        script.chmod(0o755)
    # The best is tenfold faster by the thread's own CPU time, which neighbors do not change.
    space = tw.Space(tw.Knob("REPEAT", [40, 1, 10, 20, 30, 50, 60, 70, 80, 90]))

    def spin(x: tw.In("N"), y: tw.Out("N")): ...

    def made(version, own):
        backend = tw.C(tmp_path / "spin.c", compiler=str(tmp_path / f"cc-{version}"), flags="-O1")
        return tw.tune(space, backend=backend, reference=lambda x: 2 * x, session=own)(spin)

    before, after = (
        session(strategy="exhaustive", cache=str(tmp_path / "cache")),
        session(cache=str(tmp_path / "cache")),
    )
    old, new = made("1", before), made("2", after)
    decision = old.decide(np.ones(4000, np.float32), np.ones(4000, np.float32))
    assert before.counts["measurements"] == 10
    assert decision.config == tw.Config(REPEAT=1)
    arrival = ArrivalCheck(before.store, after, {"spin": new}, top=2)
    entries, strangers = arrival_check.select_relevant(arrival, before.store.decisions())
    assert (len(entries), strangers) == (1, [])
    (result,) = arrival_check.rerace_all(arrival, entries)
    assert (result.verdict, result.new_decision.config) == (ReraceVerdict.STANDS, tw.Config(REPEAT=1))
    assert result.raced == after.counts["measurements"] <= 4
    assert list(result.new_decision.key.differences(decision.key)) == ["toolchain.compiler"]
    assert arrival_check.apply_result(arrival, result, None)
    assert after.store.get(result.new_decision.key) == result.new_decision
    assert "toolchain.compiler" in result.new_decision.evidence.notes[-1]
    assert load_transcript(after.store, result.new_decision.key).configs[0] in (
        tw.Config(REPEAT=40),
        tw.Config(REPEAT=1),
    )
    # What is decided for this machine by now is not raced again.
    again, _ = arrival_check.select_relevant(replace(arrival, source=after.store), after.store.decisions())
    assert list(arrival_check.rerace_all(arrival, again)) == []


def test_of_entries_for_several_machines_the_nearest_is_raced(own, tuned) -> None:
    device = tuned.problem([np.ones(10)]).key.device
    far = msgspec.structs.replace(device, model="Elsewhere", features=("abacus",), limits={"cores": 3})
    near = msgspec.structs.replace(device, model="Next door")
    both = [shipped(tuned, SLOW, device=far), shipped(tuned, FAST, device=near)]
    entries, _ = arrival_check.select_relevant(arrived(own, tuned), both)
    assert list(entries.values()) == [both[1]]
    entries, _ = arrival_check.select_relevant(arrived(own, tuned), [*both, exact := shipped(tuned, FAST)])
    assert list(entries.values()) == [exact]


def test_a_planted_regression_is_quarantined_and_the_next_tier_answers(own, tuned, tmp_path) -> None:
    good = shipped(tuned, FAST, size=1100)
    bundle = bundled(tmp_path, shipped(tuned, SLOW), good)
    arrival = arrived(own, tuned, bundle)
    quarantine = Quarantine(tmp_path / "cache", bundle.digest)
    for decision in bundle.decisions():
        arrival_check.apply_result(arrival, arrival.rerace(decision), quarantine)
    planted = tuned.problem([np.ones(1000)])
    assert list(quarantine.entries()) == [planted.key.digest]
    bundle.apply_quarantine(tmp_path / "cache")
    frozen = session(mode="frozen", store=TieredStore(MemoryStore(), bundle))
    nearest = frozen.lookup_or_policy(planted)
    assert (str(nearest.tier), nearest.key, nearest.config) == ("nearest shape", good.key, FAST)
    healed = session(mode="strict", store=TieredStore(MemoryStore(), bundle, own.store)).lookup_or_policy(planted)
    assert (str(healed.tier), healed.config) == ("exact", FAST)


def test_an_ordinary_store_gets_a_new_generation_and_the_old_one_can_come_back(tmp_path, by_work) -> None:
    store = SqliteStore(tmp_path / "some.sqlite")
    own = session(store=store)
    tuned = kernel(own)
    store.put(old := shipped(tuned, SLOW))
    arrival = arrived(own, tuned, store)
    result = arrival.rerace(old)
    arrival_check.apply_result(arrival, result, None)
    assert store.get(old.key).config == FAST
    assert [one.decision.config for one in store.history(old.key)] == [SLOW, FAST]
    store.put(store.history(old.key)[0].decision)
    assert store.get(old.key) == old


def test_a_sample_finds_what_went_bad_and_says_how_much_more_there_may_be(tuned, tmp_path) -> None:
    sizes = range(1000, 1010)
    bad = {sizes[i] for i in (3, 7)}
    decisions = [shipped(tuned, SLOW if size in bad else FAST, size) for size in sizes]
    own = session(seed=5)
    tuned.using(own)
    found = arrival_check.rerace_sample(arrived(own, tuned), decisions, Budget(6), suspects={decisions[3].key})
    assert [one.decision for one in found.suspects] == [decisions[3]]
    assert found.suspects[0].regressed
    assert len(found.drawn) == 5
    drawn = [decisions.index(one.decision) for one in found.drawn]
    assert found.statement.bad == sum(one.regressed for one in found.drawn) == sum(sizes[i] in bad for i in drawn)
    assert (found.statement.entries, found.statement.drawn) == (9, 5)
    assert found.statement.most < 1
    every = arrival_check.rerace_sample(arrived(own, tuned), decisions, Budget())
    assert (every.statement.bad, every.statement.most) == (2, 0.2)


def test_seconds_end_a_sample_too(own, tuned) -> None:
    decisions = [shipped(tuned, FAST, size) for size in range(1000, 1200)]
    ticks = count()
    found = arrival_check.rerace_sample(
        arrived(own, tuned), decisions, Budget(seconds=5, clock=lambda: float(next(ticks)))
    )
    assert len(found.drawn) == 4  # the clock goes on by a second whenever it is asked


def test_an_alarm_that_is_not_confirmed_is_none(own, tuned, monkeypatch) -> None:
    arrival = arrived(own, tuned)
    monkeypatch.setattr(type(arrival), "_is_confirmed", lambda *args: False)
    result = arrival.rerace(shipped(tuned, MIDDLE))
    assert (result.verdict, result.regressed) == (ReraceVerdict.STANDS, False)
    assert "not confirmed" in result.reason
