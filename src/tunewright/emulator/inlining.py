"""Replaces calls of functions by their bodies, each with registers, labels and local variables of its own.

Arguments and results go through local variables, as `st.param` and `ld.param` around a call say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.ptx_text import Instruction, PtxKernel, PtxParameter, Variable

_NAME = re.compile(r"%?[A-Za-z_$][\w$]*(?:@\w+)*")
_END = "@end"

MAX_INSTRUCTIONS = 200_000
"""Instructions after which a kernel is refused: functions that call each other many times over."""


def inline_calls(kernel: PtxKernel, functions: Mapping[str, PtxKernel]) -> PtxKernel:
    """Returns a kernel without calls of `functions`; the kernel itself if it has none."""
    return _inline(kernel, functions, ())


def _inline(code: PtxKernel, functions: Mapping[str, PtxKernel], callers: tuple[str, ...]) -> PtxKernel:
    if not any(_callee(item) in functions for item in code.instructions):
        return code
    return _Inliner(code, functions, (*callers, code.name)).run()


def _callee(item: Instruction) -> str:
    """Returns the name of the function that an instruction calls; empty if it calls none by name."""
    if item.opcode != "call":
        return ""
    return next((operand for operand in item.operands if not operand.startswith("(")), "")


class _Inliner:
    """Copies the instructions of one kernel or function, with bodies in place of calls."""

    def __init__(self, code: PtxKernel, functions: Mapping[str, PtxKernel], callers: tuple[str, ...]) -> None:
        self._code, self._functions, self._callers = code, functions, callers
        self._made = PtxKernel(
            code.name, code.parameters, registers=dict(code.registers), variables=list(code.variables),
            threads=code.threads, results=code.results,
        )  # fmt: skip
        self._count = 0
        self._scope = max((scope for item in code.instructions for scope in item.scopes), default=0)

    def run(self) -> PtxKernel:
        """Returns the copy."""
        moved: list[int] = []
        names = self._names_of_calls()
        for at, item in enumerate(self._code.instructions):
            moved.append(len(self._made.instructions))
            if _callee(item) in self._functions:
                self._add_body(item, at)
            else:
                self._made.instructions.append(_renamed(item, names.get(item.scopes, {}), item.scopes))
            if len(self._made.instructions) > MAX_INSTRUCTIONS:
                raise UnsupportedInstruction(item.place, "calls that are too many instructions in place")
        moved.append(len(self._made.instructions))
        self._made.labels |= {label: moved[at] for label, at in self._code.labels.items()}
        return self._made

    def _names_of_calls(self) -> dict[tuple[int, ...], dict[str, str]]:
        """Returns the variable of each argument and result, by the braces in which they are passed."""
        found: dict[tuple[int, ...], dict[str, str]] = {}
        for at, item in enumerate(self._code.instructions):
            if (function := self._functions.get(_callee(item))) is None:
                continue
            if item.scopes in found:
                raise UnsupportedInstruction(item.place, "several calls in the same braces")
            given, results = _passed(item)
            if len(given) != len(function.parameters) or len(results) != len(function.results):
                raise UnsupportedInstruction(item.place, "a call with another number of arguments")
            pairs = [*zip(given, function.parameters, strict=True), *zip(results, function.results, strict=True)]
            found[item.scopes] = {name: _variable(at, own) for name, own in pairs}
        return found

    def _add_body(self, call: Instruction, at: int) -> None:
        name = _callee(call)
        if name in self._callers:
            raise UnsupportedInstruction(call.place, f"{name} calls itself")
        function = _inline(self._functions[name], self._functions, self._callers)
        mark = f"@c{at}"
        passed = [*function.parameters, *function.results]
        names = {register: register + mark for register in function.registers}
        names |= {own.name: _variable(at, own) for own in passed}
        self._made.registers |= {names[register]: kind for register, kind in function.registers.items()}
        self._made.variables += [Variable(_variable(at, own), "local", 16, own.size) for own in passed]
        for variable in function.variables:
            if variable.space == "local":
                names[variable.name] = f"call{at}_{variable.name}"
                self._made.variables.append(replace(variable, name=names[variable.name]))
            elif variable not in self._made.variables:
                self._made.variables.append(variable)
        self._copy(call, function, names)

    def _copy(self, call: Instruction, function: PtxKernel, names: Mapping[str, str]) -> None:
        base = self._scope + 1
        self._scope = base + max((scope for item in function.instructions for scope in item.scopes), default=0)
        outer = (*call.scopes, base)
        if call.guard:
            guard = call.guard[1:] if call.guard.startswith("!") else f"!{call.guard}"
            self._made.instructions.append(Instruction("bra", (), (_END,), guard, call.place, outer))
        start = len(self._made.instructions)
        for item in function.instructions:
            scopes = (*call.scopes, *(base + scope for scope in item.scopes))
            copy = _renamed(item, names, scopes)
            if item.opcode == "ret":
                copy = replace(copy, opcode="bra", modifiers=(), operands=(_END,))
            self._made.instructions.append(copy)
        for (scope, label), at in function.labels.items():
            self._made.labels[base + scope, label] = start + at
        self._made.labels[base, _END] = len(self._made.instructions)


def _passes(item: Instruction, names: Mapping[str, str]) -> bool:
    """Whether an `ld.param` or `st.param` is of an argument or a result of a call."""
    address = item.operands[0 if item.opcode == "st" else 1]
    found = _NAME.search(address)
    return found is not None and found[0] in names


def _variable(at: int, own: PtxParameter) -> str:
    return f"call{at}_{own.name}"


def _passed(call: Instruction) -> tuple[list[str], list[str]]:
    """Returns the names of arguments and of results of a call."""
    callee = next(at for at, operand in enumerate(call.operands) if not operand.startswith("("))
    lists = [[word.strip() for word in operand.strip("() ").split(",") if word.strip()] for operand in call.operands]
    return (lists[callee + 1] if len(lists) > callee + 1 else []), (lists[0] if callee else [])


def _renamed(item: Instruction, names: Mapping[str, str], scopes: tuple[int, ...]) -> Instruction:
    """Returns an instruction with other names; one that passes an argument or a result accesses local memory."""
    if not names:
        return item if scopes == item.scopes else replace(item, scopes=scopes)

    def rename(text: str) -> str:
        return _NAME.sub(lambda found: names.get(found[0], found[0]), text)

    operands = tuple(map(rename, item.operands))
    modifiers = item.modifiers
    if item.opcode in ("ld", "st") and item.has("param") and _passes(item, names):
        modifiers = ("local", *modifiers)
    return replace(item, operands=operands, guard=rename(item.guard), modifiers=modifiers, scopes=scopes)
