import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import tunewright as tw
from tunewright.cli.main import command
from tunewright.engine.budget import Budget
from tunewright.errors import NoDecision, SettingsError
from tunewright.model.decision import Decision, Evidence
from tunewright.model.signature import Signature
from tunewright.model.trial import Timing, Trial
from tunewright.shapes.table import ShapeTable
from tunewright.shapes.tuning import JointSearch
from tunewright.shapes.weighted import read_shapes, recorded_shapes
from tunewright.spaces.config import Config
from tunewright.stores.memory import MemoryStore
from tunewright.testing.keys import KEY, other_key
from worked_time import work

SPACE = tw.Space(tw.Knob("tile", [1, 2, 4, 8, 16, 32]), tw.Knob("pack", [0, 1]))
SHAPES = [({"M": m, "N": n}, 1.0) for m in (2, 8, 24) for n in (16, 100)]


def cost(m, n, tile, pack):
    """Padded rows, cheaper by larger tiles; packing costs a row of work and makes the others cheaper."""
    return -(-m // tile) * tile * n * (1 + 2 / tile) * (0.7 + 3 / m if pack else 1)


def padded(x: tw.In("M", "N"), *, tile, pack):
    work(cost(*x.shape, tile, pack) / 100)
    return x + 1


def made(**options):
    session = tw.Session(store=MemoryStore(), pool="serial")
    return tw.tune(SPACE, reference=lambda x: x + 1, session=session, **options)(padded)


def regret(kernel, sizes, config):
    times = [cost(sizes["M"], sizes["N"], **one) for one in kernel.space]
    return cost(sizes["M"], sizes["N"], **config) / min(times) - 1


@pytest.mark.usefixtures("by_work")
def test_trials_of_one_shape_inform_all_others_within_one_budget() -> None:
    kernel = made()
    search = JointSearch(kernel, SHAPES)
    budget, seen = Budget(54), []
    search.run(budget, lambda sizes, trial: seen.append(sizes))
    assert len(seen) == budget.spent <= 54, "of 72 that there are"
    assert {tuple(sizes.items()) for sizes in seen} == {tuple(sizes.items()) for sizes, _ in SHAPES}
    best = [search.configs[int(np.nanargmin(row))] for row in search.table.seconds]
    assert np.mean([regret(kernel, sizes, config) for (sizes, _), config in zip(SHAPES, best, strict=True)]) < 0.03
    again = JointSearch(kernel, SHAPES)
    assert np.array_equal(again.table.seconds, search.table.seconds, equal_nan=True), "they are in the store"


@pytest.mark.usefixtures("by_work")
def test_shapes_that_were_tried_are_decided_by_a_race_and_the_heaviest_first() -> None:
    kernel = made()
    search = JointSearch(kernel, [(SHAPES[0][0], 1.0), (SHAPES[5][0], 5.0)])
    search.run(Budget(16))
    decisions = search.decide(Budget())
    assert [d.key.signature.dims for d in decisions] == [SHAPES[5][0], SHAPES[0][0]]
    assert all(d.evidence.complete for d in decisions)
    assert search.decide(Budget(seconds=0.0)) == [], "no time is left"


def test_shapes_of_one_bucket_are_one_and_kernels_with_invariant_sizes_are_refused() -> None:
    kernel = made(buckets={"M": "pow2"})
    found = JointSearch(kernel, [({"M": 5, "N": 4}, 1.0), ({"M": 7, "N": 4}, 2.0), ({"M": 9, "N": 4}, 1.0)]).tasks
    assert [(task.sizes["M"], task.weight) for task in found] == [(8, 3.0), (16, 1.0)]
    with pytest.raises(SettingsError, match="tuned together"):
        JointSearch(made(invariant=["M"]), SHAPES)
    with pytest.raises(SettingsError, match="no shapes"):
        JointSearch(kernel, [])


def test_shapes_are_read_with_their_weights(tmp_path) -> None:
    listed, lines = tmp_path / "shapes.json", tmp_path / "shapes.txt"
    listed.write_text('[{"M": 4, "N": 8, "weight": 3}, {"M": 5, "N": 8}]')
    assert read_shapes(listed, ["M", "N"]) == [({"M": 4, "N": 8}, 3.0), ({"M": 5, "N": 8}, 1.0)]
    lines.write_text("# recorded\n4,8 3\nM=5,N=8\n")
    assert read_shapes(lines, ["M", "N"]) == read_shapes(listed, ["M", "N"])
    for text in ("4", "4,8 -1", "M=4", "x,y", "", "4,0"):
        lines.write_text(text)
        with pytest.raises(SettingsError, match=r"shapes\.txt"):
            read_shapes(lines, ["M", "N"])
    lines.write_text("4,8\n\n4,x\n")
    with pytest.raises(SettingsError, match="line 3, '4,x'"):
        read_shapes(lines, ["M", "N"])
    lines.write_text("M=4,Q=8\n")
    with pytest.raises(SettingsError, match="it has no N"):
        read_shapes(lines, ["M", "N"])
    with pytest.raises(NoDecision, match="TUNEWRIGHT_MODE=record"):
        recorded_shapes(MemoryStore(), "padded", ["M", "N"])


PROGRAM = """
import tunewright as tw
@tw.tune(tw.Space(tw.Knob("step", [1, 2, 4])), reference=lambda x: x + 1)
def add(x: tw.In("N"), *, step):
    return x + 1
if __name__ == "__main__":
    import numpy as np
    for n in (8, 100, 3000):
        add(np.ones(n, np.float32))
"""


@pytest.mark.slow
def test_the_command_tunes_recorded_shapes_together(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNEWRIGHT_STORE", str(tmp_path / "kept.sqlite"))
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("TUNEWRIGHT_MODE", "record")
    subprocess.run([sys.executable, "program.py"], check=True)
    monkeypatch.setenv("TUNEWRIGHT_MODE", "tune")
    words = ["tune", "program.py:add", "--shapes", "recorded", "--budget", "9", "--pool", "serial", "--json"]
    said = CliRunner().invoke(command, words)
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert sorted(one["sizes"]["N"] for one in found["shapes"]) == [8, 100, 3000]
    assert found["trials"] <= 9
    assert found["decisions"]
    refused = CliRunner().invoke(command, [*words, "--fresh"])
    assert refused.exit_code == 2


def typed(tmp_path, monkeypatch, *words: str):
    """Runs `tunewright tune` on the program, for the shapes in a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNEWRIGHT_STORE", str(tmp_path / "kept.sqlite"))
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "shapes.txt").write_text("N=8\nN=100\n")
    return CliRunner().invoke(command, ["tune", "program.py:add", "--shapes", "shapes.txt", "--pool", "serial", *words])


def test_it_says_what_was_kept_what_is_known_and_that_nothing_was_decided(tmp_path, monkeypatch) -> None:
    def stopped(self, number, places, budget, on_trial) -> None:
        if self.table.works.any():
            raise KeyboardInterrupt
        tried(self, number, places, budget, on_trial)

    tried = JointSearch._try
    monkeypatch.setattr(JointSearch, "_try", stopped)
    said = typed(tmp_path, monkeypatch, "--budget", "6")
    assert said.exit_code != 0
    assert "interrupted; kept: 2 trials" in said.stderr
    monkeypatch.setattr(JointSearch, "_try", tried)
    again = typed(tmp_path, monkeypatch, "--budget", "2")
    assert "known from before, at no cost: 2 trials" in again.stderr
    assert "1 of 2, " in again.stderr
    assert "racing the best configs of N=" in again.stderr
    monkeypatch.setattr(JointSearch, "decide", lambda self, budget, on_race: [])
    assert "give a larger --budget" in typed(tmp_path, monkeypatch, "--budget", "1").stdout.replace("\n", " ")
    both = typed(tmp_path, monkeypatch, "--budget", "1", "--shape", "8")
    assert both.exit_code == 2
    assert "give one of them" in both.output


def test_a_final_race_says_which_config_of_a_shape_is_fastest() -> None:
    store, key = MemoryStore(), other_key(signature=Signature(KEY.signature.args, {"M": 4}))
    times = (1.0, 1.1, 2.0, float("inf"))
    for x, seconds in enumerate(times[:3]):
        store.record(key, [Trial(Config(x=x), Timing((seconds,), "cpu"))])
    assert ShapeTable.from_store(store, "gemm").regret[0].tolist() == pytest.approx([0.0, 0.1, 1.0])
    store.put(Decision(key, Config(x=1), Evidence(1.0, 0.9, 1.1, trials=3)))
    assert ShapeTable.from_store(store, "gemm").regret[0].tolist() == pytest.approx([0.0, 0.0, 1.0])


@pytest.mark.usefixtures("by_work")
def test_races_of_shapes_end_with_the_budget_of_all(monkeypatch) -> None:
    """A race of a slow kernel had no limit of its own: a budget of 20 s took 29."""
    kernel, limits = made(), []
    search = JointSearch(kernel, SHAPES[:2])
    search.run(Budget(8))
    raced = type(kernel).search

    def watched(self, problem, args, budget):
        limits.append(budget.seconds)
        return raced(self, problem, args, budget)

    monkeypatch.setattr(type(kernel), "search", watched)
    search.decide(Budget(seconds=30.0))
    search.decide(Budget(8))
    bounded, free = limits[: len(limits) // 2], limits[len(limits) // 2 :]
    assert bounded
    assert all(0 < seconds <= 30 for seconds in bounded)
    assert sorted(bounded, reverse=True) == bounded, "each has what is left"
    assert free == [None] * len(bounded)
