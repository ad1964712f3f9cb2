"""Compilation of a captured graph with a config."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from tunewright.lazy_logging import LazyLogger
from tunewright.model.decision import Problem
from tunewright.spaces.config import VARIANT, Config
from tunewright.torch import graph_space, padding
from tunewright.torch.captured import CapturedGraph, FrozenGraph
from tunewright.torch.frozen_code import FrozenCode
from tunewright.torch.inductor import compiled_code, constants, gemms, graphs, huge_pages
from tunewright.torch.inductor.compiled_code import LoadedCode
from tunewright.torch.inductor.graphs import CompiledGraph
from tunewright.torch.matmuls import GemmSelector
from tunewright.torch.process_state import ProcessState, held_state
from tunewright.torch.product_shares import ProductShares
from tunewright.torch.reduced_precision import FULL, reduce_products
from tunewright.torch.resolver import Resolver
from tunewright.torch.thread_limit import ALL, LimitedCall, limited

log = LazyLogger(__name__)

PRUNING_PASS = "post_grad_custom_post_pass"
"""The setting that takes our pass; a pass of the user stays."""


class GraphBuilder:
    """Compiles a captured graph with configs of its problem. Products and paddings are resolved by `parts`."""

    def __init__(
        self, captured: CapturedGraph, options: Mapping[str, Any], graph: Resolver, parts: Resolver, pruning: Any
    ) -> None:
        self._captured, self._options = captured, options
        self._resolver, self._parts, self._pruning = graph, parts, pruning
        self._built: WeakKeyDictionary[CompiledGraph, tuple[FrozenCode, list[LoadedCode]]] = WeakKeyDictionary()

    def build(self, name: str, problem: Problem, config: Config) -> CompiledGraph:
        """Returns the graph compiled with a config; a frozen one that an earlier process has kept is loaded."""
        if config[VARIANT] == graph_space.EAGER:
            return self._captured.graph  # type: ignore[no-any-return]
        threads = int(config.get("threads", ALL))
        with limited(threads):
            compiled = self._build(name, problem, config)
        if threads == ALL:
            return compiled
        call = LimitedCall(compiled, threads)
        if compiled in self._built:
            self._built[call] = self._built.pop(compiled)
        return call

    def _build(self, name: str, problem: Problem, config: Config) -> CompiledGraph:
        captured = self._captured
        compile_module = partial(self._compile_module, name, problem, config)
        if not config["freezing"]:
            with torch.enable_grad() if captured.training else nullcontext():
                return compile_module(copy.deepcopy(captured.graph), captured.inputs)
        frozen = captured.frozen()
        recompile = partial(self._recompile, name, problem, config)
        kept = self._frozen_code(frozen, name, problem, config)
        huge = config["pages"] == graph_space.HUGE
        if kept is not None and (loaded := kept.load(self._parts.recall, huge=huge)) is not None:
            return frozen.bind(loaded, recompile)
        with compiled_code.capture_code() as codes:
            compiled = frozen.bind(self._compile_frozen(frozen, config, compile_module), recompile)
        if huge:
            read = (tensor for code in codes for tensor in constants.tensors_read(code.source, code.constants))
            huge_pages.move_to_huge_pages(read)
        if kept is not None:
            self._built[compiled] = kept, codes
        return compiled

    def keep(self, compiled: CompiledGraph, config: Config) -> None:
        """Keeps a frozen graph that was built here for later processes."""
        if compiled in self._built:
            kept, codes = self._built.pop(compiled)
            parts = self._parts.decided_parts() if _has_parts(config) else {}
            if self._parts.recall(parts):
                kept.save(codes, parts)

    def _frozen_code(self, frozen: FrozenGraph, name: str, problem: Problem, config: Config) -> FrozenCode | None:
        """Returns the file of a frozen graph; None if its code depends on what has no digest.

        That is what the user has set: overrides of products and paddings, and passes.
        """
        with held_state() as state:
            own = [*self._options.values(), *state.inductor.values()]
            settings = self._settings(state, config)
        overrides = self._parts.overrides.patterns
        if any(map(callable, own)) or not all(pattern.startswith("graph ") for pattern in overrides):
            return None
        decided_by = self._resolver.decision_digest(problem.key, [name])
        return FrozenCode(self._captured, frozen, settings, [problem.key.digest, str(config), decided_by])

    def _compile_frozen(self, frozen: FrozenGraph, config: Config, compile_module: Any) -> CompiledGraph:
        if (precision := config.get("precision", FULL)) != FULL:
            reduce_products(frozen.module, str(precision))
        if config.get("padding"):
            padding.pad(frozen.module, self._parts)
        compiled: CompiledGraph = compile_module(frozen.module, [self._captured.inputs[i] for i in frozen.free])
        return compiled

    def _recompile(self, name: str, problem: Problem, config: Config, arguments: Sequence[Any]) -> CompiledGraph:
        """Returns the graph for weights that changed after they were frozen."""
        if self._captured.dynamic:  # its symbols ended with the trace: compiled now, it would be for one size
            log.warning("%s: a weight changed after it was frozen: the graph runs in eager mode from now on", name)
            return self._captured.graph  # type: ignore[no-any-return]
        log.warning("%s: a weight changed after it was frozen: the graph is compiled again", name)
        captured = CapturedGraph(self._captured.graph, arguments, self._captured.numerics)
        again = GraphBuilder(captured, self._options, self._resolver, self._parts, self._pruning)
        return again.build(name, problem, config)

    def _compile_module(
        self, name: str, problem: Problem, config: Config, module: Any, inputs: Sequence[Any]
    ) -> CompiledGraph:
        chosen = config["products"] == graph_space.CHOSEN
        selector = GemmSelector(self._parts, ProductShares.of([self._captured]))
        with held_state() as state, gemms.select_gemms(selector) if chosen else nullcontext():
            decided_by = self._resolver.decision_digest(problem.key, [name])
            return graphs.compile_graph(module, inputs, self._settings(state, config), decided_by)

    def _settings(self, state: ProcessState, config: Config) -> dict[str, Any]:
        """Returns Inductor's settings for a config; what the user has set comes first."""
        pruned = {} if PRUNING_PASS in state.inductor else {PRUNING_PASS: self._pruning}
        return {**graph_space.settings(config), **pruned, **self._options}


def _has_parts(config: Config) -> bool:
    """Whether products or paddings in a graph are decided one by one."""
    return config["products"] == graph_space.CHOSEN or bool(config.get("padding"))
