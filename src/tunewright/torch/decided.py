"""How a model was decided to be compiled: looked up for its graphs, to ship it in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from tunewright.errors import NoDecision
from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Decision, Problem, Tier
from tunewright.session import Session, current_session
from tunewright.spaces.config import VARIANT
from tunewright.stores.fallback import find_nearest
from tunewright.torch import graph_space
from tunewright.torch.calls import Call
from tunewright.torch.captured import CapturedGraph
from tunewright.torch.compile_model import EACH, make_problem
from tunewright.torch.inductor import adapter, gemms
from tunewright.torch.matmuls import GemmSelector
from tunewright.torch.overrides import Overrides
from tunewright.torch.process_state import held_state
from tunewright.torch.product_shares import ProductShares
from tunewright.torch.reduced_precision import FULL
from tunewright.torch.resolver import Resolver
from tunewright.torch.thread_limit import ALL

log = LazyLogger(__name__)


CALLED_DIFFERENTLY = ("mode.operator", "mode.fused", "signature.args.")
"""Fields of the key of a product that say how it is called: by which operator, with which bias and epilogue."""


@dataclass
class DecidedModel:
    """Inductor's settings as decided for the graphs of a model, the decisions behind them, and what is to be said.

    `precision` is that of its matrix products, `shares` are their shares of the time if they are chosen one by one,
    and `threads` is the number that they were decided with.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    session: Session | None = None
    shares: ProductShares | None = None
    precision: str = FULL
    threads: int = ALL

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Chooses matrix products as decided while the context is open, and adds their decisions.

        Where one is missing, it is tuned, which is said; raises NoDecision in a mode that does not tune.
        """
        resolver = Resolver(self.session, Overrides(), EACH)
        resolver.before_search = _announce
        resolver.find_related = partial(_find_same_product, resolver, self.threads)
        selected = gemms.select_gemms(GemmSelector(resolver, self.shares)) if self.shares else nullcontext()
        with held_state(), selected:  # what compiling ahead sets for itself is no part of the keys
            yield
        if missing := [name for name, found in resolver.decisions.items() if found.tier is Tier.DEFAULT]:
            raise NoDecision(
                f"nothing was decided for {', '.join(missing)} in this model, and mode {resolver.session.mode} does "
                'not tune: tune the model first, with tunewright.torch.compile(model, tune="now") in mode tune, or say '
                "how it is compiled, such as freezing=True"
            )
        if resolver.tuned:
            self.notes.append(f"tuned for this bundle, since nothing was decided for it: {', '.join(resolver.tuned)}")
        self.decisions += [found for found in resolver.decisions.values() if found not in self.decisions]


def _announce(name: str) -> None:
    log.warning("%s is tuned now, which may take minutes: the graph was decided, and this product of it was not", name)


def _find_same_product(resolver: Resolver, threads: int, problem: Problem) -> Decision | None:
    """Returns what was decided for a product of the same sizes that is called in another way, or with as many threads
    as its graph was decided with; None if it was decided itself, or nothing was.

    Code that is compiled ahead calls products by other operators: with a bias, where a model adds it afterwards.
    """
    if resolver.session.find_decision(problem) is not None:
        return None
    key = problem.key

    def is_same(decision: Decision) -> bool:
        if decision.key.signature.args[:1] != key.signature.args[:1] or decision.config not in problem.space:
            return False
        return all(
            name.startswith(CALLED_DIFFERENTLY) or (name == "mode.threads" and other == str(threads))
            for name, (_, other) in key.differences(decision.key).items()
        )

    nearest = find_nearest(resolver.session.store, key, 1, accepts=is_same)
    return nearest[0][0] if nearest else None


def find_decided(
    model: Any, calls: Sequence[Call], session: Session | None = None, numerics: Sequence[str] = ()
) -> DecidedModel:
    """Looks up how the graphs of a model were decided with these `numerics`; nothing is measured.

    A package has one graph and one setting. Where calls were decided in different ways, the first of them counts.
    """
    session = session or current_session()
    graphs = _graphs(model, calls, numerics)
    found = [session.find_decision(make_problem(graph, {})) for graph in graphs]
    known = [decision for decision in found if decision is not None]
    if not known:
        return DecidedModel(notes=["nothing was decided for this model: it is compiled as PyTorch does by itself"])
    compiled = [decision for decision in known if decision.config[VARIANT] != graph_space.EAGER]
    notes = [] if len(known) == len(found) else [f"{len(found) - len(known)} of {len(found)} graphs are not decided"]
    if not compiled:
        return DecidedModel(
            {}, known, [*notes, "eager mode was decided, which cannot be shipped: it is compiled plainly"]
        )
    config = compiled[0].config
    if any(decision.config != config for decision in compiled):
        notes.append(f"its graphs were decided in different ways; all of it is compiled as {config}")
    shares = ProductShares.of(graphs) if config["products"] == graph_space.CHOSEN else None
    if (threads := int(config.get("threads", ALL))) != ALL:
        products = "; its matrix products are computed as was decided with so many" if shares else ""
        notes.append(f"it was decided to run with {threads} threads, but a bundle uses all of its process{products}")
    settings, precision = graph_space.settings(config), str(config.get("precision", FULL))
    return DecidedModel(settings, known, notes, session, shares, precision, threads)


def _graphs(model: Any, calls: Sequence[Call], numerics: Sequence[str]) -> list[CapturedGraph]:
    """Returns the graphs that a model is captured in, for each of its calls."""
    graphs: list[CapturedGraph] = []

    def capture(graph: Any, inputs: Sequence[Any]) -> Any:
        captured = CapturedGraph(graph, inputs, numerics)
        if not captured.why_untunable:
            graphs.append(captured)
        return graph.forward

    with torch.no_grad():
        compiled = adapter.compile_isolated(model, backend=adapter.capture_backend(capture), dynamic=False)
        for call in calls:
            call.run(compiled)
    return graphs
