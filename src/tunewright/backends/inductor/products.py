"""Products: the matrix products that Inductor meets while it compiles, and who may compute each of them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any
from unittest.mock import patch

import torch

from tunewright.backends.inductor import pages
from tunewright.backends.inductor.adapter import hook
from tunewright.backends.inductor.templates import Blueprint, chosen, only
from tunewright.errors import BackendError

LIBRARY, UNPACKED, TEMPLATE = "library", "unpacked", "template"
DTYPES = (torch.float32, torch.bfloat16)

_SELECTOR = "torch._inductor.select_algorithm.AlgorithmSelectorCache"
_TEMPLATE = "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate"
_MKL = [0, 2]
"""Which inputs the template takes where the library has the weight packed beside it."""


class Offer:
    """A product as the C++ template was asked to compute it: the arguments of that, to ask for more."""

    def __init__(self, layout: Any, inputs: Sequence[Any], more: Mapping[str, Any], ask: Callable[..., Any]) -> None:
        self.layout, self.inputs, self.more = layout, list(inputs), dict(more)
        self._ask = ask

    @property
    def operands(self) -> list[Any]:
        """Left, right, then the rest."""
        order = list(self.more.get("input_indices") or range(len(self.inputs)))
        if self.more.get("has_bias"):
            order = [order[1], order[2], order[0], *order[3:]]
        return [self.inputs[number] for number in order]

    def drawn(self, blueprint: Blueprint) -> Any:
        """The choice that follows a blueprint."""
        made: list[Any] = []
        with only(blueprint, self.operands[0].get_dtype()):
            self._ask(chosen(blueprint, self.operands[0].get_dtype()), made, self.layout, self.inputs, **self.more)
        if not made or "MicroGemmRef" in made[-1].name:
            raise BackendError(f"no microkernel here follows {blueprint}; take another")
        return made[-1]

    def unpacked(self) -> Any:
        """The library's call on the weight as it is."""
        left, right = self.operands[0], permuted(self.inputs[2])
        bound = hook("torch._inductor.kernel.mm.aten_mm").bind([left, right], self.layout)
        wrap = hook("torch._inductor.select_algorithm.DataProcessorChoiceCallerWrapper")
        return wrap(bound, lambda given, out: ([given[0], given[2].t()] if len(given) == 3 else given, out), None)

    @property
    def packs(self) -> bool:
        """Whether the library has a packed weight of its own, beside which the plain one is left."""
        return self.more.get("input_indices") == _MKL and len(self.inputs) == 3 and bool(self.more.get("trans_w"))


def permuted(weight: Any) -> Any:
    """A matrix, transposed as Inductor does it."""
    return hook("torch._inductor.lowering.permute")(weight, [1, 0])


class Product:
    """One matrix product that Inductor meets: its sizes, its operands in words, and everyone who may compute it."""

    def __init__(self, name: str, offer: Offer, choices: Sequence[Any], given: Sequence[Any]) -> None:
        self.operator, self._offer, self._choices, self._given = name, offer, list(choices), given
        self.sizes = tuple(map(int, (*offer.layout.size[-2:], offer.operands[0].get_size()[-1])))
        self.dtype: torch.dtype = offer.operands[0].get_dtype()
        self.threads = torch.get_num_threads()

    @property
    def operands(self) -> tuple[str, ...]:
        """What is multiplied and made, as text; how a library packs a weight is its own affair."""
        inputs = [*self._offer.operands, self._offer]
        return tuple(_spelt(getattr(one, "layout", None) or one.get_layout()) for one in inputs)

    @property
    def fused(self) -> str:
        """What the template computes along with the product."""
        made = self._offer.more.get("epilogue_creator")
        return getattr(made, "__qualname__", "yes").partition(".")[0] if made else ""

    @property
    def layer(self) -> str:
        """The module it stands in, by its path; empty where passes have lost that."""
        node = getattr(hook("torch._inductor.virtualized.V").graph, "current_node", None)
        stack = (node.meta.get("nn_module_stack") or {}) if node is not None else {}
        path = next((str(path) for path, _ in reversed(list(stack.values()))), "")
        return re.sub(r"^L\['\w+'\]\.?", "", path)

    @property
    def kinds(self) -> list[str]:
        """Who may compute it as it is, without a blueprint; the library first."""
        found = [LIBRARY] if self._library is not None else []
        return [*found, TEMPLATE, *([UNPACKED] if self._offer.packs else [])]

    @property
    def _library(self) -> Any:
        return next((one for one in self._choices if not hasattr(one, "offered")), None)

    def choice(self, who: str | Blueprint) -> Any:
        """What Inductor calls a choice."""
        if isinstance(who, Blueprint):
            return self._offer.drawn(who)
        if who == UNPACKED:
            return self._offer.unpacked()
        return self._library if who == LIBRARY else next(one for one in self._choices if hasattr(one, "offered"))

    @cached_property
    def _arguments(self) -> Any:
        inputs, layout, more = self._given
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts of PyTorch call other parts deprecated
            return hook(f"{_SELECTOR}.get_inputs")(self._choices, inputs, layout, more)

    def launch(self, who: str | Blueprint) -> Callable[[], Any]:
        """One way to compute it, bound to arguments like the real ones; returns its result."""
        choice = self.choice(who)
        tensors = self._arguments.get_benchmark_tensors(who in (LIBRARY, UNPACKED))
        inputs, out = list(tensors.input_tensors), tensors.output_tensor
        inner = choice
        if hasattr(choice, "_preprocessor"):
            inner = choice._wrapped
            inputs, out = choice._preprocessor(inputs, out)
        pages.gather(inputs)  # as they will lie; else luck with addresses is part of what is measured
        run = inner.bmreq.make_run_fn(*inputs, out=out)

        def launch(_kept: Any = inputs) -> Any:  # the bound call has addresses only
            result = run()
            return result if isinstance(result, torch.Tensor) else out

        return launch


def _spelt(layout: Any) -> str:
    sizes, steps = (",".join(map(str, some)) for some in (layout.size, layout.stride))
    return f"{str(layout.dtype).removeprefix('torch.')}[{sizes}]:{steps}"


Select = Callable[[Product], tuple[str | Blueprint, str]]
"""Says who computes a product, and the digest of the decision that says so."""


@contextmanager
def choosing(select: Select) -> Iterator[None]:
    """Each matrix product that Inductor meets while this is open is computed by whom `select` names, unbenchmarked."""
    template, selector = hook(_TEMPLATE), hook(_SELECTOR)
    ask, decide = template.add_choices.__func__, selector.__call__

    def add_choices(cls: Any, /, choices: list[Any], layout: Any, inputs: Sequence[Any], **more: Any) -> Any:
        before = len(choices)
        made = ask(cls, choices, layout, inputs, **more)
        if cls is template and len(choices) > before and _plain(layout, inputs):
            choices[-1].offered = Offer(layout, inputs, more, ask)
        return made

    def choose(self: Any, name: str, choices: list[Any], inputs: Any, layout: Any, **more: Any) -> Any:
        offer = next((one.offered for one in choices if hasattr(one, "offered")), None)
        if offer is not None and offer.operands[0].get_dtype() in DTYPES:
            product = Product(name, offer, choices, (inputs, layout, more.get("input_gen_fns")))
            who, digest = select(product)
            choices = [product.choice(who)]
            if (drawn := getattr(choices[0], "template", None)) is not None:
                drawn.decided = digest
        return decide(self, name, choices, inputs, layout, **more)

    with ExitStack() as patches:
        patches.enter_context(patch.object(template, "add_choices", classmethod(add_choices)))
        patches.enter_context(patch.object(selector, "__call__", choose))
        yield


def _plain(layout: Any, inputs: Sequence[Any]) -> bool:
    """Whether all sizes are numbers: of others, blockings are computed at run time, and not chosen."""
    try:
        return all(int(size) > 0 for one in (layout, *inputs) for size in getattr(one, "size", None) or one.get_size())
    except (TypeError, AttributeError):
        return False
