"""Transcripts of matches: everything that a verdict rests on, written, signed and checked again."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from math import isclose
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunewright.errors import WireError
from tunewright.referee.checking import digest_arguments
from tunewright.referee.contestant import Position
from tunewright.referee.draws import Drawn, make_arguments
from tunewright.referee.messages import SandboxReport
from tunewright.referee.task import Task, TaskError
from tunewright.referee.verdict import Incident, LaunchRecord, MatchRules, RefereeVerdict, judge
from tunewright.stores import files, serialization

SCHEMA = 1
MAX_BYTES = 64 << 20
"""Largest transcript that is read."""

CLAIM_TOLERANCE = 1e-9


class Party(msgspec.Struct, frozen=True):
    """A contestant: its name, and the SHA-256 of its source."""

    name: str
    digest: str


class RefereeTranscript(msgspec.Struct, frozen=True):
    """A match: who took part, how it was judged, every launch, and the verdict.

    `parties` begins with the candidate. `constant_seeds` has the seed of constant inputs and model parameters of each
    sitting. `notes` says what limits the verdict, such as missing parts of the sandbox.
    """

    task: str
    task_digest: str
    shapes: tuple[dict[str, int], ...]
    parties: tuple[Party, ...]
    rules: MatchRules
    sandbox: SandboxReport
    records: tuple[LaunchRecord, ...]
    incidents: tuple[Incident, ...]
    constant_seeds: tuple[int, ...]
    verdict: RefereeVerdict
    machine: str = ""
    versions: dict[str, str] = {}
    load: float = 0.0
    notes: tuple[str, ...] = ()
    made: str = ""
    schema: int = SCHEMA

    def judge_again(self) -> RefereeVerdict:
        """Returns the verdict that follows from the launches."""
        return judge(self.records, self.incidents, self.rules, [party.name for party in self.parties[1:]])

    def find_inconsistency(self) -> str | None:
        """Returns why the verdict does not follow from the launches; None if it does."""
        if any(len(times) != len(self.parties) for r in self.records for times in (r.wall, r.cpu)):
            return "its launches are not those of its contestants"
        again = self.judge_again()
        if again.outcome != self.verdict.outcome:
            return f"its launches give {again.outcome!r}, not {self.verdict.outcome!r}"
        for name in ("ratio", "low", "high"):
            claim, value = getattr(self.verdict, name), getattr(again, name)
            if (claim is None) != (value is None) or not isclose(claim or 0, value or 0, rel_tol=CLAIM_TOLERANCE):
                return f"its launches give a {name} of {value}, not {claim}"
        return None

    def find_other_inputs(self, task: Task) -> str | None:
        """Returns why the launches are not of the inputs of this task; None if those that were noted are."""
        if self.task_digest != digest_source(task.source):
            return "the task is another one than that of the transcript"
        for record in self.records:
            drawn = Drawn(record.kind, record.shape, record.seed, record.swap, Position(0, 0))
            if record.inputs:
                arguments = make_arguments(task, drawn, self.constant_seeds[record.sitting])
                if digest_arguments(arguments) != record.inputs:
                    return f"the inputs with seed {record.seed} differ: another version of numpy, or another generator"
        return None


class SignedTranscript(NamedTuple):
    """A transcript as it was read: its bytes, and the public key that signed them; None without a signature."""

    transcript: RefereeTranscript
    signer: bytes | None


def digest_source(source: str) -> str:
    """Returns the SHA-256 of a source."""
    return sha256(source.encode()).hexdigest()


def write_transcript(path: Path, transcript: RefereeTranscript, key: Path | None = None) -> None:
    """Writes a transcript: a line of JSON, and a line with its signature if there is a key."""
    body = serialization.encode(transcript)
    signature = b""
    if key is not None:
        from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

        signature = signing.sign_verdict(body, signing.load_private_key(key)).encode() + b"\n"
    files.write_atomic(path, body + b"\n" + signature)


def read_transcript(path: Path) -> SignedTranscript:
    """Returns a transcript; raises TaskError if it cannot be read, and BundleError if its signature is wrong."""
    try:
        body, _, signature = files.read_bounded(path, MAX_BYTES).rstrip(b"\n").partition(b"\n")
        transcript = serialization.decode(body, RefereeTranscript)
    except (OSError, WireError, msgspec.MsgspecError) as error:
        raise TaskError(f"{path} is no transcript of a referee: {error}") from error
    if transcript.schema != SCHEMA:
        raise TaskError(f"{path} has schema {transcript.schema}; this version reads {SCHEMA}")
    if not signature:
        return SignedTranscript(transcript, None)
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    return SignedTranscript(transcript, signing.verify_verdict_signer(signature.decode(errors="replace"), body))


def find_untrusted(read: SignedTranscript, signers: Mapping[bytes, str]) -> str | None:
    """Returns why a transcript does not count for who trusts these signers; None if it does."""
    if read.signer is None:
        return "it is not signed; sign with `tunewright referee run --sign KEY`"
    return None if read.signer in signers else "its signer is not on the list of signers"
