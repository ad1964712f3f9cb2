"""Texts of functions that copy the right operand of a product into panels for dot-product instructions."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.mlir.dot_blocks import BITS, GROUP_BITS, LANES, flattened, function_text


def interleaving(name: str, types: tuple[str, str], shape: Sequence[int], element: str) -> str:
    """Returns the function that copies [..., group, term, panel, column] into [..., panel, group, column, term].

    It writes one panel after the other, or two side by side, so that whole lines are read.
    """
    *around, panels, groups, width, terms = shape
    rank, size, abreast = len(around), width * terms, 2 - panels % 2
    flat, plain = flattened("b", types[1], shape, element)
    outside = "".join(f"%o{i}, " for i in range(rank))
    numbers = sorted({0, 1, abreast, panels, groups, *range(terms), *around})
    row = f"vector<{width}x{element}>"
    lines = [f"%n{number} = arith.constant {number} : index" for number in numbers]
    lines += [
        *flat,
        *(f"scf.for %o{i} = %n0 to %n{count} step %n1 {{" for i, count in enumerate(around)),
        f"scf.for %p0 = %n0 to %n{panels} step %n{abreast} {{",
        *(["%p1 = arith.addi %p0, %n1 : index"] if abreast > 1 else []),
        f"scf.for %g = %n0 to %n{groups} step %n1 {{",
    ]
    for panel in range(abreast):
        lines += [
            f"%row{panel}_{i} = vector.load %a[{outside}%g, %n{i}, %p{panel}, %n0] : {types[0]}, {row}"
            for i in range(terms)
        ]
        mixed, rows = _interleave_rows([f"%row{panel}_{i}" for i in range(terms)], width, element)
        lines += [
            *mixed,
            f"vector.store {rows}, %b_flat[{outside}%p{panel}, %g, %n0] : {plain}, vector<{size}x{element}>",
        ]
    return function_text(name, dict(zip("ab", types, strict=True)), [*lines, *["}"] * (rank + 2)])


def _interleave_rows(rows: list[str], width: int, element: str) -> tuple[list[str], str]:
    """Returns the shuffles that put rows of terms next to each other, column by column, and what their result is."""
    lines: list[str] = []
    while len(rows) > 1:  # each with the one half of them further on, so that terms end up in order
        half, mixed = len(rows) // 2, []
        for one, two in zip(rows[:half], rows[half:], strict=True):
            mixed.append(f"{one}_{half}")
            lines.append(
                f"{mixed[-1]} = vector.interleave {one}, {two} : vector<{width}x{element}> -> "
                f"vector<{2 * width}x{element}>"
            )
        rows, width = mixed, 2 * width
    return lines, rows[0]


def can_interleave(shape: Sequence[int], element: str) -> bool:
    """Returns whether the last dimensions of a copy are a panel of groups."""
    *_, width, terms = shape
    return len(shape) >= 4 and width == LANES and terms * BITS.get(element, 0) == GROUP_BITS


def transposing(name: str, types: tuple[str, str], shape: Sequence[int], element: str) -> str:
    """Returns the function that copies [..., panel, column, group, term] into [..., panel, group, column, term].

    It turns 16 columns by 16 groups in registers. The last such block begins earlier if groups are no multiple of 16.
    """
    *around, panels, groups, width, terms = shape
    rank = len(around)
    read, from_type = flattened("a", types[0], [*around, panels, width, groups, terms], element)
    write, to_type = flattened("b", types[1], shape, element)
    outside = "".join(f"%o{i}, " for i in range(rank)) + "%p"
    numbers = sorted({0, 1, terms, panels, groups, max(groups - LANES, 0), *range(LANES + 1), *around})
    lines = [f"%n{number} = arith.constant {number} : index" for number in numbers]
    lines += [
        *read,
        *write,
        *(f"scf.for %o{i} = %n0 to %n{count} step %n1 {{" for i, count in enumerate(around)),
        f"scf.for %p = %n0 to %n{panels} step %n1 {{",
    ]
    places = (outside, from_type, to_type)
    lines += (
        _turned_groups(places, groups, terms, element) if groups >= LANES else _single_groups(places, shape, element)
    )
    return function_text(name, dict(zip("ab", types, strict=True)), [*lines, *["}"] * (rank + 1)])


def _turned_groups(places: tuple[str, str, str], groups: int, terms: int, element: str) -> list[str]:
    """Returns the loop over groups, 16 at a time, each term of a column as one word."""
    (outside, from_type, to_type), kind = places, f"vector<{LANES * terms}x{element}>"
    lines = [
        f"scf.for %from = %n0 to %n{groups} step %n{LANES} {{",
        f"%g = arith.minui %from, %n{groups - LANES} : index",
        f"%at = arith.muli %g, %n{terms} : index",
    ]
    for i in range(LANES):
        lines += [
            f"%row{i} = vector.load %a_flat[{outside}, %n{i}, %at] : {from_type}, {kind}",
            f"%words{i} = vector.bitcast %row{i} : {kind} to vector<{LANES}xi32>",
        ]
    turned, rows = _turn([f"%words{i}" for i in range(LANES)])
    lines += turned
    for i, row in enumerate(rows):
        lines += [
            f"%group{i} = arith.addi %g, %n{i} : index",
            f"%panel{i} = vector.bitcast {row} : vector<{LANES}xi32> to {kind}",
            f"vector.store %panel{i}, %b_flat[{outside}, %group{i}, %n0] : {to_type}, {kind}",
        ]
    return [*lines, "}"]


def _turn(rows: list[str]) -> tuple[list[str], list[str]]:
    """Returns the shuffles that transpose 16 rows of 16 words, and the rows of the result."""
    lines: list[str] = []
    for bit in (8, 4, 2, 1):
        low = [lane if not lane & bit else LANES + lane - bit for lane in range(LANES)]
        high = [lane + bit if not lane & bit else LANES + lane for lane in range(LANES)]
        kind = f"vector<{LANES}xi32>, vector<{LANES}xi32>"
        turned = list(rows)
        for i in (i for i in range(LANES) if not i & bit):
            for place, order in ((i, low), (i + bit, high)):
                turned[place] = f"%turned{bit}_{place}"
                lines.append(f"{turned[place]} = vector.shuffle {rows[i]}, {rows[i + bit]} {order} : {kind}")
        rows = turned
    return lines, rows


def _single_groups(places: tuple[str, str, str], shape: Sequence[int], element: str) -> list[str]:
    """Returns the loops over columns and groups, of which there are fewer than 16."""
    (outside, from_type, to_type), (groups, width, terms) = places, shape[-3:]
    kind = f"vector<{terms}x{element}>"
    return [
        f"scf.for %c = %n0 to %n{width} step %n1 {{",
        f"%to = arith.muli %c, %n{terms} : index",
        f"scf.for %g = %n0 to %n{groups} step %n1 {{",
        f"%at = arith.muli %g, %n{terms} : index",
        f"%group = vector.load %a_flat[{outside}, %c, %at] : {from_type}, {kind}",
        f"vector.store %group, %b_flat[{outside}, %g, %to] : {to_type}, {kind}",
        "}",
        "}",
    ]
