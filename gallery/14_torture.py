"""Torture: two tuners on a simulated machine with disturbances, where the truth is known."""

from easel import LEAF, WARM, blank, keep

from tunewright.testing.torture import torture
from tunewright.testing.torture.scenarios import SCENARIOS
from tunewright.testing.torture.tuners import TunewrightTuner


class Stopwatch:
    """Times each candidate once: what one would write in a hurry."""

    name = "one reading each"

    def choose(self, machine):
        return min(range(machine.candidates), key=machine.run)


if __name__ == "__main__":
    calm = [one for one in SCENARIOS if one.name not in ("crashing", "refusing", "unreadable clock")][:6]
    figure, axes = blank("Choices more than 1 % slower than the best, of 12", high=3.8)
    for i, (tuner, color) in enumerate(((Stopwatch(), WARM), (TunewrightTuner(), LEAF))):
        scores = torture(tuner, calm, problems=6)
        print(tuner.name, {score.scenario: score.wrong for score in scores})
        axes.barh(
            [k + 0.35 * i for k in range(len(scores))], [s.wrong for s in scores], 0.33, color=color, label=tuner.name
        )
    axes.set_yticks([k + 0.17 for k in range(len(calm))], [one.name for one in calm])
    axes.legend()
    keep(figure, __file__)
