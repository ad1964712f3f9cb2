"""The table of instructions: for each opcode a function that makes one instruction executable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tunewright.emulator.operands import Operands, Step
from tunewright.emulator.ptx_text import Instruction

if TYPE_CHECKING:
    from tunewright.emulator.group import Group

Builder = Callable[[Operands, Instruction], Step]

BUILDERS: dict[str, Builder] = {}
"""Filled by the modules that define instructions."""

LOCATED: set[str] = set()
"""Opcodes that can fault or are counted: the group notes where it is before they run."""


def builds(*opcodes: str, located: bool = False) -> Callable[[Builder], Builder]:
    """Registers a function for opcodes."""

    def register(builder: Builder) -> Builder:
        BUILDERS.update(dict.fromkeys(opcodes, builder))
        if located:
            LOCATED.update(opcodes)
        return builder

    return register


def nothing(group: Group) -> None:
    """Does nothing."""
