"""Graph pass that removes the nodes that pattern matching left dead, and reports them."""

from __future__ import annotations

from functools import cache
from typing import Any

from tunewright.lazy_logging import LazyLogger
from tunewright.torch.inductor.adapter import hook

log = LazyLogger(__name__)

UUID = b"tunewright pruning 1"
"""Identifies this pass in the keys of PyTorch's caches, which a pass without one turns off."""


@cache
def _pass_class() -> Any:
    """Returns the class of the pass; it is made on first use, since it derives from a class of PyTorch."""

    def apply(self: Any, graph: Any) -> None:
        dead = remove_dead_nodes(graph)
        self.removed += dead
        if dead:
            log.info("%d dead nodes removed: %s", len(dead), ", ".join(dead))

    return type("Pruning", (hook("torch._inductor.custom_graph_pass.CustomGraphPass"),), {
        "__doc__": "Removes dead nodes; `removed` names them.",
        "__init__": lambda self: setattr(self, "removed", []),
        "__call__": apply,
        "uuid": lambda self: UUID,
    })  # fmt: skip


def pruning() -> Any:
    """Returns the pass, for `torch.compile(options={"post_grad_custom_post_pass": pruning()})`.

    Its `removed` names the nodes that it removed. All instances have the same class and make the same cache key.
    """
    return _pass_class()()


def remove_dead_nodes(graph: Any) -> list[str]:
    """Removes nodes without users or side effects from a graph; returns their names, last ones first."""
    dead: list[str] = []
    for node in reversed(list(graph.nodes)):
        if not node.users and not node.is_impure():
            dead.append(f"{node.name} ({_target_name(node.target)})")
            graph.erase_node(node)
    return dead


def _target_name(target: Any) -> str:
    return target if isinstance(target, str) else str(getattr(target, "__name__", None) or target)
