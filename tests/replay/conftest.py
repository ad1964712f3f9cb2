"""Small made-up recordings, on disk as real ones are."""

import pytest

from tunewright import Knob, Rule, Space
from tunewright.backends.replay import Recording
from tunewright.model.trial import Failure, Kind, Stage, Timing, Trial
from tunewright.replay.tables import RecordingFile

SPACE = Space(
    Knob("tile", [1, 2, 4, 8, 16]),
    Knob("unroll", [1, 2, 4]),
    Knob("order", ["ij", "ji"]),
    rules=[Rule("no more unrolling than tile allows", lambda tile, unroll: unroll <= tile)],
)


def trial_of(config, best_tile=8):
    if config["tile"] == 16 and config["unroll"] == 4:
        return Trial(config, Failure(Stage.BUILD, Kind.REFUSED, "too many registers"), 0.25)
    seconds = 1e-3 * (1 + abs(config["tile"] - best_tile) + config["unroll"] / 8 + 0.5 * (config["order"] == "ji"))
    return Trial(config, Timing((seconds,)), 0.5, 0.25)


@pytest.fixture
def recorded(tmp_path):
    """A function that records the made-up kernel, and says where."""

    def record(name="toy-A", best_tile=8, folder=tmp_path / "spaces", kernel="toy", spread=0.0):
        folder.mkdir(exist_ok=True)
        trials = {config: trial_of(config, best_tile) for config in SPACE}
        spreads = {config: spread * trial.seconds for config, trial in trials.items() if spread and trial.works}
        Recording(kernel, name, SPACE, trials, spreads=spreads).write(folder / f"{name}.parquet")
        return RecordingFile(folder / f"{name}.parquet")

    return record
