"""Searches over recorded spaces: ours, which stand beside this file, and others where they are at hand."""

from pathlib import Path

import numpy as np
import pytest

from tunewright import Session, tune
from tunewright.backends.replay import Recording, Replay
from tunewright.model.trial import Failure
from tunewright.stores.memory import MemoryStore

OURS = Path(__file__).parent.parent / "recorded"
OTHERS = Path(__file__).parent.parent.parent.parent / "shared" / "spaces"


def searched(recording, **settings):
    session = Session(store=MemoryStore(), pool="serial", **settings)
    tuned = tune(recording.space, backend=Replay(recording), session=session)(lambda: None)
    return tuned.decide(), session


def test_our_recorded_gemm_is_whole() -> None:
    recording = Recording.read(OURS / "gemm.parquet")
    assert len(recording.trials) == recording.space.size == 234
    assert recording.best.seconds < 1e-3
    times = [trial.seconds for trial in recording.trials.values() if not isinstance(trial.outcome, Failure)]
    assert np.median(times) > 1.5 * recording.best.seconds


def test_an_exhaustive_search_over_a_recording_finds_its_best() -> None:
    recording = Recording.read(OURS / "gemm.parquet")
    decision, session = searched(recording, strategy="exhaustive", trials=1000)
    assert decision.evidence.seconds <= 1.01 * recording.best.seconds
    assert session.counts["measurements"] == recording.space.size


def test_a_random_search_over_a_recording_depends_on_its_seed_alone() -> None:
    recording = Recording.read(OURS / "gemm.parquet")
    decisions = [searched(recording, trials=20, seed=seed, strategy="random")[0].config for seed in (1, 1, 2, 3, 4)]
    assert decisions[0] == decisions[1]
    assert len(set(decisions)) > 1


@pytest.mark.skipif(not OTHERS.is_dir(), reason="no other recorded spaces beside this project")
def test_recorded_spaces_of_real_gpus_are_read_whole() -> None:
    paths = sorted(OTHERS.glob("*.parquet"))
    assert paths
    for path in paths[::5]:
        recording = Recording.read(path)
        assert all(config in recording.space for config in recording.trials)
        decision, _ = searched(recording, trials=50)
        assert decision.evidence.seconds >= recording.best.seconds
