"""Matrix products (GEMMs) that Inductor meets while it compiles, and the implementations of each."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch

from tunewright.errors import BackendError
from tunewright.torch.inductor import huge_pages
from tunewright.torch.inductor.adapter import hook
from tunewright.torch.inductor.patching import replaced_attribute
from tunewright.torch.inductor.templates import GemmConfig, configured_template, restrict_microkernels

LIBRARY, UNPACKED, TEMPLATE = "library", "unpacked", "template"
DTYPES = (torch.float32, torch.bfloat16)

_SELECTOR = "torch._inductor.select_algorithm.AlgorithmSelectorCache"
_TEMPLATE = "torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate"
_MKL_INPUTS = [0, 2]
"""Which inputs the template takes where the library has the packed weight beside the plain one."""


class TemplateRequest:
    """The arguments of a call of `CppGemmTemplate.add_choices`, kept to ask for other configurations."""

    def __init__(
        self, layout: Any, inputs: Sequence[Any], options: Mapping[str, Any], add_choices: Callable[..., Any]
    ) -> None:
        self.layout, self.inputs, self.options = layout, list(inputs), dict(options)
        self._add_choices = add_choices

    @property
    def operands(self) -> list[Any]:
        """Left, right, then the rest."""
        order = list(self.options.get("input_indices") or range(len(self.inputs)))
        if self.options.get("has_bias"):
            order = [order[1], order[2], order[0], *order[3:]]
        return [self.inputs[number] for number in order]

    def templated(self, config: GemmConfig) -> Any:
        """Returns Inductor's choice for a configuration of the template."""
        choices: list[Any] = []
        dtype = self.operands[0].get_dtype()
        with restrict_microkernels(config, dtype):
            template = configured_template(config, dtype)
            self._add_choices(template, choices, self.layout, self.inputs, **self.options)
        if not choices or "MicroGemmRef" in choices[-1].name:
            raise BackendError(f"no microkernel here supports {config}; choose another")
        return choices[-1]

    def unpacked(self) -> Any:
        """Returns the choice that calls the library on the weight as it is."""
        left, right = self.operands[0], _transposed(self.inputs[2])
        bound = hook("torch._inductor.kernel.mm.aten_mm").bind([left, right], self.layout)
        wrap = hook("torch._inductor.select_algorithm.DataProcessorChoiceCallerWrapper")
        return wrap(bound, lambda inputs, out: ([inputs[0], inputs[2].t()] if len(inputs) == 3 else inputs, out), None)

    @property
    def is_packed(self) -> bool:
        """Whether the library has a packed weight of its own beside the plain one."""
        indices = self.options.get("input_indices")
        return indices == _MKL_INPUTS and len(self.inputs) == 3 and bool(self.options.get("trans_w"))


def _transposed(weight: Any) -> Any:
    """Returns a matrix transposed as Inductor does it."""
    return hook("torch._inductor.lowering.permute")(weight, [1, 0])


class Gemm:
    """One matrix product that Inductor meets: its sizes, its operands, and its implementations."""

    def __init__(self, name: str, request: TemplateRequest, choices: Sequence[Any], inputs: Sequence[Any]) -> None:
        self.operator, self._request, self._choices, self._inputs = name, request, list(choices), inputs
        self.sizes = tuple(map(int, (*request.layout.size[-2:], request.operands[0].get_size()[-1])))
        self.dtype: torch.dtype = request.operands[0].get_dtype()
        self.threads = torch.get_num_threads()

    @property
    def operands(self) -> tuple[str, ...]:
        """Operands and result as text; how a library packs a weight is left out."""
        nodes = [*self._request.operands, self._request]
        return tuple(_describe_layout(getattr(node, "layout", None) or node.get_layout()) for node in nodes)

    @property
    def fused(self) -> str:
        """The name of the epilogue that the template computes along with the product."""
        epilogue = self._request.options.get("epilogue_creator")
        return getattr(epilogue, "__qualname__", "yes").partition(".")[0] if epilogue else ""

    @property
    def layer(self) -> str:
        """The path of the module it belongs to; empty where passes have lost that."""
        node = getattr(hook("torch._inductor.virtualized.V").graph, "current_node", None)
        stack = (node.meta.get("nn_module_stack") or {}) if node is not None else {}
        path = next((str(path) for path, _ in reversed(list(stack.values()))), "")
        return re.sub(r"^L\['\w+'\]\.?", "", path)

    @property
    def kinds(self) -> list[str]:
        """The implementations without a configuration, the library first."""
        library = [LIBRARY] if self._library is not None else []
        return [*library, TEMPLATE, *([UNPACKED] if self._request.is_packed else [])]

    @property
    def _library(self) -> Any:
        return next((choice for choice in self._choices if not hasattr(choice, "template_request")), None)

    def choice(self, implementation: str | GemmConfig) -> Any:
        """Returns an implementation as Inductor's choice."""
        if isinstance(implementation, GemmConfig):
            return self._request.templated(implementation)
        if implementation == UNPACKED:
            return self._request.unpacked()
        if implementation == LIBRARY:
            return self._library
        return next(choice for choice in self._choices if hasattr(choice, "template_request"))

    @cached_property
    def _arguments(self) -> Any:
        inputs, layout, generators = self._inputs
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's own deprecation warnings
            return hook(f"{_SELECTOR}.get_inputs")(self._choices, inputs, layout, generators)

    @cached_property
    def _examples(self) -> tuple[list[Any], list[Any], Any]:
        """Inputs of the template, inputs of the library, and the result, all like the real ones."""
        own, library = (self._arguments.get_benchmark_tensors(extern) for extern in (False, True))
        return list(own.input_tensors), list(library.input_tensors), own.output_tensor

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """Arguments like the real ones: the memory of the inputs of the template, and last that of the result."""
        inputs, _, out = self._examples
        return tuple(_memory(tensor) for tensor in (*inputs, out))

    @property
    def constant(self) -> frozenset[int]:
        """The numbers of the arguments that are weights, or are not the same in memory for all implementations."""
        names = list(dict.fromkeys(node.get_name() for node in self._inputs[0]))
        weights = hook("torch._inductor.virtualized.V").graph.constants
        inputs, library, _ = self._examples
        shared = {_address(tensor) for tensor in library}
        pairs = enumerate(zip(names, inputs, strict=True))
        return frozenset(i for i, (name, tensor) in pairs if name in weights or _address(tensor) not in shared)

    def prepare(self, implementation: str | GemmConfig) -> PreparedGemm:
        """Returns an implementation to be bound to arguments like `values`."""
        choice = self.choice(implementation)
        own, library, out = self._examples
        inputs = library if implementation in (LIBRARY, UNPACKED) else own
        if not hasattr(choice, "_preprocessor"):
            return PreparedGemm(self.values, choice, inputs, out)
        return PreparedGemm(self.values, choice._wrapped, *choice._preprocessor(list(inputs), out))


class PreparedGemm:
    """An implementation of a product, with its inputs in the form that it takes."""

    def __init__(self, values: Sequence[Any], choice: Any, inputs: Sequence[Any], out: Any) -> None:
        self._values, self._choice, self._inputs, self._out = values, choice, inputs, out
        choice.bmreq.make_run_fn(*inputs, out=out)  # compiles it: now, and not while others wait for the device

    def bind(self, *values: Any) -> Callable[[], Any]:
        """Returns a call with these arguments instead of the first ones; it returns the result."""
        replaced = {_address(old): new for old, new in zip(self._values, values, strict=True) if new is not old}
        *inputs, out = (_placed(tensor, replaced) for tensor in (*self._inputs, self._out))
        huge_pages.move_to_huge_pages(inputs)  # where they will be; else chance in addresses would be measured
        run = self._choice.bmreq.make_run_fn(*inputs, out=out)

        def launch(_inputs: Any = inputs) -> Any:  # the bound call only has their addresses
            result = run()
            return result if isinstance(result, torch.Tensor) else out

        return launch


def _memory(tensor: Any) -> Any:
    """Returns the whole memory that a tensor is in, as a vector; tensors of other layouts as they are."""
    if tensor.layout is not torch.strided:
        return tensor
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)


def _address(tensor: Any) -> int:
    """Returns what identifies the memory of a tensor."""
    return int(tensor.untyped_storage().data_ptr()) if tensor.layout is torch.strided else id(tensor)


def _placed(tensor: Any, replaced: Mapping[int, Any]) -> Any:
    """Returns a tensor in the memory that replaces its own."""
    if (memory := replaced.get(_address(tensor))) is None:
        return tensor
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _describe_layout(layout: Any) -> str:
    sizes, strides = (",".join(map(str, values)) for values in (layout.size, layout.stride))
    return f"{str(layout.dtype).removeprefix('torch.')}[{sizes}]:{strides}"


SelectImplementation = Callable[[Gemm], tuple[str | GemmConfig, str]]
"""Returns the implementation of a GEMM, and the digest of the decision about it."""


@contextmanager
def select_gemms(select: SelectImplementation) -> Iterator[None]:
    """Has `select` choose the implementation of each GEMM that Inductor meets, instead of Inductor's benchmarks."""
    template, selector = hook(_TEMPLATE), hook(_SELECTOR)
    add_original, choose_original = template.add_choices.__func__, selector.__call__

    def add_choices(cls: Any, /, choices: list[Any], layout: Any, inputs: Sequence[Any], **options: Any) -> Any:
        before = len(choices)
        result = add_original(cls, choices, layout, inputs, **options)
        if cls is template and len(choices) > before and _has_static_sizes(layout, inputs):
            choices[-1].template_request = TemplateRequest(layout, inputs, options, add_original)
        return result

    def choose(self: Any, name: str, choices: list[Any], inputs: Any, layout: Any, **options: Any) -> Any:
        request = next((choice.template_request for choice in choices if hasattr(choice, "template_request")), None)
        if request is not None and request.operands[0].get_dtype() in DTYPES:
            gemm = Gemm(name, request, choices, (inputs, layout, options.get("input_gen_fns")))
            implementation, digest = select(gemm)
            choices = [gemm.choice(implementation)]
            if (chosen := getattr(choices[0], "template", None)) is not None:
                chosen.decided = digest
        return choose_original(self, name, choices, inputs, layout, **options)

    with (
        replaced_attribute(template, "add_choices", classmethod(add_choices)),
        replaced_attribute(selector, "__call__", choose),
    ):
        yield


def _has_static_sizes(layout: Any, inputs: Sequence[Any]) -> bool:
    """Whether all sizes are numbers; for others, blockings are computed at run time and not chosen."""
    try:
        shapes = [getattr(node, "size", None) or node.get_size() for node in (layout, *inputs)]
        return all(int(size) > 0 for shape in shapes for size in shape)
    except (TypeError, AttributeError):
        return False
