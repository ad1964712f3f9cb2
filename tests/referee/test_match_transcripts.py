"""Transcripts: whoever changes one is found out, and a leaderboard ranks only what can be checked."""

import json

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from tunewright.cli.main import command
from tunewright.errors import BundleError
from tunewright.referee import RefereeTranscript, Task, TaskError, read_transcript, write_transcript
from tunewright.referee.checking import digest_arguments
from tunewright.referee.draws import FRESH
from tunewright.referee.leaderboard import leaderboard_page, rank
from tunewright.referee.messages import SandboxReport
from tunewright.referee.transcripts import Party, digest_source, find_untrusted
from tunewright.referee.verdict import Incident, LaunchRecord, MatchRules, judge

SOURCE = "import numpy\n"


def make_inputs(rng):
    return (rng.standard_normal(8),)


TASK = Task(np.negative, make_inputs, name="negative", source=SOURCE)


def transcript(ratio: float = 0.8, name: str = "mine.py", incidents=(), source: str = SOURCE) -> RefereeTranscript:
    rng = np.random.default_rng(1)
    records = []
    for number in range(60):
        times = int(ratio * 1e6 * np.exp(rng.normal(0, 0.01))), 1_000_000
        digest = digest_arguments(TASK.make_inputs(0, number, 4)) if number < 3 else ""
        records.append(LaunchRecord(number // 20, FRESH, 0, number, 0, times, times, inputs=digest))
    rules = MatchRules()
    return RefereeTranscript(
        "task.py", digest_source(source), ({},), (Party(name, "a"), Party("the reference", "b")), rules,
        SandboxReport(), tuple(records), tuple(incidents), (4, 4, 4),
        judge(records, incidents, rules, ["the reference"]), machine="a machine",
    )  # fmt: skip


def test_a_transcript_comes_back_as_it_was(tmp_path) -> None:
    write_transcript(tmp_path / "m", transcript())
    read = read_transcript(tmp_path / "m")
    assert read.transcript == transcript()
    assert read.signer is None
    assert read.transcript.find_inconsistency() is None
    assert read.transcript.find_other_inputs(TASK) is None


def test_a_better_verdict_does_not_follow_from_the_launches() -> None:
    honest = transcript(1.2)
    assert honest.verdict.outcome == "slower"
    for change in ({"outcome": "faster"}, {"ratio": 0.5}, {"low": 1.0001}, {"ratio": None}):
        forged = msgspec.structs.replace(honest, verdict=msgspec.structs.replace(honest.verdict, **change))
        assert forged.find_inconsistency() is not None, change


def test_other_inputs_or_another_task_are_found() -> None:
    honest = transcript()
    other = msgspec.structs.replace(honest, constant_seeds=(5, 5, 5), records=honest.records[1:])
    assert other.find_other_inputs(TASK) is None  # nothing of this task is constant
    record = msgspec.structs.replace(honest.records[0], seed=99)
    forged = msgspec.structs.replace(honest, records=(record, *honest.records[1:]))
    assert "differ" in str(forged.find_other_inputs(TASK))
    assert "another one" in str(transcript(source="other").find_other_inputs(TASK))


def test_a_signature_covers_every_byte(tmp_path) -> None:
    signing = pytest.importorskip("tunewright.stores.bundle.signing")
    public = signing.parse_public_key(signing.generate_key(tmp_path / "key"), "here")
    write_transcript(tmp_path / "m", transcript(), tmp_path / "key")
    read = read_transcript(tmp_path / "m")
    assert read.signer == public
    assert find_untrusted(read, {public: "team"}) is None
    assert "not on the list" in str(find_untrusted(read, {}))
    data = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(data.replace(b"mine.py", b"your.py"))
    with pytest.raises(BundleError, match="signature is wrong"):
        read_transcript(tmp_path / "m")


def test_an_unsigned_transcript_counts_for_nobody_who_asks(tmp_path) -> None:
    write_transcript(tmp_path / "m", transcript())
    assert "not signed" in str(find_untrusted(read_transcript(tmp_path / "m"), {}))


@pytest.mark.parametrize("data", [b"", b"{}", b"[1", b"\xff\xfe", b'{"schema": 1}'])
def test_what_is_no_transcript_is_named(tmp_path, data) -> None:
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(TaskError, match="no transcript"):
        read_transcript(tmp_path / "m")


def test_a_board_ranks_the_fastest_first_and_ties_share_a_place() -> None:
    quick, same, slow = transcript(0.5, "quick"), transcript(0.501, "same"), transcript(1.5, "slow")
    bad = transcript(0.1, "bad", [Incident("wrong", "off", FRESH, 0, 1)])
    rows = rank([slow, bad, same, quick])
    assert [(row.place, row.name) for row in rows] == [(1, "quick"), (1, "same"), (3, "slow"), (None, "bad")]
    page = leaderboard_page([slow, bad], {"x.json": "<not signed>"})
    assert "slow" in page
    assert "&lt;not signed&gt;" in page


def test_a_board_is_of_one_task_and_one_set_of_baselines() -> None:
    with pytest.raises(TaskError, match="different tasks"):
        rank([transcript(), transcript(source="other")])
    other = msgspec.structs.replace(transcript(), parties=(Party("mine.py", "a"), Party("another", "c")))
    with pytest.raises(TaskError, match="different baselines"):
        rank([transcript(), other])


def run(*words: str) -> Result:
    return CliRunner().invoke(command, ["referee", *words])


def test_check_and_leaderboard_on_the_command_line(tmp_path) -> None:
    good, forged = tmp_path / "good.json", tmp_path / "forged.json"
    write_transcript(good, transcript())
    forged.write_bytes(good.read_bytes().replace(b'"outcome":"faster"', b'"outcome":"slower"'))
    done = run("check", str(good), "--json")
    assert (done.exit_code, json.loads(done.output)["valid"]) == (0, True)
    done = run("check", str(forged))
    assert done.exit_code == 1
    assert "its launches give 'faster'" in done.output
    done = run("leaderboard", str(good), str(forged), "--out", str(tmp_path / "board.html"))
    assert done.exit_code == 0, done.output
    assert "mine.py" in done.output
    assert "left out" in done.output
    assert "Left out" in (tmp_path / "board.html").read_text()
