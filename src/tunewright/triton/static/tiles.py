"""Reads the tiles of a kernel from its source by abstract interpretation; nothing is run or compiled."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod
from typing import Any

from tunewright.triton.static import constant_folding as folding
from tunewright.triton.static.constant_folding import UNKNOWN

MAX_CALL_DEPTH = 8
"""Nested calls of JIT functions that are followed."""

_REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "softmax", "cumsum", "sort"})
_SCALAR_FUNCTIONS = frozenset({"program_id", "num_programs", "cdiv", "multiple_of", "max_contiguous", "assume"})
_ALLOCATIONS = frozenset({"zeros", "full"})
_SHAPE_PRESERVING = frozenset({"advance", "cast", "zeros_like"})


class Origin(StrEnum):
    """Where a block comes from."""

    COMPUTED = "computed"
    LOADED = "loaded"
    STREAMED = "streamed"  # loaded in every iteration of a loop


@dataclass(frozen=True)
class AbstractValue:
    """What is known of a value in a kernel: shape, bits of an element (also of what it points to), constant."""

    shape: tuple[int, ...] | None = None
    bits: int | None = None
    constant: Any = UNKNOWN
    pointer: bool = False
    origin: Origin = Origin.COMPUTED
    parts: tuple[AbstractValue, ...] = ()


UNKNOWN_VALUE = AbstractValue()


@dataclass(frozen=True)
class Operand:
    """One operand of a dot: elements, bits of each, and where it comes from."""

    elements: int
    bits: int
    origin: Origin


@dataclass(frozen=True)
class Dot:
    """A product of two blocks: its sizes and operands.

    `carried` names the accumulator that a loop carries; such accumulators are live at the same time.
    """

    m: int
    n: int
    k: int
    left: Operand
    right: Operand
    bits: int = 32
    carried: str = ""


@dataclass
class KernelTiles:
    """The dots of a kernel, its largest block that must be whole at once, and what could not be read."""

    dots: list[Dot] = field(default_factory=list)
    held_bits: int = 0
    unread: list[str] = field(default_factory=list)


def read_tiles(function: Any, arguments: Mapping[str, Any]) -> KernelTiles:
    """Returns the tiles of a JIT function for arguments by name: numbers, or tensors, of which the dtype counts."""
    tiles = KernelTiles()
    values = {name: _argument(value) for name, value in arguments.items()}
    _AbstractInterpreter(
        function, {name: values.get(name, AbstractValue(())) for name in function.arg_names}, tiles
    ).read()
    return tiles


def _argument(value: Any) -> AbstractValue:
    if hasattr(value, "data_ptr"):
        return AbstractValue((), folding.bits_of(value.dtype), pointer=True)
    return AbstractValue((), 32 if isinstance(value, int | float) else None, folding.unwrap_constexpr(value))


class _AbstractInterpreter:
    """Interprets one function, statement by statement, as the compiler's front end would."""

    def __init__(self, function: Any, env: dict[str, AbstractValue], tiles: KernelTiles, depth: int = 0) -> None:
        self._function, self._env, self._tiles, self._depth = function, env, tiles, depth
        self._scope = function.get_capture_scope()
        self._loops = 0
        self._result = UNKNOWN_VALUE
        self._uses = {name: _NameUses() for name in env}

    def read(self) -> AbstractValue:
        """Interprets the body, and returns what is known of its result."""
        self._execute_all(self._function.parse().body[0].body)
        return self._result

    def _execute_all(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._execute(statement)

    def _execute(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self._assign(node)
            case ast.For(target=target, iter=over, body=body):
                self.evaluate(over)
                self._bind(target, AbstractValue(()))
                self._loop_body(body)
            case ast.While(test=test, body=body):
                self.evaluate(test)
                self._loop_body(body)
            case ast.If(test=test, body=body, orelse=orelse):
                chosen = self.evaluate(test).constant
                self._execute_all([*body, *orelse] if chosen is UNKNOWN else body if chosen else orelse)
            case ast.Return(value=ast.expr() as value):
                self._result = self.evaluate(value)
            case ast.Expr(value=value):
                self.evaluate(value)
            case ast.With(body=body):
                self._execute_all(body)

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        if isinstance(node, ast.AugAssign):
            self._bind(node.target, self._combine(node.op, self.evaluate(node.target), self.evaluate(node.value)))
        elif node.value is not None:
            value = self.evaluate(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._bind(target, value)

    def _loop_body(self, body: Sequence[ast.stmt]) -> None:
        self._loops += 1
        self._execute_all(body)
        self._loops -= 1

    def _bind(self, target: ast.expr, value: AbstractValue) -> None:
        if isinstance(target, ast.Name):
            self._env[target.id], self._uses[target.id] = value, _NameUses()
        elif isinstance(target, ast.Tuple):
            parts = value.parts if len(value.parts) == len(target.elts) else (UNKNOWN_VALUE,) * len(target.elts)
            for item, part in zip(target.elts, parts, strict=True):
                self._bind(item, part)

    def evaluate(self, node: ast.expr) -> AbstractValue:
        """Returns what is known of an expression."""
        rules: dict[type[ast.expr], Callable[[Any], AbstractValue]] = {
            ast.Constant: lambda node: AbstractValue((), constant=node.value),
            ast.Name: self._evaluate_name, ast.Call: self._evaluate_call, ast.Compare: self._evaluate_compare,
            ast.Tuple: self._evaluate_sequence, ast.List: self._evaluate_sequence,
            ast.IfExp: self._evaluate_conditional,
            ast.Attribute: lambda node: self._evaluate_attribute(self.evaluate(node.value), node.attr),
            ast.Subscript: lambda node: self._evaluate_subscript(self.evaluate(node.value), node.slice),
            ast.BinOp: lambda node: self._combine(node.op, self.evaluate(node.left), self.evaluate(node.right)),
            ast.UnaryOp: self._evaluate_unary, ast.BoolOp: self._evaluate_bool,
        }  # fmt: skip
        rule = rules.get(type(node))
        return UNKNOWN_VALUE if rule is None else rule(node)

    def _evaluate_name(self, node: ast.Name) -> AbstractValue:
        if node.id in self._env:
            self._note_use(node.id, reads=1)
            return self._env[node.id]
        return AbstractValue((), constant=folding.unwrap_constexpr(self._scope.get(node.id, folding.builtin(node.id))))

    def _note_use(self, name: str, *, reads: int = 0, reduced: bool = False) -> None:
        """Notes a use: a block that is reduced and also read must be whole at once, one only reduced need not."""
        uses, value = self._uses[name], self._env[name]
        uses.reads, uses.reduced = uses.reads + reads, uses.reduced or reduced
        if uses.reads > 1 and uses.reduced and value.shape is not None:
            self._tiles.held_bits = max(self._tiles.held_bits, prod(value.shape) * (value.bits or 32))

    def _evaluate_sequence(self, node: ast.Tuple | ast.List) -> AbstractValue:
        parts = tuple(map(self.evaluate, node.elts))
        constants = tuple(part.constant for part in parts)
        return AbstractValue(
            None, constant=UNKNOWN if any(constant is UNKNOWN for constant in constants) else constants, parts=parts
        )

    def _evaluate_unary(self, node: ast.UnaryOp) -> AbstractValue:
        value = self.evaluate(node.operand)
        return replace(value, constant=folding.unary(node.op, value.constant), origin=Origin.COMPUTED)

    def _evaluate_compare(self, node: ast.Compare) -> AbstractValue:
        combined = self._combine(node.ops[0], self.evaluate(node.left), self.evaluate(node.comparators[0]))
        return replace(combined, bits=1, pointer=False, constant=combined.constant if len(node.ops) == 1 else UNKNOWN)

    def _evaluate_bool(self, node: ast.BoolOp) -> AbstractValue:
        return AbstractValue((), 1, folding.boolean(node.op, [self.evaluate(value).constant for value in node.values]))

    def _evaluate_conditional(self, node: ast.IfExp) -> AbstractValue:
        chosen = self.evaluate(node.test).constant
        return self.evaluate(node.body if chosen is UNKNOWN or chosen else node.orelse)

    def _evaluate_attribute(self, base: AbstractValue, name: str) -> AbstractValue:
        if base.constant is not UNKNOWN:
            return AbstractValue((), constant=folding.unwrap_constexpr(getattr(base.constant, name, UNKNOWN)))
        if name == "T" and base.shape is not None:
            return replace(base, shape=base.shape[::-1])
        if name == "shape" and base.shape is not None:
            return AbstractValue(
                None, constant=base.shape, parts=tuple(AbstractValue((), 32, size) for size in base.shape)
            )
        return replace(base, constant=UNKNOWN) if name == "dtype" else UNKNOWN_VALUE

    def _evaluate_subscript(self, base: AbstractValue, index: ast.expr) -> AbstractValue:
        """Evaluates `x[:, None]` and `sizes[0]`."""
        steps = index.elts if isinstance(index, ast.Tuple) else [index]
        if base.parts:
            position = self.evaluate(index).constant
            is_valid = isinstance(position, int) and -len(base.parts) <= position < len(base.parts)
            return base.parts[position] if is_valid else UNKNOWN_VALUE
        if base.shape is None:
            return replace(base, constant=UNKNOWN)
        sizes, shape = iter(base.shape), []
        for step in steps:
            shape.append(1 if isinstance(step, ast.Constant) and step.value is None else next(sizes, 1))
        return replace(base, shape=(*shape, *sizes))

    def _combine(self, op: ast.AST, left: AbstractValue, right: AbstractValue) -> AbstractValue:
        """Combines two values by an operator; shapes are broadcast."""
        constant = folding.binary(op, left.constant, right.constant)
        pointer = left.pointer or right.pointer
        sides = [side for side in (left, right) if side.bits and (not pointer or side.pointer)]
        bits = max((side.bits or 0 for side in sides), default=None)
        return AbstractValue(folding.broadcast(left.shape, right.shape), bits, constant, pointer)

    def _evaluate_call(self, node: ast.Call) -> AbstractValue:
        args = [self.evaluate(arg) for arg in node.args]
        kwargs = {word.arg: self.evaluate(word.value) for word in node.keywords if word.arg}
        if isinstance(node.func, ast.Attribute):
            base = self.evaluate(node.func.value)
            if node.func.attr in _REDUCTIONS:
                for item in [node.func.value, *node.args[:1]]:
                    if isinstance(item, ast.Name) and item.id in self._env:
                        self._note_use(item.id, reduced=True)
            if base.constant is UNKNOWN:
                return self._call_method(node.func.attr, base, args, kwargs)
        function = self.evaluate(node.func).constant
        name = getattr(function, "__name__", "")
        if folding.is_triton(function):
            return self._dot(node, args, kwargs) if name == "dot" else self._call_builtin(name, args, kwargs)
        if hasattr(function, "parse") and self._depth < MAX_CALL_DEPTH:
            bound = {**dict(zip(function.arg_names, args, strict=False)), **kwargs}
            env = {arg: bound.get(arg, _default_value(function, arg)) for arg in function.arg_names}
            interpreter = _AbstractInterpreter(function, env, self._tiles, self._depth + 1)
            interpreter._loops = self._loops
            return interpreter.read()
        constants = [arg.constant for arg in args]
        return AbstractValue((), constant=folding.call(function, constants))

    def _call_method(
        self, name: str, base: AbstractValue, args: list[AbstractValue], kwargs: dict[str, AbstractValue]
    ) -> AbstractValue:
        if name == "to":
            return self._cast(base, args[0] if args else kwargs.get("dtype", UNKNOWN_VALUE))
        if name in ("load", "gather"):  # of a tensor descriptor
            return self._load(base)
        return self._call_builtin(name, [base, *args], kwargs)

    def _call_builtin(self, name: str, args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> AbstractValue:
        rule: Callable[[list[AbstractValue], dict[str, AbstractValue]], AbstractValue] | None = {
            "arange": self._arange, "expand_dims": self._expand_dims,
            "make_block_ptr": self._block_pointer, "make_tensor_descriptor": self._block_pointer,
            "reshape": self._reshape, "view": self._reshape, "broadcast_to": self._reshape,
        }.get(name)  # fmt: skip
        if rule is not None:
            return rule(args, kwargs)
        if name in _ALLOCATIONS:
            dtype = kwargs.get("dtype", args[-1] if args else UNKNOWN_VALUE)
            return AbstractValue(
                folding.shape(_first_argument(args, kwargs, "shape").constant),
                folding.bits_of(dtype.constant) or 32,
            )
        if name == "load":
            return self._load(args[0])
        if name in ("trans", "permute") and args[0].shape is not None:
            return replace(args[0], shape=args[0].shape[::-1])
        if name in _SHAPE_PRESERVING:
            return self._cast(args[0], args[1]) if name == "cast" and len(args) > 1 else args[0]
        if name in _REDUCTIONS:
            return self._reduce(args, kwargs)
        if name in _SCALAR_FUNCTIONS:
            return AbstractValue((), 32, folding.arithmetic(name, [arg.constant for arg in args]))
        shape: tuple[int, ...] | None = ()
        for arg in [*args, *kwargs.values()]:
            shape = folding.broadcast(shape, arg.shape)
        return AbstractValue(shape, max((arg.bits or 0 for arg in args), default=None))

    def _arange(self, args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> AbstractValue:
        ends = [_first_argument(args, kwargs, "start").constant, _first_argument(args[1:], kwargs, "end").constant]
        return AbstractValue((ends[1] - ends[0],) if all(isinstance(end, int) for end in ends) else None, 32)

    def _block_pointer(self, args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> AbstractValue:
        """Returns a pointer to a whole block."""
        block_shape = kwargs.get("block_shape", args[4] if len(args) > 4 else args[-1])
        return replace(args[0] if args else kwargs["base"], shape=folding.shape(block_shape.constant), pointer=True)

    def _load(self, pointer: AbstractValue) -> AbstractValue:
        return AbstractValue(pointer.shape, pointer.bits, origin=Origin.STREAMED if self._loops else Origin.LOADED)

    def _cast(self, value: AbstractValue, dtype: AbstractValue) -> AbstractValue:
        bits = folding.bits_of(dtype.constant) or dtype.bits or value.bits
        same = bits == value.bits
        return replace(value, bits=bits, constant=UNKNOWN, origin=value.origin if same else Origin.COMPUTED)

    def _reshape(self, args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> AbstractValue:
        rest = args[1:] or [kwargs.get("shape", UNKNOWN_VALUE)]
        shape = rest[0].constant if len(rest) == 1 else tuple(arg.constant for arg in rest)
        return replace(args[0], shape=folding.shape(shape))

    def _expand_dims(self, args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> AbstractValue:
        axis, shape = _first_argument(args[1:], kwargs, "axis").constant, args[0].shape
        if shape is None or not isinstance(axis, int):
            return replace(args[0], shape=None)
        position = axis % (len(shape) + 1)
        return replace(args[0], shape=(*shape[:position], 1, *shape[position:]))

    def _reduce(self, args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> AbstractValue:
        value = args[0] if args else UNKNOWN_VALUE
        if value.shape is None:
            return UNKNOWN_VALUE
        axis = _first_argument(args[1:], kwargs, "axis").constant
        if not isinstance(axis, int) or not value.shape:
            return AbstractValue((), value.bits)
        position = axis % len(value.shape)
        return AbstractValue((*value.shape[:position], *value.shape[position + 1 :]), value.bits)

    def _dot(self, node: ast.Call, args: list[AbstractValue], kwargs: dict[str, AbstractValue]) -> AbstractValue:
        left, right = _first_argument(args, kwargs, "input"), _first_argument(args[1:], kwargs, "other")
        if left.shape is None or right.shape is None or len(left.shape) < 2 or len(right.shape) < 2:
            self._tiles.unread.append("a tl.dot of blocks of unknown shape")
            return UNKNOWN_VALUE
        (m, k), n, batch = left.shape[-2:], right.shape[-1], prod(left.shape[:-2])
        bits = folding.bits_of(kwargs.get("out_dtype", UNKNOWN_VALUE).constant) or 32
        operands = [Operand(prod(operand.shape or ()), operand.bits or 16, operand.origin) for operand in (left, right)]
        accumulator = [word.value for word in node.keywords if word.arg == "acc"] + node.args[2:3]
        carried = f"{self._function.__name__}.{ast.unparse(accumulator[0])}" if accumulator and self._loops else ""
        self._tiles.dots.append(Dot(m * batch, n, k, operands[0], operands[1], bits, carried))
        return AbstractValue((*left.shape[:-1], n), bits)


@dataclass
class _NameUses:
    """How a name is used between two assignments."""

    reads: int = 0
    reduced: bool = False


def _first_argument(args: Sequence[AbstractValue], kwargs: Mapping[str, AbstractValue], name: str) -> AbstractValue:
    return args[0] if args else kwargs.get(name, UNKNOWN_VALUE)


def _default_value(function: Any, name: str) -> AbstractValue:
    default = function.signature.parameters[name].default
    return (
        AbstractValue(())
        if default is function.signature.empty
        else AbstractValue((), constant=folding.unwrap_constexpr(default))
    )
