"""Torture: two tuners on a simulated machine where the truth is known, in bad weather."""

from easel import LEAF, WARM, blank, keep

from tunewright.testing.torture import torture
from tunewright.testing.torture.scenarios import SCENARIOS
from tunewright.testing.torture.tuners import Ours


class Stopwatch:
    """One reading of each: what one would write in a hurry."""

    name = "one reading each"

    def choose(self, machine):
        return min(range(machine.candidates), key=machine.run)


if __name__ == "__main__":
    calm = [one for one in SCENARIOS if one.name not in ("crashing", "refusing", "unreadable clock")][:6]
    figure, axes = blank("Choices more than 1 % slower than the best, of 12", high=3.8)
    for i, (tuner, colour) in enumerate(((Stopwatch(), WARM), (Ours(), LEAF))):
        scores = torture(tuner, calm, problems=6)
        print(tuner.name, {score.scenario: score.wrong for score in scores})
        axes.barh(
            [k + 0.35 * i for k in range(len(scores))], [s.wrong for s in scores], 0.33, color=colour, label=tuner.name
        )
    axes.set_yticks([k + 0.17 for k in range(len(calm))], [one.name for one in calm])
    axes.legend()
    keep(figure, __file__)
