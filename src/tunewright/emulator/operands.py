"""Operands of instructions as functions that read and write the registers of a group of warps."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tunewright.emulator import types
from tunewright.emulator.faults import UnsupportedInstruction
from tunewright.emulator.ptx_text import Instruction, PtxKernel
from tunewright.emulator.types import Array

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

Reader = Callable[["Group"], Array]
Writer = Callable[["Group", Array], None]
Scatter = Callable[["Group", "Array | None", Array], None]
Step = Callable[["Group"], None]

_INTEGER = re.compile(r"-?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")
_HEX_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")
_DECIMAL = re.compile(r"-?\d+\.\d*(e[+-]?\d+)?")
_ADDRESS = re.compile(r"\[\s*([%\w$@.]+)\s*(?:([+-])\s*(-?\w+))?\s*\]")


class Operands:
    """The operands of one kernel: which register has which number, and where variables and parameters are."""

    def __init__(self, kernel: PtxKernel, symbols: Mapping[str, int], parameters: Mapping[str, bytes]) -> None:
        self.names = list(kernel.registers)
        self.kinds = [kernel.registers[name] for name in self.names]
        self.number = {name: number for number, name in enumerate(self.names)}
        self.symbols, self.parameters = symbols, parameters

    def read(self, instruction: Instruction, text: str, kind: str) -> Reader:
        """Returns a function that reads an operand as a type."""
        if text.startswith("!"):
            inner = self.read(instruction, text[1:], kind)
            return lambda group: ~inner(group)
        if text in self.number:
            return self._read_register(instruction, text, kind)
        if text.startswith("%"):
            return _read_special(text, kind)
        if text in self.symbols:
            return _constant(np.array([self.symbols[text]], np.uint64).astype(types.dtype(kind)))
        return _constant(self._literal(instruction, text, kind))

    def _read_register(self, instruction: Instruction, text: str, kind: str) -> Reader:
        number, wanted = self.number[text], types.dtype(kind)
        held = types.width(self.kinds[number])
        if (kind == "pred") != (self.kinds[number] == "pred") or types.width(kind) > held:
            raise UnsupportedInstruction(instruction.place, f"{text} is {self.kinds[number]}, read as {kind}")
        if kind == "pred":
            return lambda group: group.raw[number]
        if types.width(kind) == held:
            view = {"f": "floats", "i": "signed"}.get(np.dtype(wanted).kind)
            if view == "floats":
                return lambda group: group.floats[number]
            if view == "signed":
                return lambda group: group.signed[number]
            return lambda group: group.raw[number]
        narrow = types.UNSIGNED[types.width(kind)]
        return lambda group: group.raw[number].astype(narrow).view(wanted)

    def _literal(self, instruction: Instruction, text: str, kind: str) -> Array:
        wanted = types.dtype(kind)
        if found := _HEX_FLOAT.fullmatch(text):
            bits = bytes.fromhex(found[1] or found[2])[::-1]
            value = struct.unpack("<f" if found[1] else "<d", bits)[0]
            if not types.is_float(kind):
                return np.frombuffer(bits.ljust(8, b"\0"), np.uint64).astype(wanted)
            held: Array = np.frombuffer(bits, np.float32 if found[1] else np.float64)
            return held if held.dtype == wanted else np.array([value], wanted)
        if _DECIMAL.fullmatch(text):
            return np.array([float(text)], wanted)
        if kind == "pred":
            return np.array([text not in ("0", "false")])
        if not _INTEGER.fullmatch(text):
            raise UnsupportedInstruction(instruction.place, f"the operand {text}")
        number = int(text.rstrip("U"), 0)
        if types.is_float(kind) and kind != "f16":
            return np.array([number], wanted)
        size = types.width(kind)
        return np.array([number % (1 << (8 * size))], types.UNSIGNED[size]).view(wanted)

    def out(self, instruction: Instruction, text: str, kind: str) -> Reader | None:
        """Returns a function for the register itself as an output of that type, or None if it has another width."""
        number = self.number.get(text)
        if number is None or types.width(self.kinds[number]) != types.width(kind):
            return None
        return self._read_register(instruction, text, kind)

    def write(self, instruction: Instruction, text: str, kind: str) -> Writer:
        """Returns a function that writes a value of a type to a register; signed values are sign-extended."""
        if text == "_":
            return _write_nothing
        if text not in self.number:
            raise UnsupportedInstruction(instruction.place, f"the destination {text}")
        direct = self.out(instruction, text, kind)
        if direct is not None:
            wanted = types.dtype(kind)

            def assign(group: Group, value: Array) -> None:
                value = np.asarray(value)
                if value.dtype != wanted:
                    value = value.astype(wanted)
                np.copyto(direct(group), value, where=group.mask)

            return assign
        return self._write_wider(instruction, text, kind)

    def _write_wider(self, instruction: Instruction, text: str, kind: str) -> Writer:
        number, narrow = self.number[text], types.dtype(kind)
        size = types.width(self.kinds[number])
        if size < types.width(kind):
            raise UnsupportedInstruction(instruction.place, f"{text} is narrower than {kind}")
        raw = types.UNSIGNED[types.width(kind)]

        def assign(group: Group, value: Array) -> None:
            value = np.asarray(value).astype(narrow)
            if np.dtype(narrow).kind == "i":
                value = value.astype(types.SIGNED[size]).view(types.UNSIGNED[size])
            else:
                value = value.view(raw).astype(types.UNSIGNED[size])
            np.copyto(group.raw[number], value, where=group.mask)

        return assign

    def scatter(self, instruction: Instruction, text: str, kind: str) -> Scatter:
        """Returns a function that writes values of some lanes to a register; None means all lanes."""
        if text == "_":
            return _scatter_nothing
        write = self.write(instruction, text, kind)
        direct = self.out(instruction, text, f"b{8 * types.width(kind)}")

        def assign(group: Group, lanes: Array | None, value: Array) -> None:
            if lanes is None:
                write(group, value.view(types.dtype(kind)))
            elif direct is not None:
                direct(group)[lanes] = value
            else:
                spread = np.zeros(group.size, types.dtype(kind))
                spread[lanes] = value.view(types.dtype(kind))
                write(group, spread)

        return assign

    def vector(self, text: str) -> list[str]:
        """Returns the elements of `{a, b}`, or the only one."""
        return [word.strip() for word in text.strip("{} ").split(",")]

    def parameter(self, text: str, kind: str, count: int) -> Array | None:
        """Returns the values at an address of a parameter such as `[name+8]`; None if it is something else."""
        found = _ADDRESS.fullmatch(text)
        if found is None or found[1] not in self.parameters:
            return None
        at, size = int(found[3] or "0", 0), types.width(kind)
        return np.frombuffer(self.parameters[found[1]][at : at + count * size], types.UNSIGNED[size])

    def address(self, instruction: Instruction, text: str) -> tuple[Reader, int]:
        """Returns the base of an address as a function, and its offset."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise UnsupportedInstruction(instruction.place, f"the address {text}")
        base, sign, word = found.groups()
        offset = int(word, 0) * (-1 if sign == "-" else 1) if word else 0
        if base in self.number:
            kind = "u64" if types.width(self.kinds[self.number[base]]) == 8 else "u32"
            return self.read(instruction, base, kind), offset
        return self.read(instruction, base, "u64"), offset


def _constant(value: Array) -> Reader:
    return lambda group: value


def _read_special(text: str, kind: str) -> Reader:
    wanted = types.dtype(kind)

    def read(group: Group) -> Array:
        return group.special(text).astype(wanted)

    return read


def _write_nothing(group: Group, value: Array) -> None:
    """Drops a value that an instruction sends to `_`."""


def _scatter_nothing(group: Group, lanes: Array | None, value: Array) -> None:
    """Drops values that an instruction sends to `_`."""
