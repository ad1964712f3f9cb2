"""Puts tuning off: a call whose sibling is decided is answered by it at once, and its key is noted for later.

Triton specializes on alignment, divisibility and layout, and so do keys. If each of them were tuned at its first call,
a program would stop for a search many times where Triton's own autotuner stops once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from typing import Protocol
from weakref import WeakSet

import msgspec

from tunewright.errors import StoreError, WireError
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision, Problem
from tunewright.session import Session
from tunewright.spaces.config import Config
from tunewright.stores.capabilities import RecordsMisses
from tunewright.stores.statistics import MissRecord
from tunewright.triton.keys import KeyBuilder
from tunewright.triton.options import TuneOn

log = LazyLogger(__name__)

MAX_DECISIONS = 1000
"""Stored decisions of a kernel among which a sibling is looked for."""

MAX_LIKELY = 4
"""Configs among which a compiler chooses if nothing is decided yet."""

_is_idle: ContextVar[bool] = ContextVar("_is_idle", default=False)


class Defers(Protocol):
    """A kernel that has put tuning off."""

    def forget(self) -> None:
        """Forgets what calls are launched with, so that they are looked up again."""
        ...


_deferring: WeakSet[Defers] = WeakSet()


@contextmanager
def idle() -> Iterator[None]:
    """Allows calls in this block to tune what was put off: each call tunes its own key, unless it is decided.

    Example:
        with idle():  # nobody waits for an answer now
            model(example)
    """
    token = _is_idle.set(True)
    try:
        for kernel in list(_deferring):
            kernel.forget()
        _deferring.clear()
        yield
    finally:
        _is_idle.reset(token)


def must_defer(tune_on: TuneOn, *, has_sibling: bool) -> bool:
    """Whether a call must be answered without tuning."""
    if tune_on == "never" or _is_idle.get():
        return tune_on == "never"
    return has_sibling or tune_on == "idle"


def find_sibling(session: Session, problem: Problem, keys: KeyBuilder, known: Iterable[Decision]) -> Decision | None:
    """Returns the decision of a key that differs in what Triton specializes on only, the most similar one."""
    wanted = keys.without_specialization(problem.key.signature)

    def is_sibling(decision: Decision) -> bool:
        key = decision.key
        return (
            keys.without_specialization(key.signature) == wanted
            and msgspec.structs.replace(key, signature=problem.key.signature) == problem.key
            and decision.config in problem.space
            and (decision.evidence is None or decision.evidence.complete)
        )

    try:
        stored = islice(session.store.decisions(problem.key.kernel), MAX_DECISIONS)
        siblings = [decision for decision in chain(known, stored) if is_sibling(decision)]
    except (StoreError, WireError) as error:
        log.warning("the store is skipped: %s", error)
        return None
    own = set(problem.key.signature.args)
    return min(siblings, key=lambda one: (len(own ^ set(one.key.signature.args)), one.key.digest), default=None)


def likely_configs(session: Session, problem: Problem) -> list[Config]:
    """Returns the default, and configs that were decided for similar keys, the most similar first."""
    try:
        related = list(islice(session.store.decisions(problem.key.kernel), MAX_DECISIONS))
    except (StoreError, WireError) as error:
        log.warning("the store is skipped: %s", error)
        related = []
    nearest = session.find_decision(problem, allow_similar=True)
    related = [decision for decision in related if decision.key.device == problem.key.device]
    own = set(problem.key.signature.args)
    related.sort(key=lambda one: (len(own ^ set(one.key.signature.args)), one.key.digest))
    decided = [decision.config for decision in ([nearest] if nearest else []) + related]
    others = [config for config in dict.fromkeys(decided) if config in problem.space and config != problem.default]
    return [*others[: MAX_LIKELY - 1], problem.default]


def note_for_later(session: Session, problem: Problem, kernel: Defers, target: str) -> None:
    """Notes in the store that a key is not tuned yet, and that calls of the kernel are to be looked up again."""
    _deferring.add(kernel)
    if not isinstance(session.store, RecordsMisses):
        return
    try:
        session.store.record_misses([MissRecord(problem.key, 1, 0.0, target, "")])
    except StoreError as error:
        log.warning("%s: a key that is not tuned yet is not noted: %s", problem.key.kernel, error)
