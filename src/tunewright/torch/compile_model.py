"""Models compiled with the options that won a race on their own graphs, remembered in a store."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

import msgspec
import torch

from tunewright.backends.host import cpu, digest
from tunewright.engine.budget import Budget
from tunewright.errors import BackendError, SettingsError, TunewrightError
from tunewright.lazy_logging import LazyLogger
from tunewright.measure.evaluator import Evaluator, EvaluatorOptions
from tunewright.model.decision import Decision, Problem
from tunewright.model.key import Key
from tunewright.model.signature import Signature
from tunewright.session import Session
from tunewright.spaces.config import Config
from tunewright.stores import serialization
from tunewright.stores.seal import SEAL
from tunewright.torch import graph_space, padding
from tunewright.torch.background import TuningJob, TuningReply, TuningRequest, background_tuner, swappable
from tunewright.torch.candidate import reported_failure
from tunewright.torch.captured import NEEDS_GRADIENTS, CapturedGraph
from tunewright.torch.expected_gains import expected_gain
from tunewright.torch.graph_builder import GraphBuilder
from tunewright.torch.inductor import graphs, huge_pages, releases, traces
from tunewright.torch.inductor.dead_code import pruning
from tunewright.torch.inductor.graphs import CompiledGraph
from tunewright.torch.overrides import Overrides
from tunewright.torch.process_state import ProcessState
from tunewright.torch.product_shares import convolution_cost, find_products
from tunewright.torch.reduced_precision import check_names
from tunewright.torch.resolver import Resolver, host_environment
from tunewright.torch.saved_graph import GraphSnapshot
from tunewright.torch.sizes import SeveralSizes
from tunewright.torch.training_graph import TrainingGraph, capture
from tunewright.torch.workload import TorchWorkload

log = LazyLogger(__name__)

ModelT = TypeVar("ModelT", bound=Callable[..., Any])

Override = str | Mapping[str, Any]
"""The name of a variant, or values of knobs."""

Tune = Literal["background", "now"]
"""When graphs are tuned: by a child process while calls are served, or in the first call."""

NAME = "torch.graph"
BUDGET, EACH = "8,20m", "8,5m"
"""What a search may spend on a graph, and on each matrix product and padding in it."""

SAMPLE_SECONDS, TIME_FACTOR = 0.04, 3.0
"""Minimum seconds of a sample of a graph, and how much longer than usual its races take: weights fill the caches,
candidates took minutes to build, and memory bandwidth shared with other programs varies over seconds."""


class CompileOptions(TypedDict, total=False):
    """Keywords of `torch.compile`, and the reduced precisions that are allowed."""

    numerics: Sequence[str]
    backend: Literal["inductor"]
    mode: str | None
    options: Mapping[str, Any] | None

    fullgraph: bool
    dynamic: bool | None
    name: str | None
    disable: bool
    recompile_limit: int | None
    isolate_recompiles: bool
    shapes_spec: Any


class TuningBackend:
    """A backend of `torch.compile` that compiles each graph with the options that won for it.

    `overrides` set what is not tuned: `{"graph *": "eager", "matmul *.qkv": "library", "padding *": {...}}`.
    """

    def __init__(
        self,
        session: Session | None = None,
        *,
        overrides: Mapping[str, Override] | None = None,
        budget: str = BUDGET,
        each: str = EACH,
        name: str = "model",
        tune: Tune = "now",
    ) -> None:
        releases.require_supported()
        if tune not in ("now", "background"):
            raise SettingsError(f"tune is {tune!r}; write 'background' or 'now'")
        shared = Overrides(overrides)
        self.name, self.graphs = name, 0
        self.numerics: tuple[str, ...] = ()
        self.pruning = pruning()
        self.graph_resolver = Resolver(session, shared, budget, tunes=tune == "now")
        self.graph_resolver.prepare = graphs.start_compiler
        self.part_resolver = Resolver(session, shared, each, within=self.graph_resolver, tunes=tune == "now")
        self.jobs: list[TuningJob] = []
        self.untuned_options: Mapping[str, Any] = {}
        self.is_training: Callable[[], bool] = lambda: True

    @staticmethod
    def of(compiled: Callable[..., Any]) -> TuningBackend:
        """Returns the backend of a model that `compile` returned; `jobs` are what it has tuned in the background."""
        return _BACKENDS[compiled]

    @property
    def decisions(self) -> dict[str, Decision]:
        """The decisions by name: graphs, then matrix products and paddings in them."""
        return self.graph_resolver.decisions | self.part_resolver.decisions

    def __call__(
        self, graph: Any, inputs: Sequence[Any], options: Mapping[str, Any] | None = None, **_: Any
    ) -> CompiledGraph:
        """Returns a compiled graph, compiled as PyTorch does by itself where it cannot be tuned."""
        # In the background, training is left alone: to look at a graph takes a copy of its weights and gradients.
        training = self.is_training() and self.graph_resolver.tunes
        captured = capture(graph, inputs, training=training, numerics=self.numerics)
        if reason := captured.why_untunable:
            return self._leave(captured, reason, options or {})
        self.graphs += 1
        tuner = GraphTuner(self, captured, dict(options or {}))
        return tuner.compile() if self.graph_resolver.tunes else tuner.serve()

    def missed(self) -> bool:
        """Whether something was not decided since this was last asked."""
        resolvers = self.graph_resolver, self.part_resolver
        found = any(resolver.missed for resolver in resolvers)
        for resolver in resolvers:
            resolver.missed.clear()
        return found

    def learn(self, found: Mapping[str, Decision]) -> None:
        """Takes in what another process decided."""
        self.graph_resolver.learn(found)
        self.part_resolver.learn(found)

    def _leave(self, captured: CapturedGraph, reason: str, options: Mapping[str, Any]) -> CompiledGraph:
        """Returns a graph that is not tuned, and says why; as a warning if a model in eval mode records gradients."""
        if reason == NEEDS_GRADIENTS and not self.is_training():
            log.warning("%s is not tuned, since its call records gradients: call it under torch.no_grad()", self.name)
        else:
            remedy = "; tune='now' tunes training" if reason == NEEDS_GRADIENTS else ""
            log.info("%s is not tuned: %s%s", self.name, reason, remedy)
        return graphs.compile_graph(captured.graph, captured.inputs, {**self.untuned_options, **options})


class GraphTuner:
    """Tunes and compiles one graph; if it is to be tuned in the background, it is served meanwhile."""

    def __init__(self, backend: TuningBackend, captured: CapturedGraph, options: dict[str, Any]) -> None:
        self._backend, self._captured, self._options = backend, captured, options
        self._resolver = backend.graph_resolver
        self._builder = GraphBuilder(captured, options, self._resolver, backend.part_resolver, backend.pruning)
        self.name = f"graph {backend.name} {backend.graphs}"
        self.problem = make_problem(captured, options)
        self._workload: TorchWorkload | None = None

    def compile(self) -> CompiledGraph:
        """Returns the graph compiled by an override, a stored decision, or the winner of a race."""
        config = self._resolver(self.problem, [self.name], self._evaluator).config
        workload, self._workload = self._workload, None  # each graph that it has built holds its own weights
        built = workload.built.get(config) if workload else None
        compiled: CompiledGraph = built or self._build(config)
        self._builder.keep(compiled, config)
        return compiled

    @classmethod
    def for_request(cls, backend: TuningBackend, graph: Any, inputs: Sequence[Any], request: TuningRequest) -> Self:
        """Returns the tuner of a graph that another process has captured, under the key that it has there."""
        tuner = cls(backend, CapturedGraph(graph, inputs, request.numerics), dict(request.options))
        if not tuner._captured.dynamic and tuner.problem.key != request.key:
            differences = ", ".join(tuner.problem.key.differences(request.key))
            raise BackendError(f"it is another graph in a new process ({differences}); tune it with tune='now'")
        tuner.name, tuner.problem = request.name, msgspec.structs.replace(tuner.problem, key=request.key)
        return tuner

    def serve(self) -> CompiledGraph:
        """Returns the graph compiled as far as it is decided; the rest is tuned by another process, and swapped in."""
        missed = self._backend.missed
        config = self._resolver(self.problem, [self.name], self._evaluator).config
        if missed():
            served = graphs.compile_graph(copy.deepcopy(self._captured.graph), self._captured.inputs, self._options)
        else:
            served = self._build(config)
            if not missed():
                self._builder.keep(served, config)
                return served
        job = self._submit()
        trace = traces.SuspendedTrace()
        return served if job is None else swappable(served, job, partial(self._adopt, trace))

    def _submit(self) -> TuningJob | None:
        """Has another process tune the graph; None if it cannot be sent there, which is logged."""
        backend, session = self._backend, self._resolver.session
        SEAL.check("measurements", f"{self.name} was about to be tuned")
        settings = msgspec.structs.replace(session.settings, pool="serial", progress=False)
        if not session.shares_store:
            settings = msgspec.structs.replace(settings, store="memory:")
        request = TuningRequest(
            folder="",
            name=self.name,
            key=self.problem.key,
            options=self._options,
            overrides=dict(self._resolver.overrides.patterns),
            budget=self._resolver.budget,
            each=backend.part_resolver.budget,
            threads=torch.get_num_threads(),
            state=ProcessState.read(),
            settings=msgspec.to_builtins(settings),
            numerics=self._captured.numerics,
        )
        try:
            serialization.encode(request)
            snapshot = GraphSnapshot(self._captured)
        except (BackendError, TypeError, NotImplementedError) as error:
            log.warning("%s is not tuned in the background: %s; tune it with tune='now'", self.name, error)
            return None
        job = TuningJob(request, snapshot.write, Budget.parse(request.budget).seconds)
        backend.jobs.append(job)
        background_tuner().submit(job)
        return job

    def _adopt(
        self, trace: traces.SuspendedTrace, reply: TuningReply, arguments: Sequence[Any]
    ) -> CompiledGraph | None:
        """Returns the graph compiled as decided, if it is right on these arguments; else None, which is logged."""
        self._backend.learn(reply.decisions)
        try:
            with reported_failure(lambda: None):
                with traces.compiling_alone(), trace.resumed():
                    config = self._resolver(self.problem, [self.name], self._evaluator).config
                    compiled = self._build(config)
                self._builder.keep(compiled, config)
                problem = self._captured.find_problem(compiled, arguments)
        except (TunewrightError, MemoryError) as error:
            problem = str(error) or type(error).__name__
        if problem:
            log.warning("%s stays as PyTorch compiles it, since what won is not used here: %s", self.name, problem)
            self._resolver.decisions.pop(self.name, None)
            return None
        log.info("%s is swapped: %s", self.name, self._resolver.decisions[self.name].config)
        return compiled

    def _evaluator(self) -> Evaluator:
        timing = self._resolver.timing_options(SAMPLE_SECONDS)
        captured = self._captured
        if captured.dynamic:
            sizes = SeveralSizes(captured)
            workload = TorchWorkload(self.name, self._build, sizes.call, sizes.expect, timing, sizes.bind)
        else:
            build = lambda config: captured.finish(self._build(config))  # noqa: E731
            workload = TorchWorkload(self.name, build, captured.call, captured.expect, timing, captured.bind)
        self._workload = workload
        return Evaluator(self._workload, EvaluatorOptions(time_factor=TIME_FACTOR))

    def _build(self, config: Config) -> CompiledGraph:
        """Returns the graph compiled with a config."""
        return self._builder.build(self.name, self.problem, config)


def make_problem(captured: CapturedGraph, options: Mapping[str, Any]) -> Problem:
    """Returns how to compile a graph as a problem."""
    environment = host_environment()
    mode = {
        **environment.mode,
        "shapes": captured.sizes,
        **{f"option {name}": graphs.describe_setting(value) for name, value in sorted(options.items())},
    }
    if isinstance(captured, TrainingGraph):
        mode["gradients"] = ",".join(map(str, captured.learned))
        space = graph_space.make_space(gemms=False, padding=False, freezing=False)
    else:
        has_gemms, allowed = bool(captured.gemms), captured.numerics if captured.reducible else ()
        mode |= {"numerics": ",".join(allowed)} if allowed else {}
        can_pad = has_gemms and padding.can_pad(captured)
        threads = torch.get_num_threads()
        space = graph_space.make_space(gemms=has_gemms, padding=can_pad, numerics=allowed, threads=threads)
    # With the names of knobs, so that decisions of a release with fewer knobs are made anew, not dropped.
    source = digest(captured.source, *space.names)
    key = Key(NAME, source, Signature(captured.arguments), cpu(), environment.toolchain, mode)
    gain = expected_gain(find_products(captured), convolution_cost(captured))
    seeds = graph_space.seeds(space, huge=huge_pages.page_size() > 0, gain=gain)
    return Problem(key, space, graph_space.default(space), seeds=seeds, ready=(graph_space.UNCOMPILED,))


_BACKENDS: WeakKeyDictionary[Any, TuningBackend] = WeakKeyDictionary()


class TunedCompileOptions(CompileOptions, total=False):
    """Keywords of `compile`."""

    session: Session | None
    overrides: Mapping[str, Override] | None
    budget: str | None
    each: str | None
    tune: Tune | None


@overload
def compile(model: ModelT, **options: Unpack[TunedCompileOptions]) -> ModelT: ...


@overload
def compile(model: None = None, **options: Unpack[TunedCompileOptions]) -> Callable[[ModelT], ModelT]: ...


def compile(
    model: ModelT | None = None,
    *,
    session: Session | None = None,
    overrides: Mapping[str, Override] | None = None,
    budget: str | None = None,
    each: str | None = None,
    tune: Tune | None = None,
    **compile_options: Unpack[CompileOptions],
) -> ModelT | Callable[[ModelT], ModelT]:
    """Compiles a model as `torch.compile` does, with the options that win on each of its graphs.

    Args:
        model: A module or function; without it, a decorator is returned.
        session: Where decisions are looked up and stored; the session of the process by default.
        overrides: What is not tuned, by name or pattern.
        budget: What a search may spend on each graph, with all that is in it; 8 trials, 20 minutes by default.
        each: What of it each matrix product and padding may take.
        tune: "background": calls are served as PyTorch compiles them, while a child process tunes; "now": the first
            call waits. By default in the background, and now if a budget is given.
        **compile_options: Keywords of `torch.compile`. `options` are fixed. What the modes of Inductor set competes for
            every graph; `mode` is for those that are not tuned, such as graphs with random numbers. And `numerics`: the
            reduced precisions that products may have where that is faster, "bfloat16" and "int8" (weights); none
            by default.

    Example:
        >>> model = compile(model, dynamic=False, overrides={"matmul *.qkv": "library"})
        >>> model(x)  # tunes after the first call with new shapes; later processes look the decisions up
    """
    if (named := compile_options.pop("backend", "inductor")) != "inductor":
        raise SettingsError(f"the options of Inductor are tuned; for the backend {named!r}, call torch.compile itself")
    if model is None:
        own = {"session": session, "overrides": overrides, "budget": budget, "each": each, "tune": tune}
        return partial(compile, **own, **compile_options)
    name = str(getattr(model, "__name__", type(model).__name__))
    tune = tune or ("background" if budget is None and each is None else "now")
    backend = TuningBackend(
        session, overrides=overrides, budget=budget or BUDGET, each=each or EACH, name=name, tune=tune
    )
    backend.numerics = check_names(compile_options.pop("numerics", ()))
    backend.is_training = lambda: bool(getattr(model, "training", True))
    if mode := compile_options.pop("mode", None):
        backend.untuned_options = graphs.mode_options(mode)
    options = compile_options.pop("options", None)
    compiled: ModelT = torch.compile(
        model, backend=lambda graph, inputs: backend(graph, inputs, options), **compile_options
    )
    _BACKENDS[compiled] = backend
    return compiled


def decisions(compiled: Callable[..., Any]) -> dict[str, Decision]:
    """Returns the decisions about a model that `compile` returned, by name; empty before its first call."""
    return _BACKENDS[compiled].decisions if compiled in _BACKENDS else {}


@contextmanager
def tuning(
    session: Session | None = None,
    *,
    overrides: Mapping[str, Override] | None = None,
    budget: str = BUDGET,
    each: str = EACH,
    tune: Tune = "now",
) -> Iterator[TuningBackend]:
    """Tunes whatever Inductor compiles while the context is open, also by plain `torch.compile`."""
    backend = TuningBackend(session, overrides=overrides, budget=budget, each=each, tune=tune)
    with graphs.intercept_compile(backend):
        yield backend
