"""Pruning: a graph pass that removes what pattern matching left dead, and says what it removed."""

from __future__ import annotations

from functools import cache
from typing import Any

from tunewright.backends.inductor.adapter import hook
from tunewright.remarks import Remarks

log = Remarks(__name__)

UUID = b"tunewright pruning 1"
"""Tells this pass from others in the keys of PyTorch's caches, which a pass without one turns off."""


@cache
def _kind() -> Any:
    """The class, made when it is asked for: what it derives from is PyTorch's."""

    def apply(self: Any, graph: Any) -> None:
        dead = pruned(graph)
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
    """The pass, for `torch.compile(options={"post_grad_custom_post_pass": pruning()})`; `removed` names what it took.

    Its kind is the same for all: two of them make the same key.
    """
    return _kind()()


def pruned(graph: Any) -> list[str]:
    """The names of nodes taken out of a graph: nobody uses them, and they do nothing else. Last ones first."""
    dead: list[str] = []
    for node in reversed(list(graph.nodes)):
        if not node.users and not node.is_impure():
            dead.append(f"{node.name} ({_spelt(node.target)})")
            graph.erase_node(node)
    return dead


def _spelt(target: Any) -> str:
    return target if isinstance(target, str) else str(getattr(target, "__name__", None) or target)
