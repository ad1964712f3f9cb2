"""Tutorial 3: write your own strategy, a class with `ask` and `tell`, and compare it with ours on recorded spaces.

    python tutorials/3_strategy.py

A published strategy is a package with an entry point in the group `tunewright.strategies`, and a test class that
inherits `tunewright.testing.strategy_kit.StrategyContract`. Here it is in this file, named as FILE.py:NAME.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
SPACES = HERE.parent.parent / "spaces"


class Coordinate:
    """Changes one knob of the best config so far; continues at random if no neighbor is left."""

    def __init__(self, space, rng):
        self.space, self.rng = space, rng
        self.seen = {}
        self.best = None

    def ask(self, count):
        """Returns neighbors of the best config that were not proposed yet, else random configs."""
        near = self.space.neighbors(self.best, reach=None) if self.best else []
        fresh = [config for config in near if config not in self.seen]
        wave = [fresh[i] for i in self.rng.permutation(len(fresh))[:count]]
        while len(wave) < count and len(self.seen) + len(wave) < len(self.space):
            (config,) = self.space.sample(self.rng)
            if config not in self.seen and config not in wave:
                wave.append(config)
        self.seen |= dict.fromkeys(wave)
        return wave

    def tell(self, trials):
        """Records the results of configs; a failure has no time to compare."""
        for trial in trials:
            self.seen[trial.config] = trial.seconds if trial.works else None
            known = self.seen.get(self.best)
            if trial.works and (known is None or trial.seconds < known):
                self.best = trial.config


if __name__ == "__main__":
    command = [sys.executable, "-m", "tunewright", "replay", "--spaces", str(SPACES), "--seeds", "2", "--budget", "50"]
    subprocess.run([*command, "--strategies", f"{HERE}:Coordinate,portfolio,random"], check=True)
    print("r50: the best time over the best found in 50 evaluations. Replayed from recordings: measurements 0")
