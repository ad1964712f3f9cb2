"""Choosing: models compiled in the way that won a race on their own graphs, remembered."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from tunewright.backends.host import cpu, digest
from tunewright.backends.inductor import adapter, graphs, pages, products
from tunewright.backends.inductor.pruning import pruning
from tunewright.fronts.torch import padding, whole
from tunewright.fronts.torch.attempt import Attempt, Launch
from tunewright.fronts.torch.captured import Captured, Compiled
from tunewright.fronts.torch.deciding import Deciding, machine
from tunewright.fronts.torch.matmuls import Matmuls
from tunewright.fronts.torch.numerics import cloned
from tunewright.fronts.torch.overrides import Overrides
from tunewright.measure.clock import Restore
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.remarks import Remarks
from tunewright.session import Session
from tunewright.spaces.config import VARIANT, Config

log = Remarks(__name__)

NAME = "torch.graph"
BUDGET, EACH = "8,20m", "8,5m"
"""What a search may spend on a graph, and on each product in it."""

BURST, PATIENCE = 0.04, 3.0
"""Seconds that a visit to a graph lasts, and how many times as long as others a race of them may: weights fill caches,
candidates took minutes to build, and memory that is shared with other people has moods of seconds."""


class Chooser:
    """A backend of `torch.compile` that compiles each graph in the way that won for it.

    `overrides` say what is not to be raced: `{"graph *": "eager", "matmul *.qkv": "library", "padding *": {...}}`.
    """

    def __init__(
        self,
        session: Session | None = None,
        *,
        overrides: Mapping[str, Any] | None = None,
        budget: str = BUDGET,
        each: str = EACH,
        name: str = "model",
    ) -> None:
        adapter.trusted()
        told = Overrides(overrides)
        self.name, self.graphs = name, 0
        self.pruning = pruning()
        self._whole, self._each = Deciding(session, told, budget), Deciding(session, told, each)

    @property
    def decisions(self) -> dict[str, Decision]:
        """What was decided, by name: graphs, then products and paddings in them."""
        return self._whole.decisions | self._each.decisions

    def __call__(
        self, graph: Any, inputs: Sequence[Any], options: Mapping[str, Any] | None = None, **_: Any
    ) -> Compiled:
        """A graph compiled in the way chosen for it; PyTorch's own where nothing may be chosen."""
        captured = Captured(graph, inputs)
        if why := captured.untouchable:
            log.info("%s: left to PyTorch: %s", self.name, why)
            return graphs.compiled(graph, inputs, options or {})
        self.graphs += 1
        return Choice(self, captured, dict(options or {})).made()


class Choice:
    """One graph, for which one way is chosen."""

    def __init__(self, chooser: Chooser, captured: Captured, options: dict[str, Any]) -> None:
        self._captured, self._options = captured, options
        self._chooser, self._whole, self._each = chooser, chooser._whole, chooser._each
        self.name = f"graph {chooser.name} {chooser.graphs}"
        self.problem = posed(captured, options)
        self._ready: dict[Config, Compiled] = {}

    def made(self) -> Compiled:
        """The graph, compiled in the way that is told, remembered, or wins now."""
        config = self._whole(self.problem, [self.name], self._attempt).config
        ready = self._ready.pop(config, None)
        self._ready.clear()  # each of the others holds its weights
        return ready or self._built(config)

    def _attempt(self) -> Attempt:
        restore, values = self._arguments()
        build = partial(self._launch, values)
        around = self._whole.surroundings(restore, burst=BURST, patience=PATIENCE)
        return Attempt(build, self._captured.objection, around)

    def _arguments(self) -> tuple[Restore | None, tuple[Any, ...]]:
        """Arguments that candidates may write to, and what puts them back."""
        given, written = self._captured.values, sorted(self._captured.written)
        if not written:
            return None, given
        values = list(given)
        for i in written:
            values[i] = cloned([given[i]])[0]

        def restore() -> None:
            for i in written:
                values[i].copy_(given[i])

        return restore, tuple(values)

    def _launch(self, values: tuple[Any, ...], config: Config) -> Launch:
        built = self._ready[config] = self._built(config)
        return lambda: built(*values)

    def _built(self, config: Config) -> Compiled:
        """The graph as a config says."""
        if config[VARIANT] == whole.EAGER:
            return self._captured.graph  # type: ignore[no-any-return]
        if not config["freezing"]:
            return self._compiled(copy.deepcopy(self._captured.graph), self._captured.inputs, config)
        frozen = self._captured.frozen()
        if config.get("padding"):
            padding.pad(frozen.module, self._each)
        inputs = [self._captured.inputs[i] for i in frozen.free]
        with pages.held() as constants:
            made = self._compiled(frozen.module, inputs, config)
        if config["pages"] == whole.HUGE:
            pages.gather(constants)

        def again(arguments: Sequence[Any]) -> Compiled:
            if self._captured.dynamic:  # its symbols ended with the trace: compiled now, it would be for one size
                log.warning("%s: a weight was written to after it was frozen: run by Python from now on", self.name)
                return self._captured.graph  # type: ignore[no-any-return]
            log.warning("%s: a weight was written to after it was frozen: compiled anew", self.name)
            return Choice(self._chooser, Captured(self._captured.graph, arguments), self._options)._built(config)

        return frozen.adapted(made, again)

    def _compiled(self, module: Any, inputs: Sequence[Any], config: Config) -> Compiled:
        chosen = config["products"] == whole.CHOSEN
        settings = {**whole.settings(config), "post_grad_custom_post_pass": self._chooser.pruning, **self._options}
        with products.choosing(Matmuls(self._each)) if chosen else nullcontext():
            return graphs.compiled(module, inputs, settings, self._whole.trace(self.problem, [self.name]))


def posed(captured: Captured, options: Mapping[str, Any]) -> Problem:
    """A graph as a problem."""
    told = {f"option {name}": str(value) for name, value in sorted(options.items())}
    shapes = {"shapes": "dynamic" if captured.dynamic else "static"}
    padded = bool(captured.products) and padding.possible(captured)
    offered = whole.space(products=bool(captured.products), padded=padded)
    key = Key(  # with the names of knobs: what was decided before there was one is decided anew, not dropped
        NAME, digest(captured.source, *offered.names), Signature(captured.arguments), cpu(), machine().toolchain,
        {**machine().mode, **shapes, **told},
    )  # fmt: skip
    return Problem(key, offered, whole.default(offered), seeds=whole.seeds(offered, huge=pages.size() > 0))


_CHOOSERS: WeakKeyDictionary[Any, Chooser] = WeakKeyDictionary()


def compile(
    model: Callable[..., Any],
    *,
    session: Session | None = None,
    overrides: Mapping[str, Any] | None = None,
    budget: str = BUDGET,
    each: str = EACH,
    **how: Any,
) -> Any:
    """A model compiled as `torch.compile` does, each of its graphs in the way that wins on it; the rest goes there.

    A `budget` is spent on each graph, and one on `each` matrix product; what was decided once is not raced again.
    """
    options = how.pop("options", None)
    name = str(getattr(model, "__name__", type(model).__name__))
    chooser = Chooser(session, overrides=overrides, budget=budget, each=each, name=name)
    made = torch.compile(model, backend=lambda graph, inputs: chooser(graph, inputs, options), **how)
    _CHOOSERS[made] = chooser
    return made


def decisions(compiled: Any) -> dict[str, Decision]:
    """What was decided for a model that `compile` returned and that was called, by name."""
    return _CHOOSERS[compiled].decisions if compiled in _CHOOSERS else {}


@contextmanager
def tuning(
    session: Session | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    budget: str = BUDGET,
    each: str = EACH,
) -> Iterator[Chooser]:
    """Whatever Inductor compiles while this is open is compiled in the way that wins, for plain `torch.compile` too."""
    chooser = Chooser(session, overrides=overrides, budget=budget, each=each)
    with graphs.intercepted(chooser):
        yield chooser
