"""A strategy of somebody else's, as a plugin author would write it."""


class Greedy:
    """The neighbours of the best so far, then whatever is left."""

    def __init__(self, space, rng, first=0):
        self.space, self.rest, self.best, self.told = space, list(space), None, []
        self.rest.insert(0, self.rest.pop(first))

    def inform(self, prior):
        """Begin with the fastest of what others found."""
        trials = [trial for source in prior.sources for trial in source.trials if trial.works]
        self.told = sorted(trials, key=lambda trial: trial.seconds)
        for trial in reversed(self.told):
            if trial.config in self.rest:
                self.rest.remove(trial.config)
                self.rest.insert(0, trial.config)

    def ask(self, count):
        near = self.space.neighbors(self.best.config) if self.best else []
        self.rest.sort(key=lambda config: config not in near)
        asked, self.rest = self.rest[:count], self.rest[count:]
        return asked

    def tell(self, trials):
        for trial in trials:
            if trial.works and (self.best is None or trial.seconds < self.best.seconds):
                self.best = trial


class Stutterer(Greedy):
    """Proposes the same config again and again."""

    def ask(self, count):
        return [self.space.first]


class Wanderer(Greedy):
    """Proposes what is not in the space."""

    def ask(self, count):
        return [self.space.first.with_value("tile", 1000)]


class Broken(Greedy):
    """Raises."""

    def ask(self, count):
        return [1 / 0]
