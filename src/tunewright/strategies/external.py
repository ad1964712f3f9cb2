"""Proposals from outside: a program or a model proposes configs in turn with another strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tunewright.errors import SpaceError
from tunewright.model.trial import Failure, Trial
from tunewright.ports.strategy import Forecast, PredictsRegret, Strategy
from tunewright.spaces.config import Config
from tunewright.spaces.rule import Knob
from tunewright.spaces.space import Space

MAX_RETRIES = 2
"""How often a proposer may answer again in one turn, after everything it proposed was refused."""

MAX_SILENT = 3
"""Turns in a row without a valid proposal after which a proposer is asked no more."""

MAX_PROPOSALS = 64
"""Proposals of one answer that are looked at."""


class Proposer(Protocol):
    """Whoever proposes: gets a question, and answers within a limit of its own."""

    def ask(self, question: Mapping[str, Any]) -> Any:
        """Returns the answer, which may be anything; None if there was none in time."""
        ...


class External:
    """Asks a proposer every other turn, and another strategy in between, or when the proposer has nothing to say.

    A question has the `space` (the first time), the `trials` since the last one, the `best` so far, how many configs
    it `wants`, and what was `refused` and why. The answer is `{"configs": [{"tile": 16, ...}, ...]}`, or the list. An
    answer that is late, empty or no answer at all costs a turn; after three such in a row the other strategy goes on
    alone. Every trial is told to both.
    """

    def __init__(self, space: Space, inner: Strategy, proposer: Proposer) -> None:
        self._space, self._inner, self._proposer = space, inner, proposer
        self._pending: list[Config] = []
        self._proposed: set[Config] = set()
        self._news: list[Trial] = []
        self._refused: list[dict[str, Any]] = []
        self._best: Trial | None = None
        self._turn = self._silent = 0
        self._introduced = False
        self.accepted = 0

    @property
    def is_listening(self) -> bool:
        """Whether the proposer is still asked."""
        return self._silent < MAX_SILENT

    def ask(self, count: int) -> Sequence[Config]:
        """Returns up to `count` new configs."""
        configs: list[Config] = []
        while len(configs) < count and (config := self._next()) is not None:
            configs.append(config)
        return configs

    def _next(self) -> Config | None:
        self._turn += 1
        if self._turn % 2 and (config := self._next_of_proposer()) is not None:
            return config
        while proposals := self._inner.ask(1):
            if proposals[0] not in self._proposed:
                self._proposed.add(proposals[0])
                return proposals[0]
        return self._next_of_proposer()

    def _next_of_proposer(self) -> Config | None:
        """Returns a proposal from outside that is new; None if there is none."""
        while self._pending:
            config = self._pending.pop(0)
            if config not in self._proposed:
                self._proposed.add(config)
                self.accepted += 1
                return config
        if not self.is_listening:
            return None
        for _ in range(1 + MAX_RETRIES):
            answer = self._proposer.ask(self._question())
            if answer is None:
                break
            self._pending = self._check(answer)
            if self._pending:
                self._silent = 0
                return self._next_of_proposer()
        self._silent += 1
        return None

    def _question(self) -> dict[str, Any]:
        question: dict[str, Any] = {
            "wants": 1,
            "trials": [describe_trial(trial) for trial in self._news],
            "best": None if self._best is None else describe_trial(self._best),
            "refused": self._refused,
        }
        if not self._introduced:
            question["space"] = describe_space(self._space)
        self._introduced, self._news, self._refused = True, [], []
        return question

    def _check(self, answer: Any) -> list[Config]:
        """Returns the valid new configs of an answer; the others are refused with the reason."""
        proposals = answer.get("configs") if isinstance(answer, Mapping) else answer
        if not isinstance(proposals, list):
            self._refuse(answer, 'an answer is {"configs": [{"KNOB": VALUE, ...}, ...]}')
            return []
        if len(proposals) > MAX_PROPOSALS:
            self._refuse(f"{len(proposals) - MAX_PROPOSALS} more", f"at most {MAX_PROPOSALS} are looked at")
        valid: list[Config] = []
        for proposal in proposals[:MAX_PROPOSALS]:
            if not isinstance(proposal, Mapping):
                self._refuse(proposal, "a config is an object with a value for each knob")
                continue
            try:
                config = self._space.require(dict(proposal))
            except (SpaceError, TypeError) as error:
                self._refuse(proposal, str(error))
                continue
            if config in self._proposed or config in valid:
                self._refuse(proposal, "it was proposed or tried already")
            else:
                valid.append(config)
        return valid

    def _refuse(self, proposal: Any, reason: str) -> None:
        self._refused.append({"config": _shortened(proposal), "why": reason[:400]})

    def tell(self, trials: Sequence[Trial]) -> None:
        """Tells both."""
        for trial in trials:
            self._proposed.add(trial.config)
            if trial.works and (self._best is None or trial.seconds < self._best.seconds):
                self._best = trial
        self._news += trials
        self._inner.tell(trials)

    def forecast(self) -> Forecast | None:
        """Returns the forecast of the other strategy."""
        return self._inner.forecast() if isinstance(self._inner, PredictsRegret) else None


def describe_trial(trial: Trial) -> dict[str, Any]:
    """Returns a trial as JSON: its config, and its seconds or why it failed."""
    outcome = trial.outcome
    if isinstance(outcome, Failure):
        return {"config": dict(trial.config), "failure": f"{outcome.kind} at {outcome.stage}: {outcome.reason}"[:400]}
    return {"config": dict(trial.config), "seconds": trial.seconds}


def describe_space(space: Space) -> dict[str, Any]:
    """Returns a space as JSON: knobs with their values, rules by their reasons, and variants with their own."""
    variants = {
        variant.name: {"knobs": _values(variant.knobs), "rules": [rule.reason for rule in variant.rules]}
        for variant in space.variants
    }
    described = {"knobs": _values(space.knobs), "rules": [rule.reason for rule in space.rules]}
    return {**described, **({"variants": variants} if variants else {})}


def _values(knobs: Sequence[Knob]) -> dict[str, Any]:
    return {knob.name: list(knob.values) if knob.range is None else str(knob) for knob in knobs}


def _shortened(value: Any) -> Any:
    """Returns a proposal as it was, or its beginning if it is long."""
    text = repr(value)
    return value if len(text) <= 400 and isinstance(value, Mapping | str) else text[:400]
