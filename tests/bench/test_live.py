"""Live: two builds of one package, raced in turn."""

import pytest

from tunewright.bench.ab import compare_builds
from tunewright.bench.calls import OperatorCall
from tunewright.bench.rounds import RoundOptions
from tunewright.bench.runner import BenchPlan
from tunewright.bench.worker import Build, choose_processors
from tunewright.errors import SettingsError

SOURCE = """
import numpy as np
from tunewright.operators import Implementation
from tunewright.operators.standard import REDUCE

def changed(x, out):
    for _ in range({times}):
        np.add.reduce(x, axis=-1, out=out)

def dying(x, out):
    {dies}
    changed(x, out)

def implementations():
    return [Implementation(one.__name__, REDUCE, one) for one in (changed, dying)]
"""
CALL = OperatorCall("reduce", {"M": 32, "N": 512})


def build(folder, times, dies="pass", src=False):
    place = folder / "src" if src else folder
    place.mkdir(parents=True)
    (place / "ours.py").write_text(SOURCE.format(times=times, dies=dies))
    return Build.from_path(str(folder), ("ours:implementations",))


@pytest.mark.slow
def test_ten_times_the_work_is_slower_in_the_build_that_does_it_and_a_crash_there_is_broken(tmp_path) -> None:
    before = build(tmp_path / "old", 20, src=True)
    after = build(tmp_path / "new", 200, dies="__import__('os').abort()")
    cells = [(CALL, "changed"), (CALL, "dying")]
    found = compare_builds(
        BenchPlan(options=RoundOptions(rounds=12), repeats=3), (before, after), cells, lambda message: None
    )
    changed, dying = found.changes
    assert changed.verdict == "slower"
    assert 5 < changed.ratio < 20  # by CPU time, which neighbors change little
    assert dying.verdict == "broken"
    assert "SIGABRT" in dying.reason


def test_a_build_is_a_checkout_an_environment_or_an_interpreter(tmp_path) -> None:
    (tmp_path / "checkout" / "src").mkdir(parents=True)
    assert Build.from_path(str(tmp_path / "checkout")).paths == (str(tmp_path / "checkout" / "src"),)
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    python.chmod(0o755)
    for place in (tmp_path / "env", python):
        made = Build.from_path(str(place))
        assert made.python == str(python)
        assert made.search_path() == ""
    with pytest.raises(SettingsError, match="no build at"):
        Build.from_path(str(tmp_path / "nowhere"))


def test_all_of_a_repeat_run_on_the_same_processors_and_the_next_on_others() -> None:
    import os

    ours = sorted(os.sched_getaffinity(0))
    assert choose_processors(1, 0) == (ours[0],)
    assert choose_processors(1, 1) == (ours[1 % len(ours)],)
    assert choose_processors(len(ours)) == tuple(ours)
    assert len(choose_processors(10 * len(ours))) == len(ours)
