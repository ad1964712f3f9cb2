"""A Ray cluster of several simulated machines on this one, for tests with killed and disconnected machines.

Ray prefers any other address to the loopback, so the cluster runs in its own network namespace.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

INSIDE = "TUNEWRIGHT_INSIDE_NAMESPACE"
SMALL = {"object_store_memory": 80_000_000}


def inside() -> bool:
    """Returns whether this process already runs in its own namespace."""
    return INSIDE in os.environ  # noqa: TID251 - set by `command` for this process


def possible() -> bool:
    """Returns whether this system allows network namespaces."""
    return subprocess.run([*_unshare(), "true"], check=False, capture_output=True).returncode == 0


def _unshare() -> list[str]:
    return ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]


def command(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the command that runs `argv` in a namespace, and its environment."""
    added = {INSIDE: "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    inner = f"ip link set lo up && exec {shlex.join(argv)}"
    return [*_unshare(), "sh", "-c", inner], {**os.environ, **added}  # noqa: TID251 - passed on


class Raylets:
    """A head without devices, and machines that can be added and removed."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def add(self, kind: str, home: Path, *, processors: int = 0, environ: Mapping[str, str] | None = None) -> Any:
        """Add a machine with one device of a kind and its own home folder."""
        home.mkdir(parents=True, exist_ok=True)
        resources = {f"accelerator_type:{kind}": 1, "device": 1}
        variables = {"HOME": str(home), **(environ or {})}
        return self.cluster.add_node(num_cpus=processors, resources=resources, env_vars=variables, **SMALL)

    def remove(self, machine: Any) -> None:
        """Kill a machine without a graceful shutdown."""
        self.cluster.remove_node(machine, allow_graceful=False)


@contextmanager
def raylets(processors: int = 2) -> Iterator[Raylets]:
    """Starts a cluster and connects this process to it."""
    import ray  # noqa: PLC0415 - an extra
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - as above

    head = {"num_cpus": processors, "include_dashboard": False, **SMALL}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield Raylets(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()
