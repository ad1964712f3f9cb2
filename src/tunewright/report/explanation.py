"""Why a kernel gets its config, as lines of text: for `tunewright explain` and `Tuned.explain`."""

from __future__ import annotations

from tunewright.model.decision import Decision, Problem, Tier
from tunewright.model.key import Key
from tunewright.report import formatting
from tunewright.report.progress import verdict
from tunewright.stores.fallback import SAME_QUESTION_TIERS, NearestDecisions


def explain_problem(problem: Problem, decision: Decision | None, near: NearestDecisions, remedy: str) -> list[str]:
    """Returns why a call gets its config; if nothing is decided for it, how the `near` keys differ and the `remedy`."""
    lines = explain_key(problem.key)
    if decision is not None:
        lines += explain_evidence(problem.key, decision, problem.exact)
        if decision.tier in SAME_QUESTION_TIERS:
            return lines
        lines.append("that is what frozen mode serves; nothing is decided for this key itself")
    else:
        lines.append(f"default: {problem.default} (nothing is decided for this key)")
    for stored, fields in near:
        differs = formatting.counted(len(fields), "field")
        lines.append(f"nearest stored key {stored.key.digest[:10]} differs in {differs}:")
        lines += [f"  {name}: {mine} here, {theirs} stored" for name, (mine, theirs) in fields.items()]
    if not near:
        lines.append("no other key of this kernel is stored")
    return [*lines, f"tune it with: {remedy}"]


def explain_decision(decision: Decision) -> list[str]:
    """Returns why a stored decision was made."""
    return explain_key(decision.key) + explain_evidence(decision.key, decision)


def explain_key(key: Key) -> list[str]:
    """Returns what was asked: kernel, arguments, device, and how it is run and verified."""
    mode = ", ".join(f"{name} {value}" for name, value in key.mode.items() if value)
    return [f"{key.kernel}  {key.signature} · {key.device}", *([f"  {mode}"] if mode else [])]


def _clock(name: str) -> str:
    """Returns what times were measured by."""
    return "by what it printed" if name == "printed" else f"{name} clock"


def explain_evidence(key: Key, decision: Decision, exact: Key | None = None) -> list[str]:
    """Returns how a config was found, what tied with it, and under which conditions."""
    lines = [f"{decision.tier}: {verdict(decision)}"]
    if decision.tier is Tier.BUCKET and exact is not None:
        lines.append(f"  {exact.signature} is served by its bucket")
    if (evidence := decision.evidence) is None or evidence.rule is not None:
        return lines
    lines.append(
        f"found by {evidence.strategy} (seed {evidence.seed}) in {formatting.counted(evidence.trials, 'trial')}, "
        f"{evidence.failures} failed; {_clock(evidence.clock)}, {key.mode.get('regime', 'hot')}; "
        f"{evidence.when}; tunewright {evidence.versions.get('tunewright', '?')}"
    )
    if evidence.remains is not None:
        lines.append(f"its model expects the best config of the space to be {evidence.remains:.1%} faster")
    for tie in evidence.ties:
        bits = "same" if tie.fingerprint == evidence.fingerprint else "other"
        lines.append(
            f"  within noise: {tie.config}  {formatting.measured(tie.seconds, key)}, {bits} results bit for bit"
        )
    conditions = evidence.conditions.complaints() if evidence.conditions else []
    return lines + [f"  while the finalists raced, {complaint}" for complaint in conditions]
