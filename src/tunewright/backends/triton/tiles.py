"""Tiles: the blocks a kernel works on, read from its source for given meta-parameters; nothing is run or compiled."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod
from typing import Any

from tunewright.backends.triton import folding
from tunewright.backends.triton.folding import UNKNOWN

DEEPEST = 8
"""Calls of functions within functions that are followed."""

_REDUCING = frozenset({"sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "softmax", "cumsum", "sort"})
_SCALAR = frozenset({"program_id", "num_programs", "cdiv", "multiple_of", "max_contiguous", "assume"})
_SHAPED = frozenset({"zeros", "full"})
_SAME = frozenset({"advance", "cast", "zeros_like"})


class Origin(StrEnum):
    """Where a block comes from."""

    COMPUTED = "computed"
    LOADED = "loaded"
    STREAMED = "streamed"  # loaded anew in each round of a loop


@dataclass(frozen=True)
class Value:
    """What is known of a value in a kernel: its shape, bits of an element (of what a pointer points to), or itself."""

    shape: tuple[int, ...] | None = None
    bits: int | None = None
    constant: Any = UNKNOWN
    pointer: bool = False
    origin: Origin = Origin.COMPUTED
    parts: tuple[Value, ...] = ()


NOTHING = Value()


@dataclass(frozen=True)
class Operand:
    """One side of a dot: elements, bits of each, and where it comes from."""

    elements: int
    bits: int
    origin: Origin


@dataclass(frozen=True)
class Dot:
    """A product of two blocks: how large it is, and what it is made of.

    `carried` names the accumulator that it adds to from round to round of a loop; such ones live side by side.
    """

    m: int
    n: int
    k: int
    left: Operand
    right: Operand
    bits: int = 32
    carried: str = ""


@dataclass
class Tiles:
    """What a kernel works on: its dots, the largest block that must be whole at once, and what could not be read."""

    dots: list[Dot] = field(default_factory=list)
    held_bits: int = 0
    unread: list[str] = field(default_factory=list)


def tiles(function: Any, known: Mapping[str, Any]) -> Tiles:
    """The tiles of a JIT function, for the arguments in `known`: numbers, or tensors by their element type."""
    found = Tiles()
    values = {name: _argument(value) for name, value in known.items()}
    _Reader(function, {name: values.get(name, Value(())) for name in function.arg_names}, found).read()
    return found


def _argument(value: Any) -> Value:
    if hasattr(value, "data_ptr"):
        return Value((), folding.bits_of(value.dtype), pointer=True)
    return Value((), 32 if isinstance(value, int | float) else None, folding.unwrapped(value))


class _Reader:
    """Walks one function, statement by statement, as the compiler's front end would."""

    def __init__(self, function: Any, env: dict[str, Value], found: Tiles, depth: int = 0) -> None:
        self._function, self._env, self._found, self._depth = function, env, found, depth
        self._scope = function.get_capture_scope()
        self._loops = 0
        self._returned = NOTHING
        self._uses = {name: _Uses() for name in env}

    def read(self) -> Value:
        """What it returns."""
        self._block(self._function.parse().body[0].body)
        return self._returned

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self._assigned(node)
            case ast.For(target=target, iter=over, body=body):
                self.of(over)
                self._bind(target, Value(()))
                self._looped(body)
            case ast.While(test=test, body=body):
                self.of(test)
                self._looped(body)
            case ast.If(test=test, body=body, orelse=orelse):
                chosen = self.of(test).constant
                self._block([*body, *orelse] if chosen is UNKNOWN else body if chosen else orelse)
            case ast.Return(value=ast.expr() as value):
                self._returned = self.of(value)
            case ast.Expr(value=value):
                self.of(value)
            case ast.With(body=body):
                self._block(body)

    def _assigned(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        if isinstance(node, ast.AugAssign):
            self._bind(node.target, self._joined(node.op, self.of(node.target), self.of(node.value)))
        elif node.value is not None:
            found = self.of(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._bind(target, found)

    def _looped(self, body: Sequence[ast.stmt]) -> None:
        self._loops += 1
        self._block(body)
        self._loops -= 1

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._env[target.id], self._uses[target.id] = value, _Uses()
        elif isinstance(target, ast.Tuple):
            parts = value.parts if len(value.parts) == len(target.elts) else (NOTHING,) * len(target.elts)
            for one, part in zip(target.elts, parts, strict=True):
                self._bind(one, part)

    def of(self, node: ast.expr) -> Value:
        """What is known of an expression."""
        rules: dict[type[ast.expr], Callable[[Any], Value]] = {
            ast.Constant: lambda it: Value((), constant=it.value), ast.Name: self._name, ast.Call: self._called,
            ast.Tuple: self._several, ast.List: self._several, ast.Compare: self._compared, ast.IfExp: self._either,
            ast.Attribute: lambda it: self._attribute(self.of(it.value), it.attr),
            ast.Subscript: lambda it: self._indexed(self.of(it.value), it.slice),
            ast.BinOp: lambda it: self._joined(it.op, self.of(it.left), self.of(it.right)),
            ast.UnaryOp: self._turned, ast.BoolOp: self._both,
        }  # fmt: skip
        rule = rules.get(type(node))
        return NOTHING if rule is None else rule(node)

    def _name(self, node: ast.Name) -> Value:
        if node.id in self._env:
            self._used(node.id, reads=1)
            return self._env[node.id]
        return Value((), constant=folding.unwrapped(self._scope.get(node.id, folding.builtin(node.id))))

    def _used(self, name: str, *, reads: int = 0, reduced: bool = False) -> None:
        """A block that is reduced and read besides must be whole at once; one that is only summed up need not."""
        uses, value = self._uses[name], self._env[name]
        uses.reads, uses.reduced = uses.reads + reads, uses.reduced or reduced
        if uses.reads > 1 and uses.reduced and value.shape is not None:
            self._found.held_bits = max(self._found.held_bits, prod(value.shape) * (value.bits or 32))

    def _several(self, node: ast.Tuple | ast.List) -> Value:
        parts = tuple(map(self.of, node.elts))
        known = tuple(part.constant for part in parts)
        return Value(None, constant=UNKNOWN if any(one is UNKNOWN for one in known) else known, parts=parts)

    def _turned(self, node: ast.UnaryOp) -> Value:
        value = self.of(node.operand)
        return replace(value, constant=folding.unary(node.op, value.constant), origin=Origin.COMPUTED)

    def _compared(self, node: ast.Compare) -> Value:
        joined = self._joined(node.ops[0], self.of(node.left), self.of(node.comparators[0]))
        return replace(joined, bits=1, pointer=False, constant=joined.constant if len(node.ops) == 1 else UNKNOWN)

    def _both(self, node: ast.BoolOp) -> Value:
        return Value((), 1, folding.boolean(node.op, [self.of(value).constant for value in node.values]))

    def _either(self, node: ast.IfExp) -> Value:
        chosen = self.of(node.test).constant
        return self.of(node.body if chosen is UNKNOWN or chosen else node.orelse)

    def _attribute(self, base: Value, name: str) -> Value:
        if base.constant is not UNKNOWN:
            return Value((), constant=folding.unwrapped(getattr(base.constant, name, UNKNOWN)))
        if name == "T" and base.shape is not None:
            return replace(base, shape=base.shape[::-1])
        if name == "shape" and base.shape is not None:
            return Value(None, constant=base.shape, parts=tuple(Value((), 32, size) for size in base.shape))
        return replace(base, constant=UNKNOWN) if name == "dtype" else NOTHING

    def _indexed(self, base: Value, index: ast.expr) -> Value:
        """`x[:, None]` and its like; `sizes[0]`."""
        steps = index.elts if isinstance(index, ast.Tuple) else [index]
        if base.parts:
            at = self.of(index).constant
            return base.parts[at] if isinstance(at, int) and -len(base.parts) <= at < len(base.parts) else NOTHING
        if base.shape is None:
            return replace(base, constant=UNKNOWN)
        sizes, shape = iter(base.shape), []
        for step in steps:
            shape.append(1 if isinstance(step, ast.Constant) and step.value is None else next(sizes, 1))
        return replace(base, shape=(*shape, *sizes))

    def _joined(self, op: ast.AST, left: Value, right: Value) -> Value:
        """Two values under an operator: shapes spread over each other, as Triton does it."""
        constant = folding.binary(op, left.constant, right.constant)
        pointer = left.pointer or right.pointer
        sides = [side for side in (left, right) if side.bits and (not pointer or side.pointer)]
        bits = max((side.bits or 0 for side in sides), default=None)
        return Value(folding.spread(left.shape, right.shape), bits, constant, pointer)

    def _called(self, node: ast.Call) -> Value:
        args = [self.of(arg) for arg in node.args]
        named = {word.arg: self.of(word.value) for word in node.keywords if word.arg}
        if isinstance(node.func, ast.Attribute):
            base = self.of(node.func.value)
            if node.func.attr in _REDUCING:
                for one in [node.func.value, *node.args[:1]]:
                    if isinstance(one, ast.Name) and one.id in self._env:
                        self._used(one.id, reduced=True)
            if base.constant is UNKNOWN:
                return self._method(node.func.attr, base, args, named)
        function = self.of(node.func).constant
        name = getattr(function, "__name__", "")
        if folding.is_triton(function):
            return self._dotted(node, args, named) if name == "dot" else self._builtin(name, args, named)
        if hasattr(function, "parse") and self._depth < DEEPEST:
            inner = {**dict(zip(function.arg_names, args, strict=False)), **named}
            env = {arg: inner.get(arg, _default(function, arg)) for arg in function.arg_names}
            reader = _Reader(function, env, self._found, self._depth + 1)
            reader._loops = self._loops
            return reader.read()
        known = [arg.constant for arg in args]
        return Value((), constant=folding.called(function, known))

    def _method(self, name: str, base: Value, args: list[Value], named: dict[str, Value]) -> Value:
        if name == "to":
            return self._cast(base, args[0] if args else named.get("dtype", NOTHING))
        if name in ("load", "gather"):  # of a tensor descriptor
            return self._loaded(base)
        return self._builtin(name, [base, *args], named)

    def _builtin(self, name: str, args: list[Value], named: dict[str, Value]) -> Value:
        rule: Callable[[list[Value], dict[str, Value]], Value] | None = {
            "arange": self._arange, "make_block_ptr": self._block_of, "make_tensor_descriptor": self._block_of,
            "reshape": self._reshaped, "view": self._reshaped, "broadcast_to": self._reshaped,
            "expand_dims": self._expanded,
        }.get(name)  # fmt: skip
        if rule is not None:
            return rule(args, named)
        if name in _SHAPED:
            dtype = named.get("dtype", args[-1] if args else NOTHING)
            return Value(folding.shape(_first(args, named, "shape").constant), folding.bits_of(dtype.constant) or 32)
        if name == "load":
            return self._loaded(args[0])
        if name in ("trans", "permute") and args[0].shape is not None:
            return replace(args[0], shape=args[0].shape[::-1])
        if name in _SAME:
            return self._cast(args[0], args[1]) if name == "cast" and len(args) > 1 else args[0]
        if name in _REDUCING:
            return self._reduced(args, named)
        if name in _SCALAR:
            return Value((), 32, folding.arithmetic(name, [arg.constant for arg in args]))
        shape: tuple[int, ...] | None = ()
        for arg in [*args, *named.values()]:
            shape = folding.spread(shape, arg.shape)
        return Value(shape, max((arg.bits or 0 for arg in args), default=None))

    def _arange(self, args: list[Value], named: dict[str, Value]) -> Value:
        ends = [_first(args, named, "start").constant, _first(args[1:], named, "end").constant]
        return Value((ends[1] - ends[0],) if all(isinstance(end, int) for end in ends) else None, 32)

    def _block_of(self, args: list[Value], named: dict[str, Value]) -> Value:
        """A pointer to a whole block."""
        said = named.get("block_shape", args[4] if len(args) > 4 else args[-1])
        return replace(args[0] if args else named["base"], shape=folding.shape(said.constant), pointer=True)

    def _loaded(self, at: Value) -> Value:
        return Value(at.shape, at.bits, origin=Origin.STREAMED if self._loops else Origin.LOADED)

    def _cast(self, value: Value, dtype: Value) -> Value:
        bits = folding.bits_of(dtype.constant) or dtype.bits or value.bits
        same = bits == value.bits
        return replace(value, bits=bits, constant=UNKNOWN, origin=value.origin if same else Origin.COMPUTED)

    def _reshaped(self, args: list[Value], named: dict[str, Value]) -> Value:
        rest = args[1:] or [named.get("shape", NOTHING)]
        said = rest[0].constant if len(rest) == 1 else tuple(arg.constant for arg in rest)
        return replace(args[0], shape=folding.shape(said))

    def _expanded(self, args: list[Value], named: dict[str, Value]) -> Value:
        axis, shape = _first(args[1:], named, "axis").constant, args[0].shape
        if shape is None or not isinstance(axis, int):
            return replace(args[0], shape=None)
        at = axis % (len(shape) + 1)
        return replace(args[0], shape=(*shape[:at], 1, *shape[at:]))

    def _reduced(self, args: list[Value], named: dict[str, Value]) -> Value:
        value = args[0] if args else NOTHING
        if value.shape is None:
            return NOTHING
        axis = _first(args[1:], named, "axis").constant
        if not isinstance(axis, int) or not value.shape:
            return Value((), value.bits)
        at = axis % len(value.shape)
        return Value((*value.shape[:at], *value.shape[at + 1 :]), value.bits)

    def _dotted(self, node: ast.Call, args: list[Value], named: dict[str, Value]) -> Value:
        left, right = _first(args, named, "input"), _first(args[1:], named, "other")
        if left.shape is None or right.shape is None or len(left.shape) < 2 or len(right.shape) < 2:
            self._found.unread.append("a tl.dot of blocks whose shapes the source does not tell")
            return NOTHING
        (m, k), n, batch = left.shape[-2:], right.shape[-1], prod(left.shape[:-2])
        bits = folding.bits_of(named.get("out_dtype", NOTHING).constant) or 32
        sides = [Operand(prod(side.shape or ()), side.bits or 16, side.origin) for side in (left, right)]
        adds = [word.value for word in node.keywords if word.arg == "acc"] + node.args[2:3]
        carried = f"{self._function.__name__}.{ast.unparse(adds[0])}" if adds and self._loops else ""
        self._found.dots.append(Dot(m * batch, n, k, sides[0], sides[1], bits, carried))
        return Value((*left.shape[:-1], n), bits)


@dataclass
class _Uses:
    """How a name is used while it stands for one value."""

    reads: int = 0
    reduced: bool = False


def _first(args: Sequence[Value], named: Mapping[str, Value], name: str) -> Value:
    return args[0] if args else named.get(name, NOTHING)


def _default(function: Any, name: str) -> Value:
    said = function.signature.parameters[name].default
    return Value(()) if said is function.signature.empty else Value((), constant=folding.unwrapped(said))
