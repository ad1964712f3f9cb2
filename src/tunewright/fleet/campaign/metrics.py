"""The state of a campaign in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tunewright.fleet.campaign.ledger import CampaignLedger, ItemState

Labels = tuple[tuple[str, str], ...]


def exposition(ledger: CampaignLedger) -> str:
    """Returns counts by kernel and device kind, items by status, and slow devices."""
    name = ("campaign", ledger.plan.name)
    states = list(ledger.states.values())
    families: tuple[tuple[str, str, str, Callable[[ItemState], float]], ...] = (
        ("trials_total", "counter", "Trials recorded.", lambda state: state.tried),
        ("device_seconds_total", "counter", "Seconds spent on devices.", lambda state: state.seconds),
        ("portions_total", "counter", "Portions finished.", lambda state: state.portions),
        ("lost_machines_total", "counter", "Machines lost while they worked.", lambda state: state.lost),
        ("saved_seconds", "gauge", "Seconds saved over all calls against the defaults.", lambda s: s.saved_seconds),
    )
    parts = []
    for metric, kind, description, value_of in families:
        sums: dict[Labels, float] = {}
        for state in states:
            labels = (name, ("kernel", state.item.kernel), ("device", state.item.device))
            sums[labels] = sums.get(labels, 0.0) + value_of(state)
        parts.append(_family(metric, kind, description, sums))
    counts: dict[Labels, float] = {(name, ("state", status)): 0.0 for status in ItemState.STATUSES}
    for state in states:
        counts[name, ("state", state.status)] += 1
    parts.append(_family("items", "gauge", "Items by state.", counts))
    slow: dict[Labels, float] = {
        (name, ("where", device.where), ("device", device.device)): device.seconds / device.usual
        for device in ledger.quarantined
    }
    parts.append(_family("slow_device_ratio", "gauge", "Quarantined devices: times slower than their kind.", slow))
    return "".join(parts)


def _family(metric: str, kind: str, description: str, values: Mapping[Labels, float]) -> str:
    full_name = f"tunewright_campaign_{metric}"
    lines = [f"# HELP {full_name} {description}", f"# TYPE {full_name} {kind}"]
    lines += [f"{full_name}{{{_labels(labels)}}} {value:.12g}" for labels, value in sorted(values.items())]
    return "\n".join(lines) + "\n"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    escaped = ((key, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for key, value in labels)
    return ",".join(f'{key}="{value}"' for key, value in escaped)
