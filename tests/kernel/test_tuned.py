import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tunewright as tw
import tunewright.model.event
from tunewright.errors import PluginError, SettingsError, SignatureError, SpaceError
from tunewright.model.decision import Tier
from tunewright.stores.memory import MemoryStore

SPACE = tw.Space(tw.Knob("step", [1, 2, 4]))


def summed(x: tw.In("N"), *, step: int):
    return sum(float(x[i::step].sum()) for i in range(step))


def clashing(x: tw.In("step"), *, step): ...


def session(**options):
    return tw.Session(store=options.pop("store", None) or MemoryStore(), pool="serial", **options)


def make(function=summed, **declared):
    return tw.tune(SPACE, **{"session": session(), **declared})(function)


def test_it_is_called_like_the_function_it_was_made_from() -> None:
    tuned = make()
    assert tuned(np.ones(8)) == 8
    assert tuned(x=np.ones(8)) == 8
    assert tuned.__name__ == "summed"
    assert isinstance(tuned, tw.Tuned)
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        tuned(np.ones(8), y=1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        tuned()


def test_a_second_call_measures_nothing_and_a_second_kernel_reads_the_store() -> None:
    store = MemoryStore()
    first = make(session=session(store=store))
    first(np.ones(8))
    first(np.ones(8))
    assert first.session.counts == {"searches": 1, "measurements": 3}
    second = make(session=session(store=store, mode="strict"))
    second(np.ones(8))
    assert second.session.counts == {"exact": 1}


def test_a_second_process_under_another_path_measures_nothing(tmp_path) -> None:
    text = (
        "import numpy as np, tunewright as tw\n"
        "@tw.tune(tw.Space(tw.Knob('step', [1, 2])))\n"
        "def total(x: tw.In('N'), *, step): return x[::1].sum()\n"
        "total(np.ones(9))\nprint(tw.current_session().counts['measurements'])\n"
    )
    said = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        script = tmp_path / place / f"{place}.py"
        # Lines above, a comment and another file name: none of it changes what is decided.
        script.write_text("# moved\n\n" * (place == "there") + text)
        out = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path / place
        )
        said.append(out.stdout.strip())
    assert said == ["2", "0"]


def test_frozen_serves_the_default_says_so_and_measures_nothing(caplog) -> None:
    tuned = make(session=session(mode="frozen"), default={"step": 2})
    with caplog.at_level(logging.WARNING):
        assert tuned(np.ones(8)) == 8
        assert tuned(np.ones(8)) == 8
    assert tuned.session.counts == {"default": 1}
    assert caplog.text.count("The default is used") == 1
    assert tuned.decide(np.ones(8)).tier is Tier.DEFAULT
    assert tuned.decide(np.ones(8)).config == tw.Config(step=2)


def test_strict_raises_and_names_the_field_that_differs() -> None:
    store = MemoryStore()
    make(session=session(store=store))(np.ones(8))
    strict = make(session=session(store=store, mode="strict"))
    with pytest.raises(tw.NoDecision, match=r"signature.dims.N is 9, stored 8"):
        strict(np.ones(9))
    with pytest.raises(tw.NoDecision, match="nothing is decided"):
        make(session=session(mode="strict"))(np.ones(9))


def test_off_looks_nothing_up() -> None:
    store = MemoryStore()
    make(session=session(store=store))(np.ones(8))
    off = make(session=session(store=store, mode="off"), default={"step": 4})
    assert off.decide(np.ones(8)).config == tw.Config(step=4)
    assert off.session.counts == {"default": 1}


def test_a_decision_outside_the_space_is_passed_over_and_a_wider_space_keeps_it() -> None:
    store = MemoryStore()
    decided = make(session=session(store=store)).decide(np.ones(8)).config["step"]
    wider = tw.tune(tw.Space(tw.Knob("step", [1, 2, 4, 8])), session=session(store=store, mode="strict"))(summed)
    assert wider.decide(np.ones(8)).config["step"] == decided
    others = [step for step in (1, 2, 4) if step != decided]
    narrower = tw.tune(tw.Space(tw.Knob("step", others)), session=session(store=store, mode="strict"))(summed)
    with pytest.raises(tw.NoDecision):
        narrower.decide(np.ones(8))


def test_buckets_bound_the_number_of_tunings() -> None:
    tuned = make(buckets={"N": [64, 256, 1024]}, session=session(trials=1))
    rng = np.random.default_rng(0)
    for size in rng.integers(1, 1500, size=300):
        assert tuned(np.ones(size)) == size
    assert tuned.session.counts["searches"] == 3


def test_a_bucket_is_tuned_at_its_own_size() -> None:
    sizes = []

    def kernel(x: tw.In("N"), *, step):
        sizes.append(len(x))

    tw.tune(SPACE, session=session(), buckets={"N": [64]})(kernel)(np.ones(10))
    assert set(sizes[:-1]) == {64}
    assert sizes[-1] == 10


def test_the_callers_arrays_are_touched_once_by_the_final_launch() -> None:
    def double(x: tw.InOut("N"), *, step):
        x *= 2

    x = np.ones(8)
    tw.tune(SPACE, session=session())(double)(x)
    assert (x == 2).all()
    y = np.ones(8)
    tw.tune(SPACE, session=tw.Session())(double)(y)
    assert (y == 2).all()

    def add(x, total, *, step):
        total += x.sum()

    total = np.zeros(1)
    tw.tune(SPACE, session=session())(add)(np.ones(4), total)
    assert total[0] == 4


def test_a_fast_but_wrong_config_is_refused() -> None:
    def kernel(x: tw.In("N"), y: tw.Out("N"), *, step):
        if step == 4:
            y[:] = 0
        else:
            for _ in range(200):
                y[:] = 2 * x

    tuned = tw.tune(SPACE, session=session(), reference=lambda x: 2 * x)(kernel)
    y = np.zeros(64)
    tuned(np.ones(64), y)
    assert (y == 2).all()
    assert tuned.decide(np.ones(64), y).config["step"] != 4


def test_without_a_reference_the_default_is_the_judge() -> None:
    def kernel(x: tw.In("N"), y: tw.Out("N"), *, step):
        y[:] = step

    tuned = tw.tune(SPACE, session=session(), default={"step": 2})(kernel)
    y = np.zeros(4)
    tuned(np.ones(4), y)
    assert (y == 2).all()


def test_an_output_nobody_writes_is_not_right_by_agreement() -> None:
    def kernel(x: tw.In("N"), y: tw.Out("N"), *, step): ...

    with pytest.raises(tw.TunewrightError, match="elements of y unwritten"):
        tw.tune(SPACE, session=session())(kernel)(np.ones(4), np.ones(4))


def test_inputs_of_ones_own() -> None:
    seen = []

    def kernel(xs, *, step):
        seen.append(list(xs))
        return sum(xs)

    def inputs(n=3):
        return ([7] * n,)

    tuned = tw.tune(SPACE, session=session(), inputs=inputs)(kernel)
    assert tuned([1, 2]) == 3
    assert seen[0] == [7, 7, 7]
    assert seen[-1] == [1, 2]


def test_threads_tune_once() -> None:
    tuned = make()
    threads = [threading.Thread(target=tuned, args=(np.ones(8),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tuned.session.counts["searches"] == 1


def test_launchers_are_not_kept_without_bound(monkeypatch) -> None:
    monkeypatch.setattr("tunewright.kernel.tuned.MAX_LAUNCHERS", 5)
    tuned = make(session=session(mode="off"))
    for size in range(1, 20):
        tuned(np.ones(size))
    assert len(tuned._ready) == 5


def test_a_decision_by_hand() -> None:
    tuned = make()
    decision = tuned.tune(np.ones(8))
    assert decision.config in SPACE
    assert tuned.decide(np.ones(8)) == decision


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda: make(default={"stp": 1}), SpaceError, "did you mean 'step'"),
        (lambda: make(default={"step": 3}), SpaceError, "not allowed"),
        (lambda: make(defualt={"step": 1}), SpaceError, "tune takes backend, buckets"),
        (lambda: tw.tune([1, 2]), SpaceError, "takes a space first"),
        (lambda: make(lambda x, stp: x), SpaceError, "takes no argument 'step'"),
        (lambda: make()([1, 2]), SignatureError, "not what the kernel declares"),
        (lambda: make(lambda step, x: x), SpaceError, "knobs come after"),
        (lambda: make(lambda self, x, step: x), SignatureError, "no method"),
        (lambda: make(clashing), SpaceError, "names both a knob and a dimension"),
        (lambda: make(lambda x, *, step, scale: x), SignatureError, "'scale' comes after"),
        (lambda: make(buckets={"M": [1]}), SignatureError, "no argument has such a dimension"),
        (lambda: make()(np.ones((2, 2))), SignatureError, "declared as"),
        (lambda: make(lambda *args, step: 1), SignatureError, "name each argument"),
        (lambda: make(session=session(strategy="nope"))(np.ones(2)), PluginError, "installed: anneal, bayes"),
        (lambda: session(mode="fast"), SettingsError, "modes: tune, frozen, record, strict, off"),
        (lambda: session(trails=5), SettingsError, "no setting 'trails'"),
        (lambda: session(trials="many"), SettingsError, "must be a whole number"),
    ],
)
def test_every_mistake_says_what_to_do(act, error, said) -> None:
    with pytest.raises(error, match=said):
        act()


def test_another_reference_asks_another_question() -> None:
    store = MemoryStore()
    with pytest.raises(tw.NothingWorked):
        make(session=session(store=store), reference=lambda x: x.sum() + 1)(np.ones(8))
    assert make(session=session(store=store), reference=lambda x: x.sum())(np.ones(8)) == 8


def test_where_nothing_worked_the_next_run_tries_again() -> None:
    broken = [True]

    def kernel(x: tw.In("N"), *, step):
        if broken[0]:
            raise OSError("disk full")
        return x.sum()

    store = MemoryStore()
    with pytest.raises(tw.NothingWorked):
        tw.tune(SPACE, session=session(store=store), reference=lambda x: x.sum())(kernel)(np.ones(4))
    broken[0] = False
    assert tw.tune(SPACE, session=session(store=store), reference=lambda x: x.sum())(kernel)(np.ones(4)) == 4


def test_a_config_may_not_return_less_precise_results_than_the_default() -> None:
    space = tw.Space(tw.Knob("dtype", ["float32", "float16"]))

    def kernel(x: tw.In("N"), *, dtype):
        return x.astype(dtype) * 2

    own = session(strategy="exhaustive")
    tuned = tw.tune(space, session=own)(kernel)
    assert tuned(np.ones(4, np.float32)).dtype == np.float32
    outcomes = [trial.outcome for trial in own.store.trials(tuned.problem([np.ones(4, np.float32)]).key)]
    assert "is a float16, the default gives a float32" in outcomes[1].reason


def test_arguments_may_have_defaults() -> None:
    def kernel(x: tw.In("N"), times: int = 3, *, step):
        return x.sum() * times

    tuned = make(kernel)
    assert tuned(np.ones(2)) == 6
    assert tuned(np.ones(2), 4) == 8
    assert tuned(np.ones(2), times=5) == 10


@pytest.mark.slow
def test_a_kernel_inside_a_kernel_tunes_nothing_while_it_is_tried() -> None:
    inner = tw.tune(SPACE, session=tw.Session())(summed)

    def outer(x: tw.In("N"), *, step):
        return inner(x) * 1.0

    tuned = tw.tune(SPACE, session=tw.Session(run_seconds=300), reference=lambda x: x.sum())(outer)
    assert tuned(np.ones(8)) == 8
    assert inner.session.counts["searches"] <= 1


def test_two_that_tune_at_once_agree_on_the_first_published() -> None:
    store = MemoryStore()
    first, second = (make(session=session(store=store)) for _ in range(2))
    key = first.problem([np.ones(8)]).key

    def publish_meanwhile(event):
        if isinstance(event, tw.model.event.TrialFinished) and store.get(key) is None:
            first.decide(np.ones(8))

    second.session.listeners.append(publish_meanwhile)
    assert second.tune(np.ones(8)) == store.get(key)


def test_a_store_may_be_named_by_its_path(tmp_path) -> None:
    own = tw.Session(store=str(tmp_path / "mine.sqlite"), pool="serial")
    make(session=own)(np.ones(8))
    assert (tmp_path / "mine.sqlite").is_file()


def test_an_interrupted_search_is_resumed_by_the_next_call() -> None:
    store = MemoryStore()

    def stop(event):
        if isinstance(event, tw.model.event.TrialFinished):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(session=tw.Session(store=store, pool="serial", listeners=[stop]))(np.ones(8))
    later = make(session=session(store=store))
    later(np.ones(8))
    assert later.session.counts["replayed"] == 1
    assert later.session.counts["measurements"] == 2
    frozen = make(session=session(store=store, mode="frozen"))
    frozen(np.ones(8))
    assert frozen.session.counts == {"exact": 1}


def test_inputs_unlike_the_call_are_remarked_upon(caplog) -> None:
    tuned = make(inputs=lambda: (np.ones(4),))
    tuned(np.ones(100))
    assert "is tuned on the arguments that `inputs` makes" in caplog.text


@pytest.mark.slow
def test_programs_from_a_pipe_and_without_a_suffix_work(tmp_path) -> None:
    text = (
        "import numpy as np, tunewright as tw\n"
        "@tw.tune(tw.Space(tw.Knob('step', [1, 2])))\n"
        "def total(x: tw.In('N'), *, step): return x.sum()\n"
        "print(total(np.ones(9)))\n"
    )
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout == "9.0\n"
    (tmp_path / "program").write_text(text)
    done = subprocess.run([sys.executable, str(tmp_path / "program")], capture_output=True, text=True, check=True)
    assert done.stdout == "9.0\n"


@pytest.mark.slow
def test_a_module_that_calls_its_kernel_can_be_imported_and_tuned(tmp_path) -> None:
    (tmp_path / "mod.py").write_text(
        "import numpy as np, tunewright as tw\n"
        "@tw.tune(tw.Space(tw.Knob('step', [1, 2])))\n"
        "def total(x: tw.In('N'), *, step): return x.sum()\n"
        "total(np.ones(3))\n"
    )
    (tmp_path / "app.py").write_text(
        "import mod, numpy as np, tunewright as tw\n"
        "@tw.tune(tw.Space(tw.Knob('step', [1, 2])))\n"
        "def other(x: tw.In('N'), *, step): return 2 * mod.total(x)\n"
        "print(mod.total(np.ones(4)), other(np.ones(5)))\n"
    )
    done = subprocess.run([sys.executable, str(tmp_path / "app.py")], capture_output=True, text=True, check=True)
    assert done.stdout == "4.0 10.0\n"


def test_a_space_beyond_counting_is_searched() -> None:
    space = tw.Space(*(tw.Knob(f"k{i}", range(64)) for i in range(11)))
    names = ", ".join(space.names)
    scope: dict = {}
    exec(f"def kernel(*, {names}): return 0", scope)
    decision = tw.tune(space, session=session(trials=5))(scope["kernel"]).decide()
    assert decision.evidence.trials == 5


def test_lists_are_restored_for_each_finalist_of_a_race() -> None:
    lengths = []

    def kernel(xs, *, step):
        lengths.append(len(xs))
        xs.append(step)

    tuned = make(kernel, inputs=lambda: ([1, 2, 3],), reference=lambda xs: xs.append(9), tolerance=1e9)
    with pytest.raises(tw.NothingWorked):  # the results differ, which is not what this is about
        tuned([1, 2, 3])

    def sort(xs, *, step):
        lengths.append(xs == sorted(xs))
        xs.sort()

    lengths.clear()
    make(sort, inputs=lambda: ([3, 1, 2],))([3, 1, 2])
    assert not any(lengths[:-1]), "each launch began with an unsorted list"


def test_a_kernel_goes_to_other_processes_by_name() -> None:
    import pickle

    sys.path.insert(0, str(Path(__file__).parent.parent / "kernels"))
    from counted import double

    assert pickle.loads(pickle.dumps(double)) is double  # noqa: S301 - our own bytes
    with pytest.raises(TypeError, match="cannot be found by name"):
        pickle.dumps(make())


def test_calls_that_are_warmed_up_are_read_in_one_go() -> None:
    class Counting(MemoryStore):
        asked = 0

        def get_many(self, keys):
            self.asked += 1
            return super().get_many(keys)

    store = Counting()
    make(session=session(store=store))(np.ones(8, np.float32))  # of the dtype that sizes are made in
    frozen = make(session=session(store=store, mode="frozen"))
    store.asked = 0
    assert frozen.warm([{"N": 8}, {"N": 9}, (np.ones(10),)]) == 1
    assert store.asked == 1
