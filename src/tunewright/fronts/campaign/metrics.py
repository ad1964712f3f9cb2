"""Metrics: where a campaign stands, in Prometheus' text format, for a collector that reads files or whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tunewright.fronts.campaign.ledger import Ledger, Standing

Labels = tuple[tuple[str, str], ...]


def exposition(ledger: Ledger) -> str:
    """Counts by kernel and kind of device; states of items; slow devices."""
    name = ("campaign", ledger.plan.name)
    standings = list(ledger.standings.values())
    counted: tuple[tuple[str, str, str, Callable[[Standing], float]], ...] = (
        ("trials_total", "counter", "Trials recorded.", lambda one: one.tried),
        ("device_seconds_total", "counter", "Seconds spent on devices.", lambda one: one.seconds),
        ("portions_total", "counter", "Portions that came to their end.", lambda one: one.portions),
        ("lost_machines_total", "counter", "Machines lost while they worked.", lambda one: one.lost),
        ("saved_seconds", "gauge", "Seconds that all calls need less than with the defaults.", lambda one: one.saved),
    )
    parts = []
    for metric, kind, said, of in counted:
        sums: dict[Labels, float] = {}
        for one in standings:
            labels = (name, ("kernel", one.item.kernel), ("device", one.item.device))
            sums[labels] = sums.get(labels, 0.0) + of(one)
        parts.append(_family(metric, kind, said, sums))
    states: dict[Labels, float] = {(name, ("state", state)): 0.0 for state in Standing.STATES}
    for one in standings:
        states[name, ("state", one.state)] += 1
    parts.append(_family("items", "gauge", "Items by state.", states))
    slow: dict[Labels, float] = {
        (name, ("where", one.where), ("device", one.device)): one.seconds / one.usual for one in ledger.quarantined
    }
    parts.append(_family("slow_device_ratio", "gauge", "Quarantined devices: times slower than their kind.", slow))
    return "".join(parts)


def _family(metric: str, kind: str, said: str, values: Mapping[Labels, float]) -> str:
    full = f"tunewright_campaign_{metric}"
    lines = [f"# HELP {full} {said}", f"# TYPE {full} {kind}"]
    lines += [f"{full}{{{_labels(labels)}}} {value:.12g}" for labels, value in sorted(values.items())]
    return "\n".join(lines) + "\n"


def _labels(labels: Iterable[tuple[str, str]]) -> str:
    escaped = ((key, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for key, value in labels)
    return ",".join(f'{key}="{value}"' for key, value in escaped)
