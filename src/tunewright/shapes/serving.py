"""Rules in a store: a decision for a key without sizes, which is signed, bundled and sent like any other."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import median

import msgspec
import numpy as np

from tunewright.errors import SettingsError
from tunewright.model.decision import Decision, Evidence
from tunewright.model.key import Key
from tunewright.report.formatting import counted
from tunewright.shapes.cover import Cover
from tunewright.spaces.config import Config
from tunewright.spaces.shape_rule import ShapeRule


def rule_key(key: Key) -> Key:
    """Returns the key of a rule for the kernel of `key`: all of it but the sizes."""
    return msgspec.structs.replace(key, signature=msgspec.structs.replace(key.signature, dims={}))


def rule_decision(rule: ShapeRule, cover: Cover, key: Key) -> Decision:
    """Returns a rule as a decision, for the kernel, device and toolchain of one of the keys that it was fitted on."""
    if "invariant" in key.mode:
        raise SettingsError(
            f"{key.kernel} has results that do not depend on {key.mode['invariant']}, and a rule chooses by size: "
            "its sizes are served by their own decisions"
        )
    table, leaves = cover.table, list(rule.leaves())
    places = np.array([table.configs.index(Config(rule.leaf(table.named(i)).config)) for i in range(len(table.shapes))])
    shapes = np.flatnonzero((table.works & cover.allowed)[range(len(places)), places])
    measured = shapes[table.verified[shapes, places[shapes]]]
    # If all that a rule chooses is predicted, its configs were measured on other shapes of the buckets.
    elsewhere = table.verified & np.isin(np.arange(len(table.configs)), places)
    cells = (measured, places[measured]) if len(measured) else np.nonzero(elsewhere)
    seconds = table.seconds[cells].tolist()
    regret = float(table.regret[shapes, places[shapes]].mean()) if len(shapes) else 0.0
    predicted = f", predicted on {len(shapes) - len(measured)} of them" if len(measured) < len(shapes) else ""
    note = (
        f"a rule of {counted(len(leaves), 'leaf', 'leaves')} over {', '.join(rule.sizes)}, "
        f"from {counted(len(shapes), 'shape')}, {regret:.1%} slower in the mean than with their best configs{predicted}"
    )
    evidence = Evidence(
        median(seconds),
        min(seconds),
        max(seconds),
        trials=int(table.verified.sum()),
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        notes=(note,),
        rule=rule,
    )
    most = max(leaves, key=lambda leaf: leaf.shapes)
    return Decision(rule_key(key), Config(most.config), evidence)
