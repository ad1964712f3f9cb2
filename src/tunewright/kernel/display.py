"""What a tuned kernel shows of itself: its decisions in this process, explanations, trials and plots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from tunewright.errors import NoDecision, TunewrightError
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.key import Key
from tunewright.session import Session
from tunewright.settings import Mode
from tunewright.spaces.config import Config
from tunewright.spaces.space import Space

MAX_USED = 20
"""Decisions of a kernel that are looked up to be shown."""


class Shown:
    """The methods of a tuned kernel for people: they read what is known, and never tune."""

    if TYPE_CHECKING:
        space: Space

        @property
        def name(self) -> str: ...
        @property
        def session(self) -> Session: ...
        @property
        def default(self) -> Config: ...
        def problem(self, args: Sequence[Any]) -> Problem: ...

    def __repr__(self) -> str:
        from tunewright.report.summary import kernel_text  # noqa: PLC0415 - only when shown

        return kernel_text(*self._shown())

    def _repr_html_(self) -> str:
        from tunewright.report.notebook import kernel_html  # noqa: PLC0415 - only when shown

        return kernel_html(*self._shown())

    def _shown(self) -> tuple[str, list[Decision]]:
        """Returns a heading, and the decisions that this process has used; without them if the store cannot be read."""
        from tunewright.report.formatting import counted  # noqa: PLC0415 - only when shown

        head = f"{self.name}: {counted(self.space.combinations, 'combination')} of {', '.join(self.space.names)}"
        try:
            return f"{head}; mode {self.session.mode}", self.used()
        except TunewrightError as error:
            return f"{head}; {error}", []

    def used(self) -> list[Decision]:
        """Returns the latest decisions that calls of this process got, oldest first."""
        session = self.session
        chosen = [(key, config) for key, config in session.chosen.items() if key.kernel == self.name][-MAX_USED:]
        similar = session.mode in (Mode.FROZEN, Mode.RECORD)
        decisions = []
        for key, config in chosen:
            problem = Problem(key, self.space, self.default)
            found = None if session.mode is Mode.OFF else session.find_decision(problem, allow_similar=similar)
            tier = Tier.DEFAULT if config == self.default else Tier.NEAREST
            decisions.append(found or Decision(key, config, tier=tier))
        return decisions

    def explain(self, *args: Any) -> str:
        """Returns why a call with `args` gets its config, like `tunewright explain`; never tunes.

        Without `args`, explains the only decision that is known.
        """
        from tunewright.report import explanation  # noqa: PLC0415 - only when asked for
        from tunewright.report.notebook import Text  # noqa: PLC0415 - as above
        from tunewright.stores.fallback import SAME_QUESTION_TIERS, find_nearest  # noqa: PLC0415 - as above

        if not args:
            return Text("\n".join(explanation.explain_decision(self._only_decision("explain"))))
        problem, session = self.problem(args), self.session
        decision = session.find_decision(problem, allow_similar=True)
        is_answer = decision is not None and decision.tier in SAME_QUESTION_TIERS
        near = [] if is_answer else find_nearest(session.store, problem.exact or problem.key)
        remedy = f"{self.name}.tune(...) with these arguments"
        return Text("\n".join(explanation.explain_problem(problem, decision, near, remedy)))

    def trials(self, *args: Any) -> Any:
        """Returns what was tried for a call with `args`, in order: a pandas DataFrame, or dictionaries without pandas.

        Without `args`, for the only decision that is known.
        """
        from tunewright.report import trial_table  # noqa: PLC0415 - only when asked for

        return trial_table.make(list(self.session.store.trials(self._problem_key(args, "trials"))))

    def plot(self, *args: Any) -> Any:
        """Returns a matplotlib figure of the search for a call with `args`: times, the best so far, and two knobs.

        Without `args`, of the only decision that is known.
        """
        from tunewright.report import plots  # noqa: PLC0415 - only when asked for

        key = self._problem_key(args, "plot")
        trials = list(self.session.store.trials(key))
        if not trials:
            raise NoDecision(f"no trials of {self.name} {key.signature} are stored, so there is nothing to draw")
        return plots.make_figure(key, trials, self.session.find_decision(Problem(key, self.space, self.default)))

    def _problem_key(self, args: Sequence[Any], method: str) -> Key:
        return self.problem(args).key if args else self._only_decision(method).key

    def _only_decision(self, method: str) -> Decision:
        """Returns the one decision that this process used, or that the store has of this kernel."""
        from tunewright.report.summary import listed  # noqa: PLC0415 - only when asked for

        used = self.used() or list(islice(self.session.store.decisions(self.name), MAX_USED))
        if len(used) == 1:
            return used[0]
        if not used:
            raise NoDecision(f"nothing is decided for {self.name} yet; call it first, or name a call: {method}(...)")
        known = listed([str(decision.key.signature) for decision in used])
        raise NoDecision(
            f"{self.name} has several decisions ({known}); say which, with the arguments of a call: "
            f"{self.name}.{method}(...)"
        )
