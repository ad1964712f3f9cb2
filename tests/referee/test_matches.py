"""Matches in real sandboxes: few here, the whole corpus at night."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tunewright.referee import ChildLimits, Referee, Submission, Task, TaskError, load_submission

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from referee_matches.corpus import FOLDER, attacks, honest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is of Linux")

SOURCE = """
import numpy as np
from tunewright.referee import ChildLimits, Task

def triple(x):
    return 3 * x

def inputs(rng, n):
    return (rng.standard_normal(n, dtype=np.float32),)

task = Task(triple, inputs, [{"n": 20_000}, {"n": 300}], imports=None, limits=ChildLimits(seconds=5.0))
"""
RIGHT = "import numpy as np\ndef triple(x):\n    return x + x + x\n"


@pytest.fixture
def task(tmp_path) -> Path:
    path = tmp_path / "task.py"
    path.write_text(SOURCE)
    return path


def short(task, **more) -> Referee:
    return Referee(task, **({"seconds": 0.2, "sittings": 1} | more))


def verdict_on(task, source: str, **more):
    return short(task, **more).run(Submission("candidate", "python", source)).verdict


def test_a_right_candidate_is_compared_with_the_reference(task) -> None:
    transcript = short(task).run(Submission("mine", "python", RIGHT))
    assert transcript.verdict.outcome in ("faster", "tie", "slower")
    assert [party.name for party in transcript.parties] == ["mine", "the reference"]
    assert transcript.find_inconsistency() is None
    assert "seccomp" in transcript.sandbox.active or "seccomp" in transcript.sandbox.missing
    assert {record.shape for record in transcript.records} == {0, 1}
    assert all(min(record.wall) > 0 and min(record.cpu) > 0 for record in transcript.records)


def test_a_wrong_candidate_is_shown_the_smallest_input_that_fails(task) -> None:
    transcript = short(task).run(Submission("mine", "python", "def triple(x):\n    return x\n"))
    assert transcript.verdict.outcome == "wrong"
    assert transcript.verdict.failing.shape == 1
    assert "the reference gives" in transcript.verdict.reason


def test_what_cannot_be_loaded_is_refused(task) -> None:
    verdict = verdict_on(task, "raise RuntimeError('no device')")
    assert verdict.outcome == "refused"
    assert "no device" in verdict.reason


def test_a_baseline_that_is_wrong_is_an_error(task) -> None:
    bad = Submission("bad.py", "python", "def triple(x):\n    return x\n")
    with pytest.raises(TaskError, match=r"the baseline bad\.py fails"):
        short(task).run(Submission("mine", "python", RIGHT), [bad])


def test_a_missing_part_of_the_sandbox_is_said_in_the_verdict(task) -> None:
    transcript = short(task, without=("landlock", "seccomp", "namespaces")).run(Submission("mine", "python", RIGHT))
    assert {"landlock", "seccomp", "pid namespace", "own file system"} <= set(transcript.sandbox.missing)
    assert any("the sandbox has no seccomp: left out on purpose" in note for note in transcript.notes)


TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, CHOSEN, mask=inside)

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
        return out
"""
MODEL = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y)

def get_inputs():
    return [torch.randn(20, 50), torch.randn(20, 50)]

def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "right"), [("tl.maximum(total, 0.0)", "checked"), ("tl.abs(total)", "wrong")])
def test_a_triton_kernel_is_interpreted_and_not_timed(chosen, right, tmp_path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "task.py").write_text(MODEL)
    source = TRITON.replace("CHOSEN", chosen)
    transcript = short(tmp_path).run(Submission("mine", "python", source))
    assert transcript.verdict.outcome == right, transcript.verdict.reason
    assert ("checked, not timed" in transcript.verdict.reason) == (right == "checked")
    assert transcript.find_inconsistency() is None


@pytest.mark.slow
@pytest.mark.parametrize(("chosen", "right"), [("tl.maximum(total, 0.0)", "checked"), ("tl.abs(total)", "wrong")])
def test_a_triton_kernel_is_compiled_and_emulated_if_a_gpu_is_named(chosen, right, tmp_path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "task.py").write_text(MODEL)
    transcript = short(tmp_path, gpu="sm_90").run(Submission("mine", "python", TRITON.replace("CHOSEN", chosen)))
    assert transcript.verdict.outcome == right, transcript.verdict.reason
    assert ("compiled for sm_90" in transcript.verdict.reason) == (right == "checked")
    assert "seccomp" in transcript.sandbox.active


SERIAL = """
import torch, triton
import triton.language as tl

@triton.jit
def kernel(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, tl.maximum(total, 0.0), mask=inside)
    # What the block before has stored: there already if blocks run one after another.
    before = tl.load(out + at - BLOCK, mask=inside & (at >= BLOCK), other=0.0)
    tl.store(out + at, tl.where(before < 0, -1.0, tl.maximum(total, 0.0)), mask=inside)

class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
        return out
"""


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "outcome"), [(None, "checked"), ("sm_80", "wrong")])
def test_a_race_between_blocks_is_seen_in_compiled_code_only(gpu, outcome, tmp_path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "task.py").write_text(MODEL)
    verdict = short(tmp_path, gpu=gpu).run(Submission("mine", "python", SERIAL)).verdict
    assert verdict.outcome == outcome, verdict.reason
    assert ("race" in verdict.reason) == (gpu is not None)


def test_a_gpu_that_is_not_known_is_told_with_those_that_are(task) -> None:
    with pytest.raises(TaskError, match="sm_90"):
        short(task, gpu="gfx942")


ATTACKS = ["late_thread", "forged_answer", "reference_file", "batch_first_only"]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_found(name) -> None:
    (case,) = (case for case in attacks() if case.name == f"{name}.py")
    assert short(case.task).run(case.candidate).verdict.outcome in case.verdicts


def test_a_match_on_the_command_line(task, tmp_path) -> None:
    (tmp_path / "mine.py").write_text("def triple(x):\n    return x\n")
    words = ["run", str(task), str(tmp_path / "mine.py"), "--seconds", "0.1", "--sittings", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tunewright", "referee", *words, "--out", str(tmp_path / "m.json")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 12, done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"]["outcome"] == "wrong"
    assert answer["exit_status"] == 12
    assert (tmp_path / "m.json").exists()


def test_every_attack_names_its_idea_where_it_was_seen_and_what_is_right() -> None:
    found = list(attacks())
    assert len(found) >= 40
    for case in found:
        lines = (FOLDER / "attacks" / case.name).read_text().splitlines()
        marks = [line.lstrip("#/ ").partition(":")[0] for line in lines[:4]]
        assert {"idea", "seen", "verdicts"} <= set(marks), case.name
        assert "faster" not in case.verdicts
        assert case.task.exists(), case.name


def test_the_corpus_has_enough_honest_candidates() -> None:
    assert len(list(honest())) >= 40


def test_what_is_neither_a_file_nor_a_command_is_named() -> None:
    with pytest.raises(TaskError, match="neither a Python or C file"):
        load_submission("nothing {input}")


def test_python_makes_tasks_without_a_file() -> None:
    task = Task(np.negative, lambda rng: (rng.standard_normal(5000),), name="negative", limits=ChildLimits())
    own = Submission("own", "python", "import numpy as np\ndef negative(x):\n    return 0 - x\n")
    with pytest.raises(TaskError, match="cannot be the baseline"):
        short(task).run(own)
    assert short(task).run(own, [own]).verdict.outcome == "tie"


@pytest.mark.slow
@pytest.mark.parametrize("case", list(attacks()), ids=lambda case: case.name)
def test_every_attack_is_found(case) -> None:
    assert short(case.task, sittings=2).run(case.candidate).verdict.outcome in case.verdicts


@pytest.mark.slow
@pytest.mark.parametrize("case", list(honest()), ids=lambda case: case.name)
def test_no_honest_candidate_is_accused(case) -> None:
    verdict = short(case.task, sittings=2).run(case.candidate).verdict
    assert verdict.outcome in case.verdicts, verdict.reason
