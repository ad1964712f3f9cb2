"""Raylets: a real Ray cluster of several simulated machines on this one, to be tuned on, killed and cut off.

Ray gives up the loopback for any other address it finds, so all of it runs in a network namespace of its own.
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
    """Whether this process is in a namespace of its own already."""
    return INSIDE in os.environ  # noqa: TID251 - told by `command`, to this process alone


def possible() -> bool:
    """Whether this system allows such namespaces."""
    return subprocess.run([*_own(), "true"], check=False, capture_output=True).returncode == 0


def _own() -> list[str]:
    return ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]


def command(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command that runs `argv` inside, and its environment."""
    said = {INSIDE: "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    inner = f"ip link set lo up && exec {shlex.join(argv)}"
    return [*_own(), "sh", "-c", inner], {**os.environ, **said}  # noqa: TID251 - handed on


class Raylets:
    """A head without devices, and machines that come and go."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def add(self, kind: str, home: Path, *, processors: int = 0, environ: Mapping[str, str] | None = None) -> Any:
        """A machine with one device of a kind and a home folder of its own."""
        home.mkdir(parents=True, exist_ok=True)
        resources = {f"accelerator_type:{kind}": 1, "device": 1}
        said = {"HOME": str(home), **(environ or {})}
        return self.cluster.add_node(num_cpus=processors, resources=resources, env_vars=said, **SMALL)

    def remove(self, machine: Any) -> None:
        """End a machine as a power cut does."""
        self.cluster.remove_node(machine, allow_graceful=False)


@contextmanager
def raylets(processors: int = 2) -> Iterator[Raylets]:
    """A cluster, and this process connected to it."""
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
