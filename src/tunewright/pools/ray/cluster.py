"""Cluster: which machines there are, what they offer, and actors placed on them."""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tunewright.errors import PluginError
from tunewright.remarks import Remarks

log = Remarks(__name__)

PATIENCE = 10.0
"""Seconds within which a resource must turn up that no machine of the cluster offers: Ray would wait for ever."""

TRACE = 0.001
"""How much of a resource is asked for that only says what kind of machine it is."""


def connect() -> None:
    """Join the cluster that RAY_ADDRESS names or that runs on this machine; without one, begin one here."""
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level="ERROR")


def machines() -> list[dict[str, Any]]:
    """The machines that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


def offered() -> dict[str, float]:
    """How many devices of each kind the machines of the cluster have."""
    found: dict[str, float] = {}
    for node in machines():
        for kind in _kinds(node):
            found[kind] = found.get(kind, 0.0) + node["Resources"].get(_unit(node), 0.0)
    return found


def _kinds(node: dict[str, Any]) -> list[str]:
    """Of which kinds a machine's devices are: as Ray found, or as `ray start --resources` said."""
    return [name.partition(":")[2] for name in node["Resources"] if name.startswith("accelerator_type:")]


def _unit(node: dict[str, Any]) -> str:
    """The resource by which a machine's devices are counted: processors that Ray does not know are a `device`."""
    return "GPU" if node["Resources"].get("GPU") else "device"


class Demand:
    """Where an actor must be: a machine with a free device of a kind, or, with no kind said, this very machine."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind

    def options(self) -> dict[str, Any]:
        """The same in Ray's words. Raises if no machine offers it, within seconds."""
        if not self.kind:
            here = ray.get_runtime_context().get_node_id()
            return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False)}
        self.count()
        unit = next(_unit(node) for node in machines() if self.kind in _kinds(node))
        wanted: dict[str, Any] = {"num_cpus": 0, "resources": {f"accelerator_type:{self.kind}": TRACE}}
        if unit == "GPU":
            wanted["num_gpus"] = 1
        else:
            wanted["resources"][unit] = 1
        return wanted

    def count(self, patience: float = PATIENCE) -> int:
        """How many of them the cluster has; a cluster that grows gets a few seconds."""
        if not self.kind:
            return 1
        until = time.monotonic() + patience
        while not (found := int(offered().get(self.kind, 0.0))):
            if time.monotonic() > until:
                raise PluginError(
                    f"no machine of this Ray cluster has a device of kind {self.kind!r} "
                    f"(there are: {', '.join(sorted(offered())) or 'none'}); start one with: ray start --address=... "
                    f"""--resources='{{"accelerator_type:{self.kind}": 1, "device": 1}}'"""
                )
            time.sleep(0.5)
        return found


def processors() -> int:
    """How many processors the machines have for builders."""
    return int(sum(node["Resources"].get("CPU", 0.0) for node in machines()))
