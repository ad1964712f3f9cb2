"""What a kernel says of itself in Python: explanations, trials and plots, of a call or of the only decision."""

import sys

import numpy as np
import pytest

import tunewright as tw
from tunewright.errors import PluginError


@pytest.fixture(scope="module")
def double():
    def double(x: tw.In("N"), *, step):
        if step == 3:
            raise ValueError("three is no step")
        return 2 * x

    session = tw.Session(store="memory:", pool="serial")
    kernel = tw.tune(tw.Space(tw.Knob("step", [1, 2, 3])), reference=lambda x: 2 * x, session=session)(double)
    kernel(np.ones(3))
    return kernel


def test_an_explanation_says_what_the_command_says_and_can_be_read_at_a_prompt(double) -> None:
    text = double.explain(np.ones(3))
    assert repr(text) == text
    for part in ("double  N=3", "exact: step=", "found by portfolio", "3 trials", "1 failed"):
        assert part in text
    assert double.explain() == text, "the only decision needs no arguments"


def test_a_call_that_is_not_decided_is_explained_and_not_tuned(double) -> None:
    before = dict(double.session.counts)
    text = double.explain(np.ones(4))
    assert "nearest shape" in text
    assert "signature.dims.N: 4 here, 3 stored" in text
    assert text.endswith("tune it with: double.tune(...) with these arguments")
    assert dict(double.session.counts) == before


def test_trials_are_those_of_the_search(double) -> None:
    pytest.importorskip("pandas")
    frame = double.trials(np.ones(3))
    assert len(frame) == 3
    assert sorted(frame["step"]) == [1, 2, 3]
    assert list(frame[frame["step"] == 3]["outcome"]) == ["raised"]
    assert "three is no step" in frame[frame["step"] == 3]["reason"].iloc[0]
    assert len(double.trials()) == 3
    assert len(double.trials(np.ones(4))) == 0


def test_a_plot_is_a_figure_that_a_notebook_shows_once(double) -> None:
    pytest.importorskip("matplotlib")
    figure = double.plot()
    assert figure._repr_png_()[:4] == b"\x89PNG"
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    with pytest.raises(tw.NoDecision, match="nothing to draw"):
        double.plot(np.ones(4))


def test_without_matplotlib_the_error_says_what_to_install(double, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "tunewright.report.notebook_figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PluginError, match=r"pip install 'tunewright\[plot\]'"):
        double.plot()


def test_with_none_or_several_decisions_a_call_must_be_named() -> None:
    space, session = tw.Space(tw.Knob("step", [1, 2])), tw.Session(store="memory:", mode="off")
    kernel = tw.tune(space, session=session, name="many")(lambda x, *, step: x)
    with pytest.raises(tw.NoDecision, match="nothing is decided for many yet; call it first"):
        kernel.explain()
    kernel(np.ones(1))
    kernel(np.ones(2))
    for method in (kernel.explain, kernel.trials, kernel.plot):
        with pytest.raises(tw.NoDecision, match=rf"several decisions \(.*\); say which.*many\.{method.__name__}"):
            method()


def test_the_decision_of_an_earlier_process_is_found_by_name(tmp_path) -> None:
    def kernel():
        session = tw.Session(store=tmp_path / "store.sqlite", pool="serial")
        return tw.tune(tw.Space(tw.Knob("step", [1])), session=session, name="kept")(lambda x, *, step: x)

    first, later = kernel(), kernel()
    first(np.ones(3))
    assert "exact: step=1" in later.explain()
    assert len(later.trials()) == 1
