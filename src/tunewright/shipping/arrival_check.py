"""Checks a bundle on arrival: selects entries, races them on this machine, and acts on the results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from tunewright.engine.budget import Budget
from tunewright.errors import TunewrightError
from tunewright.model.decision import Decision
from tunewright.model.key import Key
from tunewright.shipping.rerace import SAMPLE_RACE, ArrivalCheck, ReraceResult, ReraceVerdict
from tunewright.shipping.sampling import CONFIDENCE, SampleStatement, draw_order, summarize_sample
from tunewright.stores.bundle.quarantine import Quarantine
from tunewright.stores.fallback import key_distance
from tunewright.stores.transcripts import keep_transcript

MAX_PROBES = 5
"""Entries of a kernel tried before it is given up: some of them may be of another version."""


class SampleResult(msgspec.Struct, frozen=True):
    """The results of suspects, raced first, and of a random sample, and what the sample says about all entries."""

    suspects: tuple[ReraceResult, ...]
    drawn: tuple[ReraceResult, ...]
    statement: SampleStatement


def select_relevant(
    arrival: ArrivalCheck, decisions: Iterable[Decision]
) -> tuple[dict[Key, Decision], list[ReraceResult]]:
    """Returns the nearest entry for each key of this machine, and results for entries of kernels not found here.

    An entry for another device or toolchain is skipped where a nearer one exists: it would never be used here.
    """
    kernels: dict[str, list[Decision]] = {}
    for decision in decisions:
        kernels.setdefault(decision.key.kernel, []).append(decision)
    nearest: dict[Key, Decision] = {}
    unraced: list[ReraceResult] = []
    for entries in kernels.values():
        local_key = _local_key(arrival, entries)
        if isinstance(local_key, str):
            unraced += [ReraceResult(decision, ReraceVerdict.UNRACED, local_key) for decision in entries]
            continue
        for decision in entries:
            ours = msgspec.structs.replace(decision.key, device=local_key.device, toolchain=local_key.toolchain)
            best = nearest.setdefault(ours, decision)
            if key_distance(ours, decision.key) < key_distance(ours, best.key):
                nearest[ours] = decision
    return nearest, unraced


def _local_key(arrival: ArrivalCheck, decisions: list[Decision]) -> Key | str:
    """Returns a key of this machine for the kernel of these decisions, or the reason why there is none."""
    reason = ""
    for decision in decisions[:MAX_PROBES]:
        try:
            return arrival.make_setup(decision).problem.key
        except TunewrightError as error:
            reason = reason or str(error)
    return reason


def with_corrected_level(arrival: ArrivalCheck, entries: int) -> ArrivalCheck:
    """Returns the check with a level at which the chance of any false alarm in so many entries is 1 in 20."""
    return replace(arrival, level=(1 - CONFIDENCE) / max(1, entries))


def rerace_all(arrival: ArrivalCheck, entries: Mapping[Key, Decision]) -> Iterator[ReraceResult]:
    """Races each entry that was decided for another device or toolchain."""
    moved = [decision for ours, decision in entries.items() if ours != decision.key]
    return map(with_corrected_level(arrival, len(moved)).rerace, moved)


def rerace_sample(
    arrival: ArrivalCheck,
    entries: Collection[Decision],
    budget: Budget,
    suspects: Collection[Key] = (),
    on_result: Callable[[ReraceResult], None] = lambda result: None,
) -> SampleResult:
    """Races entries until the budget ends: `suspects` first, with half of it, then a random sample of the others.

    The order is drawn before anything is measured, so that the end of the budget does not bias the statement.
    """
    decisions = list(entries)
    check = replace(with_corrected_level(arrival, len(entries)), race_options=SAMPLE_RACE)
    suspicion = [float(decision.key in suspects) for decision in decisions]
    suspect_order, order = draw_order(suspicion, arrival.session.settings.seed)
    half = Budget(budget.trials and max(1, budget.trials // 2), budget.seconds and budget.seconds / 2)
    suspected = tuple(_race_within(half, (decisions[i] for i in suspect_order), check, on_result))
    budget.spend(len(suspected))
    drawn = tuple(_race_within(budget, (decisions[i] for i in order), check, on_result))
    raced = [result for result in drawn if result.verdict is not ReraceVerdict.UNRACED]
    bad = sum(result.regressed for result in raced)
    # Entries that cannot be raced are not part of the statement; how many more there are of them is unknown.
    return SampleResult(suspected, drawn, summarize_sample(bad, len(raced), len(order) - (len(drawn) - len(raced))))


def _race_within(
    budget: Budget, decisions: Iterable[Decision], arrival: ArrivalCheck, on_result: Callable[[ReraceResult], None]
) -> Iterator[ReraceResult]:
    for decision in decisions:
        if budget.left() <= 0 or not budget.grant(essential=True):  # there is no final race to keep time for
            return
        budget.spend()
        result = arrival.rerace(decision)
        on_result(result)
        yield result


def apply_result(arrival: ArrivalCheck, result: ReraceResult, quarantine: Quarantine | None) -> bool:
    """Stores the new decision and quarantines a regressed one; returns whether it did either.

    Without a quarantine the source is an ordinary store: the new decision replaces the old, which stays in history.
    """
    decision, shipped = result.new_decision, result.decision
    is_new = decision is not None and (result.regressed or decision.key != shipped.key)
    if decision is not None and is_new:
        arrival.session.store.put(decision)
        if result.transcript is not None:
            keep_transcript(arrival.session.store, result.transcript)
    if result.regressed and quarantine is not None:
        quarantine.add(shipped.key.digest, shipped.config, result.reason)
    return is_new or result.regressed
