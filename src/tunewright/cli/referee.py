"""`tunewright referee`: is a candidate that others wrote right, and really faster? Runs, checks and ranks matches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from tunewright.cli import output
from tunewright.cli.targets import json_option
from tunewright.errors import BundleError, TunewrightError
from tunewright.referee import Referee, RefereeTranscript, load_task, read_transcript, write_transcript
from tunewright.referee.leaderboard import leaderboard_page, rank
from tunewright.referee.transcripts import SignedTranscript, find_untrusted

FILE = click.Path(dir_okay=False, path_type=Path)
BAD_TRANSCRIPT = 1
STYLES = {"faster": "green", "tie": "yellow", "slower": "yellow", "checked": "yellow"}


@click.group()
def referee() -> None:
    """Judge whether a candidate that nobody trusts is right, and faster."""


@referee.command()
@click.argument("task", type=click.Path(exists=True, path_type=Path))
@click.argument("candidate")
@click.option("--against", multiple=True, metavar="BASELINE",
              help="What to compare with (several times); else the reference.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=20.0, show_default=True,
              help="How long to measure, besides starting processes.")  # fmt: skip
@click.option("--sittings", type=click.IntRange(1, 50), default=8, show_default=True,
              help="How often processes start anew.")  # fmt: skip
@click.option("--margin", type=click.FloatRange(0, 0.5), default=0.01, show_default=True,
              help="A difference too small to matter.")  # fmt: skip
@click.option("--gpu", metavar="NAME",
              help="Compile Triton kernels for this GPU and emulate them (sm_90); else, interpret.")  # fmt: skip
@click.option("--out", type=FILE, help="Write the transcript to this file.")
@click.option("--sign", "key", type=FILE, help="Sign the transcript with this private key; needs --out.")
@json_option
def run(task: Path, candidate: str, out: Path | None, key: Path | None, as_json: bool, **options: Any) -> None:
    """Judge CANDIDATE for TASK.

    TASK is a Python file or a folder with task.py, or a file in the style of KernelBench. CANDIDATE is a Python or C
    file, or a command in quotes with {input0} and {output}. It runs in a sandbox, without the clock and the answers.

    Exit status: 0 faster, 10 tie, 11 slower, 12 wrong, 13 suspect, 14 refused, 15 right but not timed.
    """
    if key is not None and out is None:
        raise click.UsageError("a signed transcript is a file; say where: --out match.json")
    against = options.pop("against")
    transcript = Referee(task, **options).run(candidate, against)
    if out is not None:
        write_transcript(out, transcript, key)
    if as_json:
        output.print_json(_summary(transcript))
    else:
        _print_verdict(transcript)
    sys.exit(transcript.verdict.exit_status)


@referee.command()
@click.argument("transcript", type=FILE)
@click.option("--task", type=click.Path(exists=True, path_type=Path),
              help="Also check that its inputs are those of this task.")  # fmt: skip
@click.option("--signers", type=FILE, help="Who may sign: a public key and a name on each line.")
@json_option
def check(transcript: Path, task: Path | None, signers: Path | None, as_json: bool) -> None:
    """Check that the verdict of TRANSCRIPT follows from its launches.

    Also its signature, if it has one. Exit status: 0 if it does, 1 if not.
    """
    try:
        read = read_transcript(transcript)
        problem = read.transcript.find_inconsistency() or _find_stranger(read, signers)
        if problem is None and task is not None:
            problem = read.transcript.find_other_inputs(load_task(task))
    except BundleError as error:
        problem, read = str(error), None
    if as_json:
        signer = read.signer.hex() if read and read.signer else None
        verdict = output.to_builtins(read.transcript.verdict) if read else None
        output.print_json({"valid": problem is None, "problem": problem, "signer": signer, "verdict": verdict})
    elif problem is not None:
        output.echo(f"{transcript}: {problem}", "red")
    elif read is not None:
        signed = "signed" if read.signer else "not signed"
        outcome, count = read.transcript.verdict.outcome, len(read.transcript.records)
        output.echo(f"{transcript}: {outcome}, as its {count} launches say; {signed}")
    sys.exit(BAD_TRANSCRIPT if problem is not None else 0)


@referee.command()
@click.argument("transcripts", type=FILE, nargs=-1, required=True)
@click.option("--signers", type=FILE, help="Leave out transcripts that these did not sign.")
@click.option("--out", type=FILE, help="Write a page to this file.")
@json_option
def leaderboard(transcripts: tuple[Path, ...], signers: Path | None, out: Path | None, as_json: bool) -> None:
    """Rank the candidates of TRANSCRIPTS of one task.

    Those that cannot be checked are left out, and named.
    """
    kept: list[RefereeTranscript] = []
    left_out: dict[str, str] = {}
    for path in transcripts:
        try:
            read = read_transcript(path)
            problem = read.transcript.find_inconsistency() or _find_stranger(read, signers)
        except TunewrightError as error:
            problem, read = str(error), None
        if problem is not None or read is None:
            left_out[str(path)] = problem or "unreadable"
        else:
            kept.append(read.transcript)
    rows = rank(kept)
    if out is not None:
        out.write_text(leaderboard_page(kept, left_out))
    if as_json:
        output.print_json({"rows": [msgspec.structs.asdict(row) for row in rows], "left_out": left_out})
        return
    heads = ("place", "candidate", "verdict", "times the baseline's", "reason")
    output.print_table(heads, ([row.place or "", row.name, row.outcome, row.shown, row.reason] for row in rows))
    for name, problem in left_out.items():
        output.echo(f"left out: {name}: {problem}", "yellow")


def _find_stranger(read: SignedTranscript, signers: Path | None) -> str | None:
    if signers is None:
        return None
    from tunewright.stores.bundle.signers import read_signers  # noqa: PLC0415 - needs `cryptography`

    return find_untrusted(read, read_signers(signers).require_single(str(signers)))


def _summary(transcript: RefereeTranscript) -> dict[str, Any]:
    """Returns what the command prints as JSON; the launches are in the transcript."""
    whole: dict[str, Any] = output.to_builtins(transcript)
    return {name: value for name, value in whole.items() if name != "records"} | {
        "launches": len(transcript.records),
        "exit_status": transcript.verdict.exit_status,
    }


def _print_verdict(transcript: RefereeTranscript) -> None:
    verdict = transcript.verdict
    output.echo(f"{transcript.parties[0].name}: {verdict.outcome}", STYLES.get(verdict.outcome, "bold red"))
    output.echo(verdict.reason)
    if verdict.failing is not None and verdict.failing.shape >= 0:
        sizes = ", ".join(f"{name}={size}" for name, size in transcript.shapes[verdict.failing.shape].items())
        output.echo(f"smallest failing input: {sizes or 'the only shape'}, seed {verdict.failing.seed}")
    parts = ", ".join(transcript.sandbox.active) or "not entered"
    output.echo(f"{len(transcript.records)} launches, load {transcript.load:.1f}; sandbox: {parts}")
    for text in transcript.notes:
        output.echo(text, "yellow")
