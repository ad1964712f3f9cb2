"""What comes along with a bundle may come from anyone who may sign: it is read, passed over, or refused."""

import json
from contextlib import suppress

from damage import bent, effort, twisted
from hypothesis import given
from hypothesis import strategies as st

from tunewright.errors import BackendError, StoreError
from tunewright.spaces.config import Config
from tunewright.stores import serialization
from tunewright.stores.bundle.quarantine import Quarantine
from tunewright.stores.memory import MemoryStore
from tunewright.stores.transcripts import NAMESPACE, Transcript, load_transcript
from tunewright.testing.keys import KEY
from tunewright.triton.static import elf
from tunewright.triton.static.artifacts import CompiledArtifact

TOLD = Transcript(
    KEY.digest, (Config(tile=1), Config(tile=2)), 0, (2, 2), (None, None), b"\0\0\x80?" * 4, 0.01, default=1
)
ARTEFACT = CompiledArtifact("ab" * 32, "kernel", "cubin", json.dumps({"hash": "ab" * 32}).encode(), b"code")


def test_the_sound_ones_are_read() -> None:
    assert TOLD.is_consistent
    assert CompiledArtifact.from_bytes(ARTEFACT.to_bytes()) == ARTEFACT


@effort()
@given(twisted(json.loads(serialization.encode(TOLD))) | bent(serialization.encode(TOLD)))
def test_any_transcript_is_read_or_passed_over(body) -> None:
    store = MemoryStore()
    store.keep(NAMESPACE, KEY.digest, body)
    told = load_transcript(store, KEY)
    if told is not None and told.is_consistent:
        assert set(told.ranking()) <= set(told.configs)
        told.without_local_path()


@effort()
@given(bent(ARTEFACT.to_bytes()) | st.binary(max_size=200))
def test_any_compiled_kernel_is_read_or_refused(body) -> None:
    with suppress(BackendError):
        found = CompiledArtifact.from_bytes(body)
        assert "/" not in found.name


@effort()
@given(bent(b'{"' + b"0" * 64 + b'": {"config": {"tile": 1}, "reason": "slow", "when": "now"}}'))
def test_any_quarantine_is_read_or_refused(tmp_path_factory, body) -> None:
    cache = tmp_path_factory.mktemp("cache")
    (cache / "quarantine").mkdir()
    (cache / "quarantine" / f"{'0' * 64}.json").write_bytes(body)
    with suppress(StoreError):  # what was held back must not be served because a file is damaged
        assert isinstance(Quarantine(cache, "0" * 64).entries(), dict)


CUBIN = b"\x7fELF\x02\x01" + b"\0" * 34 + (64).to_bytes(8, "little") + b"\0" * 10 + b"\x40\0\x02\0\x01\0" + b"\0" * 200


@effort()
@given(bent(CUBIN) | st.binary(max_size=300))
def test_any_code_is_read_or_refused(body) -> None:
    with suppress(BackendError):
        found = elf.read_sections(body)
        elf.count_code_bytes(found)
        elf.read_registers_and_stack(found)
