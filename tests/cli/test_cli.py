import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tunewright.session import Session

KERNELS = Path(__file__).parent.parent / "kernels"
KERNEL = """
import numpy as np
import tunewright as tw

space = tw.Space(
    tw.Knob("step", [1, 2, 4, 8]),
    tw.Knob("twice", [False, True]),
    rules=[tw.Rule("8 is not doubled", lambda step, twice: step < 8 or twice == False)],
)

@tw.tune(space, reference=lambda x: x.sum(), shapes=[{"N": 64}])
def total(x: tw.In("N"), *, step, twice):
    for _ in range(1 + twice):
        result = sum(x[i::step].sum() for i in range(step))
    return result

@tw.tune(tw.Space(tw.Knob("k", range(500))))
def slow(*, k):
    import time
    time.sleep(0.01)

not_a_kernel = 3
"""


@pytest.fixture
def here(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "broken.py").write_text("1 / 0")
    return tmp_path


def tunewright(*args, cwd, status=0):
    command = [sys.executable, "-m", "tunewright", *args]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_tune_show_explain_trials_and_space_in_turn(here) -> None:
    tuned = tunewright("tune", "kernels.py:total", "--budget", "7", cwd=here)
    assert "7 configs" in tuned.stderr
    assert "decided" in tuned.stderr
    again = tunewright("tune", "kernels.py:total", "--budget", "8", cwd=here)
    assert "already decided" in again.stdout
    assert "the budget was not used; add --more" in again.stdout
    assert "none failed" in tunewright("trials", "total", "--failed", cwd=here).stdout
    shown = tunewright("show", cwd=here).stdout
    assert "total" in shown
    assert "N=64" in shown
    assert "\x1b" not in shown
    explained = tunewright("explain", "kernels.py:total", cwd=here).stdout
    assert "exact:" in explained
    missed = tunewright("explain", "kernels:total", "--shape", "N=65", cwd=here).stdout
    assert "signature.dims.N: 65 here, 64 stored" in missed
    listed = tunewright("trials", "total", "--best", "0", cwd=here).stdout
    assert listed.count("step=") == 7
    described = tunewright("space", "kernels.py:total", "--sample", "2", cwd=here).stdout
    assert "8 combinations, 7 feasible" in described
    assert "8 is not doubled" in described
    assert described.count("sample:") == 2


def test_json_everywhere(here) -> None:
    tuned = json.loads(tunewright("tune", "kernels.py:total", "--json", cwd=here).stdout)
    assert tuned["counts"]["measurements"] == 7
    assert tuned["known"] is False
    again = json.loads(tunewright("tune", "kernels.py:total", "--json", cwd=here).stdout)
    assert again["known"] is True
    assert again["decision"] == tuned["decision"]
    assert len(json.loads(tunewright("show", "--json", cwd=here).stdout)) == 1
    explained = json.loads(tunewright("explain", "kernels.py:total", "--shape", "65", "--json", cwd=here).stdout)
    assert explained["tier"] == "nearest shape"
    assert explained["nearest"][0]["differences"] == {"signature.dims.N": ["65", "64"]}
    trials = json.loads(tunewright("trials", "total", "--json", cwd=here).stdout)
    assert len(trials["trials"]) == 7
    space = json.loads(tunewright("space", "kernels.py:total", "--json", cwd=here).stdout)
    assert (space["combinations"], space["feasible"]) == (8, 7)
    assert space["rules"][0]["excludes"] == pytest.approx(1 / 8, abs=0.02)


def test_a_range_is_described_and_not_listed(here) -> None:
    (here / "ranges.py").write_text(
        "import tunewright as tw\n"
        "knobs = [tw.Knob('a', tw.Range(1, 4096, scale='log')), tw.Knob('b', tw.Range(8, 4096, step=8))]\n"
        "space = tw.Space(*knobs, rules=[tw.Rule('a holds b', lambda a, b: a >= b)])\n"
        "@tw.tune(space)\n"
        "def wide(x: tw.In('N'), *, a=64, b=8): ...\n"
    )
    described = tunewright("space", "ranges.py:wide", cwd=here).stdout
    assert "1 to 4096, log scale" in described
    assert "8 to 4096 in steps of 8" in described
    assert "2,097,152 combinations, too many to enumerate" in described
    assert len(described) < 1000
    space = json.loads(tunewright("space", "ranges.py:wide", "--json", cwd=here).stdout)
    assert space["knobs"]["b"] == {"low": 8, "high": 4096, "step": 8, "scale": "linear"}
    assert space["default"] == {"a": 64, "b": 8}


@pytest.mark.slow
def test_a_search_is_drawn_and_recorded(here) -> None:
    tunewright("tune", "kernels.py:total", cwd=here)
    for name in ("out.png", "out.html"):
        tunewright("show", "total", "--plot", name, "--x", "step", "--y", "twice", cwd=here)
        assert (here / name).stat().st_size > 10_000
    tunewright("trials", "total", "--save", "total.parquet", cwd=here)
    from tunewright.backends.replay import Recording

    assert len(Recording.read(here / "total.parquet").trials) == 7


@pytest.mark.slow
def test_explain_says_and_draws_which_knobs_mattered(here) -> None:
    pytest.importorskip("sklearn")
    (here / "wide.py").write_text(KERNEL.replace("[1, 2, 4, 8]", "[1, 2, 3, 4, 5, 6, 7, 8]"))
    tunewright("tune", "wide.py:total", "--budget", "15", cwd=here)
    said = tunewright("explain", "wide.py:total", "--knobs", "--plot", "knobs.svg", cwd=here).stdout
    assert "which knobs mattered, from 15 trials" in said
    assert "share of what mattered" in said
    assert (here / "knobs.svg").stat().st_size > 5000
    told = json.loads(tunewright("explain", "wide.py:total", "--knobs", "--json", cwd=here).stdout)["knobs"]
    assert {one["knob"] for one in told["knobs"]} == {"step", "twice"}
    nothing = tunewright("explain", "kernels.py:slow", "--knobs", "--plot", "knobs.svg", cwd=here, status=1)
    assert "cannot be said" in nothing.stdout
    assert "nothing to draw" in nothing.stderr


def test_failures_are_listed_with_their_reasons(here) -> None:
    budget = ("--budget", "2", "--strategy", "exhaustive")
    tunewright("tune", str(KERNELS / "faulty.py"), *budget, cwd=here)
    listed = tunewright("trials", "twice", "--failed", cwd=here).stdout
    assert "crashed at verify: killed by SIGSEGV" in listed


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("tune", "nowhere.py:x"), 2, "no file nowhere.py"),
        (("tune", "kernels.py:nope"), 2, "defines no 'nope'"),
        (("tune", "kernels.py:not_a_kernel"), 2, "not a kernel"),
        (("tune", "kernels.py"), 2, "say which"),
        (("tune", "nomodule:x"), 2, "there is no module 'nomodule'"),
        (("tune", "kernels.py:total", "--budget", "soon"), 2, "cannot read the budget"),
        (("tune", "kernels.py:total", "--shape", "1,2"), 2, "has 2 sizes"),
        (("tune", "kernels.py:total", "--shape", "x"), 2, "cannot read the shape"),
        (("tune", "kernels.py:total", "--strategy", "nope"), 2, "installed: anneal, bayes"),
        (("show",), 1, "Tune a kernel: tunewright tune"),
        (("trials", "nope"), 1, "nothing is decided for 'nope'"),
        (("tune", "kernels.py:total", "--shape", "N=-4"), 2, "cannot be negative"),
        (("space", "kernels.py:total", "--sample", "-3"), 2, "is not in the range"),
        (("tune", "broken.py:x"), 2, "raised ZeroDivisionError"),
        (("show", "--colour"), 2, "No such option"),
        (("nope",), 2, "No such command"),
    ],
)
def test_every_mistake_is_one_line_that_says_what_to_do(here, args, status, said) -> None:
    done = tunewright(*args, cwd=here, status=status)
    assert said in done.stderr


def test_ctrl_c_keeps_what_was_found_and_the_next_run_goes_on(here, wait_until) -> None:
    command = [sys.executable, "-m", "tunewright", "tune", "kernels.py:slow"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=here)
    store = Session().store
    wait_until(lambda: [trial for key in list(store.keys()) for trial in store.trials(key)], "a trial")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "what was found is kept" in err
    found = json.loads(tunewright("show", "slow", "--json", cwd=here).stdout)
    kept = found[0]["evidence"]["trials"]
    assert kept >= 1
    assert found[0]["evidence"]["complete"] is False
    more = json.loads(tunewright("tune", "kernels.py:slow", "--budget", str(kept + 2), "--json", cwd=here).stdout)
    assert more["counts"]["replayed"] == kept
    assert more["counts"]["measurements"] == 2


def test_a_terminal_sees_a_bar_and_a_table(here, terminal) -> None:
    process = terminal.start([sys.executable, "-m", "tunewright", "tune", "kernels.py:total"], cwd=here)
    said = terminal.read()
    assert process.wait(300) == 0
    assert "trials" in said
    assert "\x1b[" in said


def test_what_is_left_out_of_a_list_is_said(here) -> None:
    tunewright("tune", "kernels.py:total", "--budget", "4", cwd=here)
    said = tunewright("trials", "total", "--best", "1", cwd=here).stdout
    assert "more; --best 0 lists all" in said
    wrong = tunewright("trials", "total", "--key", "zz", cwd=here, status=1).stderr
    assert "no key begins with 'zz'" in wrong


def test_a_store_can_be_named_everywhere(here) -> None:
    tunewright("tune", "kernels.py:total", "--store", "mine.sqlite", cwd=here)
    assert (here / "mine.sqlite").is_file()
    assert "total" in tunewright("show", "--store", "mine.sqlite", cwd=here).stdout
    assert "exact" in tunewright("explain", "kernels.py:total", "--store", "mine.sqlite", cwd=here).stdout
    assert "step" in tunewright("trials", "total", "--store", "sqlite:mine.sqlite", cwd=here).stdout
    (here / "bad.sqlite").write_text("no database" * 100)
    said = tunewright("show", "--store", "bad.sqlite", cwd=here, status=1).stderr
    assert "SqliteStore is skipped" in said


@pytest.mark.slow
def test_more_searches_on_and_fresh_starts_over(here) -> None:
    first = json.loads(tunewright("tune", "kernels.py:total", "--budget", "3", "--json", cwd=here).stdout)
    assert first["counts"]["measurements"] == 3
    more = json.loads(tunewright("tune", "kernels.py:total", "--budget", "2", "--more", "--json", cwd=here).stdout)
    assert (more["counts"]["replayed"], more["counts"]["measurements"]) == (3, 2)
    fresh = json.loads(tunewright("tune", "kernels.py:total", "--budget", "3", "--fresh", "--json", cwd=here).stdout)
    assert fresh["counts"]["measurements"] == 3


def test_a_decision_that_could_not_be_kept_is_no_success(here) -> None:
    (here / "file").write_text("")
    command = ["tune", "kernels.py:total", "--store", "file/x.sqlite", "--budget", "2"]
    done = tunewright(*command, "--json", "--progress", cwd=here, status=2)
    assert done.stderr.index("the result will be printed, but not stored") < done.stderr.index("1 trial")
    answer = json.loads(done.stdout)
    assert answer["decision"]["config"]
    assert (answer["stored"], "not kept" in answer["note"]) == (False, True)


@pytest.mark.parametrize("options", [["--json"], []])
@pytest.mark.slow
def test_the_best_command_line_is_printed_even_if_it_is_not_stored(here, options) -> None:
    (here / "file").write_text("")
    command = ["command", "expr {t} + 1", "--knob", "t=1,2", "--check", "none", "--budget", "2"]
    done = tunewright(*command, "--store", "file/x.sqlite", *options, cwd=here, status=2)
    line = json.loads(done.stdout)["command"] if options else done.stdout.splitlines()[-1]
    assert line in ("expr 1 + 1", "expr 2 + 1")
    assert "not kept" in done.stderr


def test_a_kernels_own_session_is_respected(here) -> None:
    text = KERNEL.replace(
        'shapes=[{"N": 64}]', 'shapes=[{"N": 64}], session=tw.Session(store="own.sqlite", mode="strict")'
    )
    (here / "own.py").write_text(text + "\nif __name__ == '__main__':\n    print(total(np.ones(64, np.float32)))\n")
    tunewright("tune", "own.py:total", cwd=here)
    assert (here / "own.sqlite").is_file()
    done = subprocess.run([sys.executable, "own.py"], capture_output=True, text=True, cwd=here, check=True)
    assert done.stdout == "64.0\n"


def test_a_kernel_may_bring_a_store_in_memory(here) -> None:
    brought = "from tunewright.stores.memory import MemoryStore\n" + KERNEL
    brought = brought.replace('shapes=[{"N": 64}]', 'shapes=[{"N": 64}], session=tw.Session(store=MemoryStore())')
    (here / "brought.py").write_text(brought)
    assert "decided" in tunewright("tune", "brought.py:total", cwd=here).stderr


def test_looking_at_a_package_tunes_nothing(here) -> None:
    (here / "pkg").mkdir()
    (here / "pkg" / "__init__.py").write_text("import pkg.mod\n")
    (here / "pkg" / "mod.py").write_text(KERNEL + "\ntotal(np.ones(8, np.float32))\n")
    assert "8 combinations" in tunewright("space", "pkg.mod:total", cwd=here).stdout
    tunewright("show", cwd=here, status=1)


def test_what_a_program_prints_is_not_our_answer(here) -> None:
    (here / "loud.py").write_text("print('hello')\n" + KERNEL)
    assert json.loads(tunewright("space", "loud.py:total", "--json", cwd=here).stdout)["feasible"] == 7


def test_help_names_every_command(here) -> None:
    said = tunewright("--help", cwd=here).stdout
    for name in ("tune", "show", "explain", "trials", "space"):
        assert name in said
        assert "--json" in tunewright(name, "--help", cwd=here).stdout
    assert tunewright("--version", cwd=here).stdout.startswith("tunewright")


@pytest.mark.parametrize("words", [("show",), ("trials",), ("explain", "total")])
def test_a_store_that_is_not_there_is_said_and_not_made(words, here) -> None:
    said = tunewright(*words, "--store", "nowhere.sqlite", cwd=here, status=2).stderr
    assert "there is no store nowhere.sqlite" in said
    assert not (here / "nowhere.sqlite").exists()
