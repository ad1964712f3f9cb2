"""Writing: linalg on tensors put together as MLIR text, with each operation's loops and maps kept beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Size = int | None
"""Of a dimension; None where only a call says."""


@dataclass(frozen=True)
class Operation:
    """A linalg operation: its loops by name, which of them sum, and how each operand is indexed by them.

    `reads` has each operand with its index expression, such as ("a", "i,k"), the result too if it is added to.
    """

    name: str
    loops: tuple[str, ...]
    sums: frozenset[str]
    reads: tuple[tuple[str, str], ...]
    writes: tuple[str, str]
    sizes: tuple[Size, ...] = ()
    kind: str = "linalg.generic"


@dataclass(frozen=True)
class Argument:
    """An argument of a payload's function: an array of float32, read or written whole."""

    name: str
    shape: tuple[Size, ...]
    written: bool = False


@dataclass(frozen=True)
class Payload:
    """What is to be computed, said without how: MLIR text, and what is known of it in Python.

    `reference` computes the same from the arrays that are read, in whatever precision they have.
    """

    text: str
    arguments: tuple[Argument, ...] = ()
    operations: tuple[Operation, ...] = ()
    reference: Callable[..., Any] | None = None
    name: str = "kernel"
    sizes: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text

    def find(self, name: str) -> Operation:
        """The operation of that name."""
        return next(one for one in self.operations if one.name == name)


def shaped(kind: str, shape: Sequence[Size]) -> str:
    """A type such as `tensor<8x?xf32>`."""
    sizes = "".join("?x" if size is None else f"{size}x" for size in shape)
    return f"{kind}<{sizes}f32>"


class Writer:
    """A payload in the making; values are known by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._arguments: list[Argument] = []
        self._lines: list[str] = []
        self._operations: list[Operation] = []
        self._shapes: dict[str, tuple[Size, ...]] = {}
        self._rows = ""
        self._constants: dict[str, str] = {}

    def read(self, name: str, *shape: Size) -> str:
        """An array that is read."""
        return self._argument(Argument(name, shape))

    def written(self, name: str, *shape: Size) -> str:
        """The array that is written."""
        return self._argument(Argument(name, shape, written=True))

    def _argument(self, argument: Argument) -> str:
        name, memory, tensor = argument.name, shaped("memref", argument.shape), shaped("tensor", argument.shape)
        writable = " writable" if argument.written else ""
        self._lines.append(f"%{name} = bufferization.to_tensor %{name}_m restrict{writable} : {memory} to {tensor}")
        if None in argument.shape and not self._rows:
            self._rows = "%rows"
            self._lines += ["%zeroth = arith.constant 0 : index", f"%rows = memref.dim %{name}_m, %zeroth : {memory}"]
        self._arguments.append(argument)
        self._shapes[name] = argument.shape
        return name

    def constant(self, value: float) -> str:
        """A number; the same one is written once."""
        text = f"{value:.12e}" if abs(value) != float("inf") else ("0xFF800000" if value < 0 else "0x7F800000")
        if text not in self._constants:
            self._constants[text] = f"%k{len(self._constants)}"
        return self._constants[text]

    def empty(self, name: str, *shape: Size) -> str:
        """A tensor without values, to be filled or written."""
        sizes = self._rows if None in shape else ""
        self._lines.append(f"%{name} = tensor.empty({sizes}) : {shaped('tensor', shape)}")
        self._shapes[name] = shape
        return name

    def fill(self, name: str, into: str, value: float = 0.0) -> str:
        """A tensor of one value."""
        kind = shaped("tensor", self._shapes[into])
        said = self.constant(value)
        self._lines.append(f"%{name} = linalg.fill ins({said} : f32) outs(%{into} : {kind}) -> {kind}")
        self._shapes[name] = self._shapes[into]
        loops = tuple(f"d{i}" for i in range(len(self._shapes[name])))
        self._operations.append(
            Operation(name, loops, frozenset(), (), (name, ",".join(loops)), self._shapes[name], "linalg.fill")
        )
        return name

    def named(self, name: str, op: str, loops: str, reads: Mapping[str, str], into: tuple[str, str]) -> str:
        """One of linalg's own operations that add up products; loops in capitals are sums."""
        out, where = into
        kinds = ", ".join(shaped("tensor", self._shapes[one]) for one in reads)
        kind = shaped("tensor", self._shapes[out])
        values = ", ".join(f"%{one}" for one in reads)
        self._lines.append(f"%{name} = {op} ins({values} : {kinds}) outs(%{out} : {kind}) -> {kind}")
        self._shapes[name] = self._shapes[out]
        self._note(name, loops, {**reads, out: where}, where, op)
        return name

    def generic(self, name: str, loops: str, reads: Mapping[str, str], into: tuple[str, str], body: Body) -> str:
        """An operation of our own: `body` computes the result from the operands; loops in capitals are sums."""
        out, where = into
        order = [one for one in loops.split(",") if one]
        maps = [f"affine_map<({loops.lower()})->({text})>" for text in [*reads.values(), where]]
        kinds = ["reduction" if one.isupper() else "parallel" for one in order]
        typed, kind = [shaped("tensor", self._shapes[one]) for one in reads], shaped("tensor", self._shapes[out])
        ins = f"ins({', '.join(f'%{one}' for one in reads)} : {', '.join(typed)}) " if reads else ""
        lines, result = body.lines(self, [f"%in{i}" for i in range(len(reads))], "%was")
        heads = ", ".join([*(f"%in{i}: f32" for i in range(len(reads))), "%was: f32"])
        listed = ", ".join(f'"{one}"' for one in kinds)
        self._lines += [
            f"%{name} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{listed}]}} "
            f"{ins}outs(%{out} : {kind}) {{",
            f"  ^bb0({heads}):",
            *(f"    {line}" for line in lines),
            f"    linalg.yield {result} : f32",
            f"}} -> {kind}",
        ]
        self._shapes[name] = self._shapes[out]
        self._note(name, loops, {**reads, out: where} if body.reads_result else dict(reads), where)
        return name

    def _note(self, name: str, loops: str, reads: Mapping[str, str], where: str, kind: str = "linalg.generic") -> None:
        order = tuple(one.lower() for one in loops.split(","))
        sums = frozenset(one.lower() for one in loops.split(",") if one.isupper())
        known: dict[str, Size] = {}
        for one, text in reads.items():
            for part, size in zip(text.split(","), self._shapes[one], strict=True):
                if part in order:
                    known.setdefault(part, size)
        for part, size in zip(where.split(","), self._shapes[name], strict=True):
            known.setdefault(part, size)
        sizes = tuple(known.get(one) for one in order)
        self._operations.append(Operation(name, order, sums, tuple(reads.items()), (name, where), sizes, kind))

    def finish(self, result: str, reference: Callable[..., Any], **sizes: int) -> Payload:
        """The payload that leaves `result` in the array that is written."""
        out = next(one for one in self._arguments if one.written)
        tensor, memory = shaped("tensor", out.shape), shaped("memref", out.shape)
        heads = ", ".join(f"%{one.name}_m: {shaped('memref', one.shape)}" for one in self._arguments)
        constants = [f"{name} = arith.constant {text} : f32" for text, name in self._constants.items()]
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


class Body:
    """The inside of an operation: what is computed for one element, instruction by instruction."""

    def __init__(self, compute: Callable[[Element, list[str], str], str], *, reads_result: bool = False) -> None:
        self._compute, self.reads_result = compute, reads_result

    def lines(self, writer: Writer, reads: list[str], result: str) -> tuple[list[str], str]:
        """The instructions, and the name of what they compute."""
        element = Element(writer)
        return element.lines, self._compute(element, reads, result)


class Element:
    """Instructions on single numbers, which the compiler makes vectors of."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self.lines = writer, list[str]()

    def __call__(self, op: str, *operands: str | float) -> str:
        """One instruction on float32, such as `addf`."""
        said = [self._writer.constant(one) if isinstance(one, int | float) else one for one in operands]
        return self.emit(f"{op if '.' in op else f'arith.{op}'} {', '.join(said)} : f32")

    def emit(self, text: str) -> str:
        """An instruction in full; the name of its result."""
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def exp(self, x: str) -> str:
        """The exponential of x, for x from -87 to 88, to about one unit in the last place of float32 (Cephes)."""
        x = self("maximumf", self("minimumf", x, 88.0), -87.0)
        power = self("math.roundeven", self("mulf", x, 1.44269504088896))
        rest = self("math.fma", power, 2.12194440e-4, self("math.fma", power, -0.693359375, x))
        series = self("math.fma", 1.9875691500e-4, rest, 1.3981999507e-3)
        for term in (8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5):
            series = self("math.fma", series, rest, term)
        series = self("addf", self("math.fma", series, self("mulf", rest, rest), rest), 1.0)
        whole = self.emit(f"arith.fptosi {power} : f32 to i32")
        bias, shift = (self.emit(f"arith.constant {number} : i32") for number in (127, 23))
        biased = self.emit(f"arith.addi {whole}, {bias} : i32")
        shifted = self.emit(f"arith.shli {biased}, {shift} : i32")
        return self("mulf", series, self.emit(f"arith.bitcast {shifted} : i32 to f32"))
