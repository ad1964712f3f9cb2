"""Proposals from outside: taken in turn, refused with why, recorded and replayed; garbage and silence cost a turn."""

import json
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tunewright as tw
from tunewright.agents import proposers
from tunewright.agents.proposers import (
    ProcessProposer,
    RecordedProposer,
    RecordingProposer,
    SocketProposer,
    open_proposer,
)
from tunewright.errors import SettingsError, WireError
from tunewright.model.trial import Failure, Kind, Stage, Trial
from tunewright.strategies.external import MAX_PROPOSALS, MAX_SILENT, External, describe_space
from tunewright.strategies.random import RandomSearch
from tunewright.testing.strategy_kit import SMALL, VARIED, StrategyContract, timed

SPACE = tw.Space(tw.Knob("a", [1, 2, 3, 4]), tw.Knob("b", [0, 1]), rules=[tw.Rule("a > b", lambda a, b: a > b)])


class Scripted:
    """Answers from a list; keeps the questions."""

    def __init__(self, *answers) -> None:
        self.answers, self.questions = list(answers), []

    def ask(self, question):
        self.questions.append(json.loads(json.dumps(question)))
        return self.answers.pop(0) if self.answers else None


def external(*answers, space=SPACE):
    proposer = Scripted(*answers)
    return External(space, RandomSearch(space, np.random.default_rng(0)), proposer), proposer


class TestExternal(StrategyContract):
    """With a proposer that answers garbage."""

    @pytest.fixture
    def make(self):
        garbage = ["no", 3, None, {"configs": 7}, {"configs": [1, "x", {}, {"tile": "many"}]}, [[]]] * 50
        return lambda space, rng: External(space, RandomSearch(space, rng), Scripted(*garbage))


def test_it_takes_turns_with_the_other_strategy() -> None:
    space = tw.Space(tw.Knob("a", range(1000)), tw.Knob("b", [0, 1]))
    strategy, proposer = external({"configs": [{"a": 4, "b": 1}, {"a": 3, "b": 1}]}, space=space)
    first, second, third = (strategy.ask(1)[0] for _ in range(3))
    assert dict(first) == {"a": 4, "b": 1}
    assert second not in (first, third)
    assert dict(third) == {"a": 3, "b": 1}
    assert strategy.accepted == 2
    assert len(proposer.questions) == 1


def test_a_question_says_what_there_is_and_what_became_of_it() -> None:
    strategy, proposer = external([{"a": 4, "b": 1}], [{"a": 3, "b": 0}])
    config = strategy.ask(1)[0]
    strategy.tell([timed(config)])
    other = strategy.ask(1)[0]
    strategy.tell([Trial(other, Failure(Stage.BUILD, Kind.REFUSED, "no"))])
    strategy.ask(1)
    first, second = proposer.questions
    assert first["space"] == {"knobs": {"a": [1, 2, 3, 4], "b": [0, 1]}, "rules": ["a > b"]}
    assert (first["trials"], first["best"], first["refused"]) == ([], None, [])
    assert "space" not in second
    assert second["trials"][0]["config"] == {"a": 4, "b": 1}
    assert second["trials"][0]["seconds"] > 0
    assert second["trials"][1] == {"config": dict(other), "failure": "refused at build: no"}
    assert second["best"]["config"] == {"a": 4, "b": 1}


def test_an_invalid_proposal_is_answered_with_why_and_may_be_corrected() -> None:
    strategy, proposer = external([{"a": 1, "b": 1}, {"a": 9, "b": 0}, {"c": 1}, "x"], [{"a": 2, "b": 1}])
    assert dict(strategy.ask(1)[0]) == {"a": 2, "b": 1}
    reasons = [refused["why"] for refused in proposer.questions[1]["refused"]]
    assert "a > b" in reasons[0]
    assert "9" in reasons[1]
    assert "'c'" in reasons[2]
    assert "an object with a value for each knob" in reasons[3]


def test_what_was_tried_is_not_tried_again() -> None:
    strategy, proposer = external([{"a": 4, "b": 1}], [{"a": 4, "b": 1}], [{"a": 4, "b": 1}], [{"a": 4, "b": 1}])
    strategy.tell([timed(strategy.ask(1)[0])])
    strategy.ask(2)
    assert proposer.questions[2]["refused"][0]["why"] == "it was proposed or tried already"


def test_after_three_silent_turns_the_other_strategy_goes_on_alone() -> None:
    strategy, proposer = external(space=SMALL)
    found = strategy.ask(100)
    assert len(found) == SMALL.size
    assert len(proposer.questions) == MAX_SILENT
    assert not strategy.is_listening


def test_a_proposer_that_talks_again_is_heard_again() -> None:
    strategy, _ = external(None, None, [{"tile": 64, "unroll": 4, "fast": True}], space=SMALL)
    strategy.ask(5)
    assert strategy.accepted == 1
    assert strategy.is_listening


def test_very_many_proposals_are_cut() -> None:
    strategy, proposer = external([{"a": 1, "b": 1}] * 5000, None)
    strategy.ask(1)
    assert len(proposer.questions[1]["refused"]) == MAX_PROPOSALS + 1
    assert len(json.dumps(proposer.questions[1])) < 60_000


def test_a_space_with_variants_is_described() -> None:
    described = describe_space(VARIED)
    assert set(described["variants"]) == {"library", "blocked", "packed"}
    assert described["variants"]["blocked"]["knobs"]["tile"] == [8, 16, 32]
    assert json.dumps(described)


ECHO = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({"ask": question["ask"], "configs": [{"a": 4, "b": question["ask"] % 2}]}), flush=True)
"""


@pytest.fixture
def script(tmp_path):
    def write(code):
        path = tmp_path / "propose.py"
        path.write_text(code)
        return f"{sys.executable} -S {path}"

    return write


def test_a_program_proposes_over_its_standard_streams(script, tmp_path) -> None:
    record = tmp_path / "answers.jsonl"
    with open_proposer(script(ECHO), 60.0, record) as proposer:
        live = External(SPACE, RandomSearch(SPACE, np.random.default_rng(0)), proposer).ask(4)
    with open_proposer(str(record)) as recorded:
        replayed = External(SPACE, RandomSearch(SPACE, np.random.default_rng(0)), recorded).ask(4)
    assert dict(live[0]) == {"a": 4, "b": 1}
    assert dict(live[2]) == {"a": 4, "b": 0}
    assert replayed == live


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(600)",
        "import sys; sys.exit(1)",
        "import sys\nfor line in sys.stdin: pass",
        "import sys\nfor line in sys.stdin: sys.stdout.write('x' * 1000); sys.stdout.flush()",
        "while True: print('x' * 100000)",
        "print('[' * 100000, flush=True)\nimport time; time.sleep(600)",
        "import os\nos.write(1, b'\\xff\\xfe\\n' * 10)\nimport time; time.sleep(600)",
    ],
    ids=["sleeps", "exits", "reads only", "never ends a line", "floods", "nests", "is no text"],
)
def test_a_hostile_program_stops_nothing(script, code) -> None:
    proposer = ProcessProposer(script(code), 0.05)
    try:
        found = External(SPACE, RandomSearch(SPACE, np.random.default_rng(0)), proposer).ask(100)
        assert len(found) == SPACE.size
    finally:
        proposer.close()


def test_a_program_that_reads_nothing_is_given_up(script, monkeypatch) -> None:
    proposer = ProcessProposer(script("import time; time.sleep(600)"), 0.01)
    try:
        monkeypatch.setattr(proposers, "WRITE_SECONDS", 0.05)
        answers = [proposer.ask({"trials": ["x" * 100_000]}) for _ in range(3)]
        assert answers == [None] * 3
    finally:
        proposer.close()


def test_what_the_program_started_ends_with_it(script, tmp_path, wait_until) -> None:
    place = tmp_path / "pid"
    code = (
        "import subprocess, time\np = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(place)!r}, 'w').write(str(p.pid))\ntime.sleep(600)"
    )
    with open_proposer(script(code), 0.01):
        wait_until(lambda: place.exists() and place.read_text(), "the child")
    wait_until(lambda: _is_gone(Path("/proc", place.read_text(), "stat")), "its end")


def _is_gone(stat) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_late_answer_is_not_one_to_the_next_question() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream = proposers.StreamProposer(ours.sendall, ours.fileno(), 0.01)
        assert stream.ask({}) is None
        theirs.sendall(b'{"ask": 1, "configs": ["late"]}\n{"ask": 2, "configs": ["on time"]}\n')
        assert stream.ask({}) == {"ask": 2, "configs": ["on time"]}


def test_a_socket_is_asked(tmp_path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rw") as file:
                question = json.loads(file.readline())
                file.write(json.dumps({"ask": question["ask"], "configs": [{"a": 4, "b": 0}]}) + "\n")
                file.flush()

        thread = threading.Thread(target=answer)
        thread.start()
        with open_proposer(f"unix:{path}", 60.0) as proposer:
            assert isinstance(proposer, SocketProposer)
            assert proposer.ask({})["configs"] == [{"a": 4, "b": 0}]
        thread.join()


def test_places_where_nobody_proposes_say_so(tmp_path) -> None:
    with pytest.raises(SettingsError, match="nobody listens"), open_proposer(f"unix:{tmp_path}/none"):
        pass
    with pytest.raises(SettingsError, match="cannot run the proposer"), open_proposer("nonesuch --x"):
        pass
    (tmp_path / "bad.jsonl").write_text("[1, 2]\n")
    with pytest.raises(WireError, match="no recording"):
        RecordedProposer(tmp_path / "bad.jsonl")


def test_a_recording_keeps_questions_and_answers(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    RecordingProposer(Scripted([{"a": 1}]), path).ask({"wants": 1})
    assert json.loads(path.read_text()) == {"question": {"wants": 1}, "answer": [{"a": 1}]}


KERNEL = """
import tunewright as tw
@tw.tune(tw.Space(tw.Knob("step", range(1, 200))), reference=lambda x: x * 2, shapes=[{"N": 8}])
def double(x: tw.In("N"), *, step): return x * 2
"""


def test_a_search_of_the_command_line_is_replayed_from_its_recording(tmp_path, monkeypatch) -> None:
    from click.testing import CliRunner

    from tunewright.cli.tune import tune

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "k.py").write_text(KERNEL)
    lines = [{"question": {}, "answer": {"configs": [{"step": step}, {"step": -1}]}} for step in (150, 77)]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["k.py:double", "--pool", "serial", "--budget", "6", "--proposer", "answers.jsonl", "--json"]
    done = CliRunner().invoke(tune, words)
    assert done.exit_code == 0, done.output
    tried = {dict(trial.config)["step"] for trial in tw.Session().store.trials(_key())}
    assert {150, 77} <= tried


def _key():
    return next(decision.key for decision in tw.Session().store.decisions("double"))
