"""The corpus of the referee is well-formed, and the referee counts what it says it counts."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tunewright as tw
from tunewright.cases.arguments import Arguments
from tunewright.cases.tolerance import Tolerance, expected_from, find_mismatch
from tunewright.model.signature import Signature

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
TENSORS = ("torch", "triton")
LANGUAGES = ["python", pytest.param("c", marks=pytest.mark.slow)]  # many are compiled


@pytest.fixture
def referee(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # as importing it does, for good
    import referee

    yield referee
    for name in [name for name in sys.modules if name.split(".")[0] in ("referee", "referee_corpus", "figures")]:
        del sys.modules[name]


@pytest.fixture
def cases(referee):
    return referee.load_cases("python", "c")


@pytest.fixture
def tensor_cases(referee):
    """Cases of the languages whose libraries are installed."""
    cases = referee.load_cases(*TENSORS)
    return cases or pytest.skip("needs torch")


def test_each_language_has_25_cheats_and_25_honest_kernels_with_names_of_their_own(referee, cases) -> None:
    from referee_corpus import LEFT_OUT

    assert {case.name for case in cases} > LEFT_OUT
    counts = Counter((case.language, bool(case.cheat)) for case in cases if not referee.is_left_out(case))
    assert set(counts) == {(language, cheats) for language in ("python", "c") for cheats in (True, False)}
    assert min(counts.values()) >= 25
    assert len({(case.language, case.name) for case in cases}) == len(cases)
    assert len({case.kernel.name for case in cases}) == len(cases)


def test_torch_and_triton_have_as_many_each_of_which_says_what_it_does(referee, tensor_cases) -> None:
    counts = Counter((case.language, bool(case.cheat)) for case in tensor_cases if not referee.is_left_out(case))
    assert min(counts.values()) >= 25
    assert len(counts) in (2, 4)
    assert len({(case.language, case.name) for case in tensor_cases}) == len(tensor_cases)
    assert [case.name for case in tensor_cases if not case.doc.endswith(".")] == []
    docs = Counter((case.language, case.doc) for case in tensor_cases)
    assert [doc for (_, doc), count in docs.items() if count > 1 and not doc.startswith("The same")] == []


def test_each_goal_is_set_for_each_language(referee) -> None:
    for language in ("python", "c", *TENSORS):
        goals = {
            goal.figure.partition(".")[2]: goal for goal in referee.GOALS if goal.figure.startswith(f"{language}.")
        }
        assert {name: (goal.sign, goal.bound) for name, goal in goals.items()} == {
            **dict.fromkeys(("chosen", "refused", "errors"), ("==", 0)),
            **dict.fromkeys(("cheats", "honest"), (">=", 25)),
        }


def test_honest_calls_on_tensors_agree_whichever_way_they_compute(tensor_cases) -> None:
    import torch
    from referee_corpus.torch_calls import results

    for case in tensor_cases:
        if case.language == "torch" and not case.cheat:
            torch.manual_seed(0)
            given = case.kernel.arguments()
            expected = case.kernel.workload(case.name, given)._oracle._expect(given.values)
            for way in case.kernel.ways.values():
                call = way()
                for _ in range(2):
                    got = results(call, given.values, given)
                    assert expected.find_problem(got, expected.allowed) is None, case.name


def test_the_honest_way_of_a_call_that_is_cheated_at_is_right(tensor_cases) -> None:
    import torch
    from referee_corpus.torch_calls import results

    for case in tensor_cases:
        if case.language == "torch" and case.cheat:
            torch.manual_seed(0)
            given = case.kernel.arguments()
            expected = case.kernel.workload(case.name, given)._oracle._expect(given.values)
            honest, _ = case.kernel.ways.values()
            assert expected.find_problem(results(honest(), given.values, given), expected.allowed) is None, case.name


@pytest.mark.slow
@pytest.mark.parametrize(("language", "name", "outcome"), [
    ("torch", "two_buffers", "caught"), ("torch", "scratch_memory", "accepted"),
    ("triton", "writes_past_its_output", "caught"), ("triton", "sum_near_zero", "accepted"),
])  # fmt: skip
def test_cases_on_tensors_are_judged_in_the_same_way(language, name, outcome, tmp_path) -> None:
    pytest.importorskip(language)
    command = [sys.executable, str(BENCHMARKS / "referee.py"), "--quick", "--json", "--lang", language, "--only", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = json.loads(done.stdout)
    (row,) = said["rows"]
    assert (row["name"], row["language"], row["outcome"]) == (name, language, outcome)
    assert (said[language]["chosen"], said[language]["refused"], said[language]["errors"]) == (0, 0, 0)


def test_a_worker_finds_every_kernel_by_name(cases) -> None:
    assert [case.name for case in cases if case.kernel.target() is None] == []


def test_a_cheat_is_the_only_other_way_beside_an_honest_default(cases) -> None:
    for case in cases:
        ways = [config for config in case.kernel.space if case.cheat in config.values()]
        assert len(case.kernel.space) >= 2
        assert (len(case.kernel.space), len(ways)) == (2, 1) if case.cheat else not ways
        assert case.cheat not in case.kernel.default.values()


def mismatches(case, cache, configs):
    """What is wrong with the results of configs, each called three times on fresh arguments."""
    kernel = case.kernel
    kernel.using(tw.Session(cache=cache))
    args = case.arguments()
    parameters, signature = kernel.parameters, Signature.of(kernel.parameters, args)
    tolerance = Tolerance.of(kernel.declaration.tolerance, parameters, args)

    def call(config):
        arguments = Arguments(parameters, args)
        launch = kernel.backend.load(kernel.kernel, kernel.backend.build(kernel.kernel, config, signature))
        return arguments.results(launch(*arguments.values))

    reference = kernel.declaration.reference
    right = expected_from(reference, parameters, args) if reference else list(call(kernel.default).values())
    results = [(config, call(config)) for config in configs for _ in range(3)]
    return [f"{case.name} {config}: {why}" for config, got in results if (why := find_mismatch(right, got, tolerance))]


@pytest.mark.parametrize("language", LANGUAGES)
def test_honest_kernels_agree_with_their_reference_whichever_way_they_compute(language, cases, tmp_path) -> None:
    honest = [case for case in cases if case.language == language and not case.cheat]
    with np.errstate(all="ignore"):
        wrong = [why for case in honest for why in mismatches(case, tmp_path, case.kernel.space)]
    assert wrong == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.slow
def test_the_default_of_a_cheat_is_right_and_one_that_is_always_wrong_is_not(language, cases, tmp_path) -> None:
    cheats = {case.name: case for case in cases if case.language == language and case.cheat}
    with np.errstate(all="ignore"):
        wrong = [why for case in cheats.values() for why in mismatches(case, tmp_path, [case.kernel.default])]
        always = [mismatches(cheats[name], tmp_path, cheats[name].kernel.space) for name in ("half", "transposed")]
    assert wrong == []
    assert [len(each) for each in always] == [3, 3]


def test_of_several_tunings_of_a_case_the_worst_counts(referee) -> None:
    said = [
        referee.Verdict("sly", "python", True, "caught"),
        referee.Verdict("sly", "python", True, "chosen"),
        referee.Verdict("sly", "c", True, "not faster"),
        referee.Verdict("good", "c", False, "accepted"),
        referee.Verdict("good", "c", False, "refused", "why"),
        referee.Verdict("broken", "c", True, "error"),
    ]
    report = referee.Report()
    referee.note(report, referee.worst(said))
    assert report.figures["python"] == {
        **{"cheats": 1, "honest": 0, "chosen": 1, "caught": 0},
        **{"not_faster": 0, "refused": 0, "errors": 0},
    }
    assert report.figures["c"] == {
        **{"cheats": 2, "honest": 1, "chosen": 0, "caught": 0},
        **{"not_faster": 1, "refused": 1, "errors": 1},
    }
    assert [row["outcome"] for row in report.figures["rows"]] == ["chosen", "refused", "error", "not faster"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "outcome"), [("half", "caught"), ("in_place", "accepted")])
def test_a_cheat_is_caught_and_an_honest_kernel_accepted(name, outcome, referee, capsys) -> None:
    assert referee.main(["--quick", "--json", "--lang", "python", "--only", name]) == 0
    said = json.loads(capsys.readouterr().out)
    (row,) = said["rows"]
    assert (row["name"], row["outcome"]) == (name, outcome)
    assert (said["python"]["chosen"], said["python"]["refused"]) == (0, 0)


def test_a_tuning_that_ends_without_a_decision_is_an_error_or_a_refusal(referee, capsys, monkeypatch) -> None:
    monkeypatch.setattr(referee, "judge", lambda case, seed: os._exit(3))
    assert referee.main(["--quick", "--json", "--lang", "python", "--only", "half"]) == 0
    assert json.loads(capsys.readouterr().out)["python"]["errors"] == 1
    assert referee.main(["--quick", "--json", "--lang", "python", "--only", "in_place"]) == 0
    assert json.loads(capsys.readouterr().out)["python"]["refused"] == 1
