"""The acceptance kit on simulated cards (rung 2): a healthy one passes, and each planted fault is found."""

import json
import os
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from tunewright.cli.main import command
from tunewright.errors import BundleError, SettingsError, WireError
from tunewright.testing.acceptance_cards import PLANTED, healthy, with_fault
from tunewright.triton.acceptance import runner
from tunewright.triton.acceptance.children import ChildTask, Ended, run_in_child
from tunewright.triton.acceptance.notes import StageNotes, StageResult
from tunewright.triton.acceptance.report import AcceptanceReport, read_report, render_page, write_report
from tunewright.triton.acceptance.runner import STAGES, choose_stages, make_report, result_of, run_stages


@pytest.fixture(scope="module")
def code_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


def results_of(device, stages, folder, code_cache, deadline=None) -> dict[str, StageResult]:
    found = run_stages(device, choose_stages(stages), folder, deadline=deadline, compiled=code_cache)
    return {result.name: result for result in found}


@pytest.mark.slow
def test_a_healthy_card_passes_the_first_stages(tmp_path, code_cache):
    results = results_of(healthy(), ("inventory", "adapter"), tmp_path, code_cache)
    assert {name: (one.verdict, one.findings) for name, one in results.items()} == {
        "inventory": ("passed", []),
        "adapter": ("passed", []),
    }
    assert results["inventory"].figures["rung"] == 2
    assert "A100" in results["inventory"].figures["target"]


@pytest.mark.slow
@pytest.mark.parametrize("stage", [stage.name for stage in STAGES])
def test_a_healthy_card_passes(stage, tmp_path, code_cache):
    result = results_of(healthy(), (stage,), tmp_path, code_cache)[stage]
    assert (result.verdict, result.findings) == ("passed", []), result.log


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault, tmp_path, code_cache):
    deadline = 30.0 if fault == "hangs" else None
    results = results_of(with_fault(fault), PLANTED[fault], tmp_path, code_cache, deadline)
    assert any(result.findings for result in results.values())


@pytest.mark.slow
def test_a_fault_of_the_card_is_found_by_its_stage_alone(tmp_path, code_cache):
    results = results_of(with_fault("no shared memory"), ("inventory", "adapter"), tmp_path, code_cache)
    assert results["inventory"].verdict == "passed"
    assert results["adapter"].verdict == "failed"
    assert "reports no shared memory" in results["adapter"].findings[0]


def test_a_fault_that_nobody_planted_is_refused():
    with pytest.raises(ValueError, match="there is no planted fault 'gremlins'"):
        with_fault("gremlins")


def test_an_unknown_stage_is_refused():
    with pytest.raises(SettingsError, match="there is no stage 'clocks'; there are inventory, adapter, clock"):
        choose_stages(["clocks"])


TASKS = Path(__file__).with_name("acceptance_tasks.py")
ODD = runner.AcceptanceStage("odd", f"{TASKS}:failing_stage")


def child_that(work, folder, seconds=60.0, **arguments) -> Ended:
    """How a process ended that does something."""
    nothing = ("types:SimpleNamespace",)  # a device that nothing is done with
    return run_in_child(ChildTask(f"{TASKS}:{work}", nothing, arguments), folder, "child", seconds)


def test_a_stage_that_ends_its_process_is_a_result(tmp_path):
    result = result_of(ODD, child_that("ends_its_process", tmp_path), 60.0)
    assert (result.verdict, result.findings) == ("died", ["its process ended with status -6"])


@pytest.mark.clock("within a deadline of 1 s, plus the time to end a process")
def test_a_stage_that_hangs_is_ended_at_its_deadline(tmp_path):
    result = result_of(ODD, child_that("never_ends", tmp_path, 1.0), 1.0)
    assert (result.verdict, result.findings) == ("hung", ["it did not end within 1 s"])


def test_an_error_of_a_stage_is_a_finding_and_in_its_log(tmp_path):
    (result,) = run_stages(healthy(), [ODD], tmp_path)
    assert result.verdict == "failed"
    assert result.findings == ["RuntimeError: CUDA error: unspecified launch failure"]
    assert result.figures == {"before": 1}
    assert "Traceback" in result.log


def test_what_a_child_writes_and_returns_arrives(tmp_path):
    ended = child_that("answers", tmp_path, question="how many?")
    answer = json.loads(ended.result)
    assert answer.pop("process") != os.getpid()
    assert (answer, ended.status, ended.hung) == ({"question": "how many?", "written": 5}, 0, False)
    assert ended.log == "hello"


def test_a_child_whose_work_raises_says_so_in_its_log(tmp_path):
    ended = child_that("answers", tmp_path, nothing="known")
    assert (ended.result, ended.status, ended.hung) == (None, 1, False)
    assert "TypeError: answers() got an unexpected keyword argument 'nothing'" in ended.log


@pytest.mark.slow
def test_a_stage_runs_in_a_process_whose_torch_has_run_threads(tmp_path, code_cache):
    wide = torch.ones(1 << 20, requires_grad=True)
    (wide * wide).sum().backward()  # starts the threads of torch, beside which a forked process hangs
    assert results_of(healthy(), ("memory",), tmp_path, code_cache)["memory"].verdict == "passed"


def test_a_stage_without_findings_passes_and_one_that_has_nothing_to_test_is_skipped():
    notes = StageNotes("cards")
    assert notes.result().verdict == "passed"
    notes.skip("there is one card only")
    assert (notes.result().verdict, notes.result().is_good) == ("skipped", True)
    assert not notes.expect(not notes.skipped, "it was skipped")
    assert (notes.result().verdict, notes.result().is_good) == ("failed", False)


@pytest.fixture
def report() -> AcceptanceReport:
    bad = StageResult("clock", "failed", ["a | b <script>"], {"ratio": 1.23456}, {"spin": [1.0, 2.0]}, 3.0, "the log")
    return make_report(healthy(), [StageResult("adapter", "passed"), bad])


def test_a_report_is_signed_and_read_back(report, tmp_path):
    machine, page = write_report(report, tmp_path / "out", tmp_path / "key.pem")
    again, signer = read_report(machine)
    assert (again, len(signer)) == (report, 44)
    assert not again.is_good
    write_report(report, tmp_path / "twice", tmp_path / "key.pem")
    assert read_report(tmp_path / "twice" / "report.json")[1] == signer
    assert page.read_text() == render_page(report)


@pytest.mark.parametrize(
    "change", [(b"failed", b"passed"), (b'"rung":2', b'"rung":5'), (b'"signature":"', b'"signature":"A')]
)
def test_a_report_that_was_changed_is_refused(report, change, tmp_path):
    machine, _ = write_report(report, tmp_path, tmp_path / "key.pem")
    machine.write_bytes(machine.read_bytes().replace(*change))
    with pytest.raises(BundleError, match=r"its signature is wrong|not signed"):
        read_report(machine)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"report": 1}', b"\xff\xfe"])
def test_what_is_no_report_is_refused(body, tmp_path):
    (tmp_path / "report.json").write_bytes(body)
    with pytest.raises(WireError, match="is no report of `tunewright gpu accept`"):
        read_report(tmp_path / "report.json")


def test_the_page_has_verdicts_findings_and_the_rung_and_no_foreign_markup(report):
    page = render_page(report)
    assert "not all stages passed. simulated driver (rung 2)" in page
    assert "| clock | failed | 3.0 | a \\| b &lt;script> |" in page
    assert "- ratio: 1.235" in page
    assert "- spin: 2 samples, 1 to 2" in page
    assert "the log" in page


@pytest.mark.slow
def test_the_command_tests_a_simulated_card_and_leaves_a_report(tmp_path):
    words = ["gpu", "accept", "--out", str(tmp_path / "out"), "--only", "inventory", "--json"]
    words += ["--simulate", "tunewright.testing.acceptance_cards:healthy", "--sign", str(tmp_path / "key.pem")]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["good"], answer["rung"]) == (True, 2)
    verified = CliRunner().invoke(command, ["gpu", "verify", answer["report"], "--json"])
    assert json.loads(verified.stdout)["stages"] == {"inventory": "passed"}


def test_without_a_gpu_the_command_says_so_in_every_stage_and_fails(tmp_path):
    done = CliRunner().invoke(command, ["gpu", "accept", "--out", str(tmp_path), "--only", "inventory"])
    assert done.exit_code == 1
    assert "torch finds no GPU" in done.output
