"""Which knobs matter: from the trials of a recorded gemm, with intervals."""

from pathlib import Path

from easel import LEAF, blank, keep

from tunewright.backends.replay import Recording
from tunewright.report.importance import ImportanceReport

SPACE = Path(__file__).resolve().parent.parent / "spaces" / "gemm-cpu-avx512.parquet"

if __name__ == "__main__":
    recording = Recording.read(SPACE)
    found = ImportanceReport.of(list(recording.trials.values())[::8])
    print(f"{found.trials} trials; the knobs foretell {found.explained:.0%} of the variance of others")
    figure, axes = blank(f"{recording.kernel}: share of what mattered")
    knobs = sorted(found.knobs, key=lambda one: one.share)
    axes.barh([one.knob for one in knobs], [one.share for one in knobs], color=LEAF)
    for i, one in enumerate(knobs):
        axes.plot([one.low, one.high], [i, i], color="black", linewidth=1)
    axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    keep(figure, __file__)
