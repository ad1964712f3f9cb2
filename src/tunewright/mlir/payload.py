"""Builder of MLIR payloads (linalg on tensors) with the loops and indexing maps of each operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunewright.mlir.exponentials import LEAST, LN2_HIGH, LN2_LOW, LOG2_E, MOST, SERIES, SHIFT

Size = int | None
"""Size of a dimension; None if it is known only at a call."""


@dataclass(frozen=True)
class LinalgOp:
    """A linalg operation: its loops by name, the reduction loops, and the indexing of its operands.

    `reads` has each operand with its index expression, such as ("a", "i,k"); also the result if it is accumulated.
    `elements` are the types of the elements that are read, and of the result.
    """

    name: str
    loops: tuple[str, ...]
    reductions: frozenset[str]
    reads: tuple[tuple[str, str], ...]
    writes: tuple[str, str]
    sizes: tuple[Size, ...] = ()
    kind: str = "linalg.generic"
    elements: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlacedOp:
    """An operation of a payload that a schedule has changed: whether it is in a loop, and how it reduces.

    `combiner` adds an element to the result, such as `arith.addf`. Something that has no loops, or is inside one, uses
    an operation that `escapes`.
    """

    op: LinalgOp
    nested: bool = False
    combiner: str = ""
    escapes: bool = False


@dataclass(frozen=True)
class PayloadArgument:
    """An argument of a payload's function: an array, of float32 unless another `element` is given."""

    name: str
    shape: tuple[Size, ...]
    written: bool = False
    element: str = "f32"


@dataclass(frozen=True)
class Payload:
    """A computation without a schedule: MLIR text, and its operations as seen from Python.

    `reference` computes the same from the input arrays, in their precision.
    """

    text: str
    arguments: tuple[PayloadArgument, ...] = ()
    operations: tuple[LinalgOp, ...] = ()
    reference: Callable[..., Any] | None = None
    name: str = "kernel"
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text

    def find(self, name: str) -> LinalgOp:
        """Returns the operation with that name."""
        return next(op for op in self.operations if op.name == name)


def type_text(kind: str, shape: Sequence[Size], element: str = "f32") -> str:
    """Returns a type such as `tensor<8x?xf32>`."""
    sizes = "".join("?x" if size is None else f"{size}x" for size in shape)
    return f"{kind}<{sizes}{element}>"


class PayloadBuilder:
    """Builds a payload operation by operation; values are referred to by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._arguments: list[PayloadArgument] = []
        self._lines: list[str] = []
        self._operations: list[LinalgOp] = []
        self._shapes: dict[str, tuple[Size, ...]] = {}
        self._elements: dict[str, str] = {}
        self._rows = ""
        self._constants: dict[str, str] = {}

    def input(self, name: str, *shape: Size, element: str = "f32") -> str:
        """Add an array that is read."""
        return self._add_argument(PayloadArgument(name, shape, element=element))

    def output(self, name: str, *shape: Size, element: str = "f32") -> str:
        """Add the array that is written."""
        return self._add_argument(PayloadArgument(name, shape, written=True, element=element))

    def _add_argument(self, argument: PayloadArgument) -> str:
        name = self._declare(argument.name, argument.shape, argument.element)
        memory, tensor = self._type(name, "memref"), self._type(name)
        writable = " writable" if argument.written else ""
        self._lines.append(f"%{name} = bufferization.to_tensor %{name}_m restrict{writable} : {memory} to {tensor}")
        if None in argument.shape and not self._rows:
            self._rows = "%rows"
            self._lines += ["%zeroth = arith.constant 0 : index", f"%rows = memref.dim %{name}_m, %zeroth : {memory}"]
        self._arguments.append(argument)
        return name

    def _declare(self, name: str, shape: tuple[Size, ...], element: str) -> str:
        self._shapes[name], self._elements[name] = shape, element
        return name

    def element(self, name: str) -> str:
        """Returns the type of a value's elements."""
        return self._elements[name]

    def _type(self, name: str, kind: str = "tensor") -> str:
        """Returns the type of a value."""
        return type_text(kind, self._shapes[name], self._elements[name])

    def constant(self, value: float, element: str = "f32") -> str:
        """Returns the name of a constant, a float32 or an integer; equal ones are written once."""
        text = f"{value:.12e}" if abs(value) != float("inf") else ("0xFF800000" if value < 0 else "0x7F800000")
        text = f"{text} : f32" if element == "f32" else f"{int(value)} : {element}"
        if text not in self._constants:
            self._constants[text] = f"%k{len(self._constants)}"
        return self._constants[text]

    def empty(self, name: str, *shape: Size, element: str = "f32") -> str:
        """Add an uninitialized tensor."""
        sizes = self._rows if None in shape else ""
        self._declare(name, shape, element)
        self._lines.append(f"%{name} = tensor.empty({sizes}) : {self._type(name)}")
        return name

    def fill(self, name: str, into: str, value: float = 0.0) -> str:
        """Add a fill of `into` with one value."""
        kind, element = self._type(into), self._elements[into]
        constant = self.constant(value, element)
        self._lines.append(f"%{name} = linalg.fill ins({constant} : {element}) outs(%{into} : {kind}) -> {kind}")
        self._declare(name, self._shapes[into], element)
        loops = tuple(f"d{i}" for i in range(len(self._shapes[name])))
        self._operations.append(
            LinalgOp(name, loops, frozenset(), (), (name, ",".join(loops)), self._shapes[name], "linalg.fill")
        )
        return name

    def named(self, name: str, op: str, loops: str, reads: Mapping[str, str], into: tuple[str, str]) -> str:
        """Add a named contraction of linalg, such as `linalg.matmul`; upper-case loops are reductions."""
        out, index = into
        kinds, kind = ", ".join(map(self._type, reads)), self._type(out)
        values = ", ".join(f"%{operand}" for operand in reads)
        self._lines.append(f"%{name} = {op} ins({values} : {kinds}) outs(%{out} : {kind}) -> {kind}")
        self._declare(name, self._shapes[out], self._elements[out])
        self._add_op(name, loops, {**reads, out: index}, index, op)
        return name

    def generic(self, name: str, loops: str, reads: Mapping[str, str], into: tuple[str, str], body: OpBody) -> str:
        """Add a `linalg.generic`: `body` computes the result from the operands; upper-case loops are reductions.

        It computes in float32; narrower floats are widened before it, and its result is rounded after it.
        """
        out, index = into
        order = [loop for loop in loops.split(",") if loop]
        maps = [f"affine_map<({loops.lower()})->({text})>" for text in [*reads.values(), index]]
        iterators = ", ".join('"reduction"' if loop.isupper() else '"parallel"' for loop in order)
        types, kind, element = list(map(self._type, reads)), self._type(out), self._elements[out]
        ins = f"ins({', '.join(f'%{operand}' for operand in reads)} : {', '.join(types)}) " if reads else ""
        given = {f"%in{i}": self._elements[arg] for i, arg in enumerate(reads)}
        wide = {name: name if kind == "f32" else f"{name}_wide" for name, kind in given.items()}
        lines, result = body.lines(self, list(wide.values()), "%was")
        lines = [
            f"{wide[name]} = arith.extf {name} : {kind} to f32" for name, kind in given.items() if kind != "f32"
        ] + lines
        if element != "f32":
            lines, result = [*lines, f"%rounded = arith.truncf {result} : f32 to {element}"], "%rounded"
        parameters = ", ".join([*(f"{name}: {kind}" for name, kind in given.items()), f"%was: {element}"])
        self._lines += [
            f"%{name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{iterators}]}} "
            f"{ins}outs(%{out} : {kind}) {{",
            f"  ^bb0({parameters}):",
            *(f"    {line}" for line in lines),
            f"    linalg.yield {result} : {element}",
            f"}} -> {kind}",
        ]
        self._declare(name, self._shapes[out], element)
        self._add_op(name, loops, {**reads, out: index} if body.reads_result else dict(reads), index)
        return name

    def _add_op(
        self, name: str, loops: str, reads: Mapping[str, str], index: str, kind: str = "linalg.generic"
    ) -> None:
        order = tuple(loop.lower() for loop in loops.split(","))
        reductions = frozenset(loop.lower() for loop in loops.split(",") if loop.isupper())
        loop_sizes: dict[str, Size] = {}
        for operand, text in reads.items():
            for part, size in zip(text.split(","), self._shapes[operand], strict=True):
                if part in order:
                    loop_sizes.setdefault(part, size)
        for part, size in zip(index.split(","), self._shapes[name], strict=True):
            loop_sizes.setdefault(part, size)
        sizes = tuple(loop_sizes.get(loop) for loop in order)
        elements = tuple(self._elements[value] for value in (*reads, name))
        self._operations.append(
            LinalgOp(name, order, reductions, tuple(reads.items()), (name, index), sizes, kind, elements)
        )

    def finish(self, result: str, reference: Callable[..., Any], **sizes: int) -> Payload:
        """Returns the payload that stores `result` in the output array."""
        out = next(argument for argument in self._arguments if argument.written)
        tensor, memory = self._type(out.name), self._type(out.name, "memref")
        heads = ", ".join(f"%{arg.name}_m: {self._type(arg.name, 'memref')}" for arg in self._arguments)
        constants = [f"{name} = arith.constant {text}" for text, name in self._constants.items()]
        lines = [
            *constants,
            *self._lines,
            f"bufferization.materialize_in_destination %{result} in restrict writable %{out.name}_m : "
            f"({tensor}, {memory}) -> ()",
            "return",
        ]
        body = "\n".join(f"    {line}" for line in lines)
        text = (
            f"module {{\n  func.func @{self.name}({heads}) attributes {{llvm.emit_c_interface}} {{\n{body}\n  }}\n}}\n"
        )
        return Payload(text, tuple(self._arguments), tuple(self._operations), reference, self.name, sizes)


class OpBody:
    """Body of an operation: computes one element, instruction by instruction."""

    def __init__(self, compute: Callable[[ScalarBuilder, list[str], str], str], *, reads_result: bool = False) -> None:
        self._compute, self.reads_result = compute, reads_result

    def lines(self, builder: PayloadBuilder, reads: list[str], result: str) -> tuple[list[str], str]:
        """Returns the instructions and the name of their result."""
        scalar = ScalarBuilder(builder)
        return scalar.lines, self._compute(scalar, reads, result)


class ScalarBuilder:
    """Builds instructions on scalars, which the compiler vectorizes."""

    def __init__(self, builder: PayloadBuilder) -> None:
        self._builder, self.lines = builder, list[str]()

    def __call__(self, op: str, *operands: str | float) -> str:
        """Add an instruction on float32, such as `addf`. Returns the name of its result."""
        names = [self._builder.constant(value) if isinstance(value, int | float) else value for value in operands]
        return self.emit(f"{op if '.' in op else f'arith.{op}'} {', '.join(names)} : f32")

    def emit(self, text: str) -> str:
        """Add an instruction given as text. Returns the name of its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def exp(self, x: str) -> str:
        """Returns exp(x), to about one unit in the last place of float32, as `exponentials` computes it on vectors."""
        x = self.select("ogt", x, MOST, MOST, x)
        x = self.select("olt", x, LEAST, LEAST, x)
        shifted = self("math.fma", x, LOG2_E, SHIFT)
        power = self("subf", shifted, SHIFT)
        rest = self("math.fma", power, -LN2_LOW, self("math.fma", power, -LN2_HIGH, x))
        series = self("math.fma", SERIES[0], rest, SERIES[1])
        for term in SERIES[2:]:
            series = self("math.fma", series, rest, term)
        bits = self.emit(f"arith.bitcast {shifted} : f32 to i32")
        exponent = self.emit(f"arith.shli {bits}, {self.emit('arith.constant 23 : i32')} : i32")
        return self("mulf", series, self.emit(f"arith.bitcast {exponent} : i32 to f32"))

    def select(self, predicate: str, left: str, right: float, yes: str | float, no: str | float) -> str:
        """Returns one of two values by a comparison; unlike `minimumf` and `maximumf`, one instruction for both."""
        names = [self._builder.constant(value) if isinstance(value, int | float) else value for value in (yes, no)]
        holds = self.emit(f"arith.cmpf {predicate}, {left}, {self._builder.constant(right)} : f32")
        return self.emit(f"arith.select {holds}, {names[0]}, {names[1]} : f32")
