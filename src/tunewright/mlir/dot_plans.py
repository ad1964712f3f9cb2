"""Plan for products of bfloat16 and int8: by dot-product instructions where the processor has them, else widened."""

from __future__ import annotations

from functools import partial
from typing import Any

from tunewright.backends.host import cpu
from tunewright.errors import ScheduleError
from tunewright.mlir.dot_blocks import BITS, GROUP_BITS, LANES, SUMS
from tunewright.mlir.handles import Handle
from tunewright.mlir.model_plans import MERGE, ModelPlan, model_parts, model_plan, written_part
from tunewright.mlir.payload import LinalgOp, Payload
from tunewright.mlir.plan import Parts, PlanContext, PlanPart
from tunewright.mlir.processor import (
    ELEMENT_BYTES,
    TILE_REGISTERS,
    has_dot_tiles,
    has_dot_vectors,
    vector_lanes,
    vector_registers,
)
from tunewright.mlir.schedule import DOT_TILES, DOT_VECTORS, DOT_WIDENED, INTERLEAVE, Schedule
from tunewright.spaces.rule import Knob, Rule

PRODUCTS = ("linalg.matmul", "linalg.batch_matmul")

NAMES = {DOT_TILES: "tiles", DOT_VECTORS: "dots", DOT_WIDENED: "widened"}

OTHERWISE = "`plan_for(payload)` finds the plan of any payload"

MOST_ROWS = 96
"""The most rows of a block; more gain nothing, as tiles have 16 and there are 8."""

UNEVEN_ROWS = (4, 8, 12, 16, 32, 48)
"""Rows of a block even if they do not divide those of the product: the last block has what is left."""


def dot_plan(payload: Payload, *, threads: int = 1) -> ModelPlan:
    """Returns the plan of a product of bfloat16 or int8 of known sizes, with elementwise operations after it.

    "tiles" are those of AMX, "dots" the instructions on vectors. For both, b is copied into panels of 16 columns, with
    the terms that an instruction adds up next to each other; a is read as it is. b may be transposed before. They add
    up bfloat16 in another order. "widened" has the same panels, and multiplies in float32 or int32, in order, on any
    processor.
    """
    before = _before(payload)
    starts = [op.kind for op in before if op.kind != "linalg.transpose"] == ["linalg.fill"] and len(before) <= 2
    if not starts or any(op.kind != "linalg.generic" or op.reductions for op in _after(payload)):
        raise ScheduleError(
            f"this plan is for linalg.fill, one of {', '.join(PRODUCTS)}, and elementwise operations after it; "
            f"{OTHERWISE}"
        )
    if len(before) > 1 and not _is_transposed(payload):
        raise ScheduleError(
            "this plan is for a product whose right operand is transposed, not its left one; " + OTHERWISE
        )
    left, right, *_, sums = elements = _product(payload).elements
    if left != right or SUMS.get(left) != sums:
        usual = " or ".join(f"{element} with sums of {wide}" for element, wide in SUMS.items())
        raise ScheduleError(f"this plan is for products of {usual}, not of {', '.join(elements)}; {OTHERWISE}")
    sequences: list[Parts] = []
    if None in _product(payload).sizes:
        sequences.append(model_parts(payload, threads=threads))
    else:
        tiles = has_dot_tiles(left) and not (threads > 1 and _has_rest(payload))
        ways = {DOT_TILES: tiles, DOT_VECTORS: has_dot_vectors(left), DOT_WIDENED: True}
        sequences += [_dot_parts(payload, mark, threads) for mark, is_possible in ways.items() if is_possible]
    return ModelPlan(payload, *sequences, [written_part()])


def plan_for(payload: Payload, *, threads: int = 1) -> ModelPlan:
    """Returns the plan of a payload from a file: that of narrow products if it is one, else the one for any."""
    try:
        return dot_plan(payload, threads=threads)
    except ScheduleError:
        return model_plan(payload, threads=threads)


def _element(payload: Payload) -> str:
    """Returns the element of the arrays that are multiplied."""
    return _product(payload).elements[0]


def _product(payload: Payload) -> LinalgOp:
    """Returns the product."""
    return payload.operations[len(_before(payload))]


def _before(payload: Payload) -> list[LinalgOp]:
    """Returns what is before the product: a fill, and the transpose of its right operand if it has one."""
    ops = payload.operations
    return list(ops[: next((i for i, op in enumerate(ops) if op.kind in PRODUCTS), 0)])


def _after(payload: Payload) -> tuple[LinalgOp, ...]:
    """Returns what follows the product."""
    return payload.operations[len(_before(payload)) + 1 :]


def _is_transposed(payload: Payload) -> bool:
    """Returns whether the right operand is a transposed array, as of a linear layer, and nothing else reads that."""
    for op in _before(payload):
        if op.kind == "linalg.transpose":
            users = [
                (other, at)
                for other in payload.operations
                for at, (name, _) in enumerate(other.reads)
                if name == op.name
            ]
            *around, row, column = op.writes[1].split(",")
            return users == [(_product(payload), 1)] and op.reads[0][1] == ",".join([*around, column, row])
    return False


def _sizes(payload: Payload) -> tuple[int, int, int]:
    """Returns the rows, columns and terms of the product."""
    rows, columns, terms = _product(payload).sizes[-3:]
    return rows or 1, columns or 1, terms or 1


def _dot_parts(payload: Payload, mark: str, threads: int) -> Parts:
    exact, name = mark == DOT_WIDENED or _element(payload) == "i8", NAMES[mark]
    nests = [
        PlanPart(f"{name} rows", partial(_schedule, mark=mark, threads=threads), numerics=not exact),
        _column_part(
            payload, PlanPart(f"{name} columns", partial(_schedule, mark=mark, threads=threads), numerics=not exact)
        ),
    ]
    return [nests, _block_part(payload, mark, threads)]


def _column_part(payload: Payload, part: PlanPart) -> PlanPart:
    """Blocks of columns, whose panels stay in a cache while all rows pass."""
    _, columns, terms = _sizes(payload)
    l2, size, padded = cpu().limits.get("l2", 1 << 20), ELEMENT_BYTES[_element(payload)], columns + -columns % LANES
    rules = (
        Rule("a column block is made of several register blocks", lambda nc, nr: (nc % nr == 0) & (nc > nr)),
        Rule("there is more than one column block, of one size", lambda nc: (padded % nc == 0) & (nc < padded)),
        Rule(f"the columns of b in a block fit into L2 ({l2 >> 10} KiB)", lambda nc: nc * terms * size <= l2),
    )
    return PlanPart(part.name, part.steps, (Knob("nc", [64, 128, 256, 512, 1024]),), rules, part.numerics)


def _has_rest(payload: Payload) -> bool:
    """Returns whether some groups of terms fill no tile: a separate function adds them, which threads cannot call."""
    groups = -(-_sizes(payload)[2] * BITS[_element(payload)] // GROUP_BITS)
    return groups > LANES and groups % LANES > 0


def _block_part(payload: Payload, mark: str, threads: int) -> PlanPart:
    """The innermost block, whose sums stay in registers over all terms."""
    rows, columns, _ = _sizes(payload)
    padded = columns + -columns % LANES
    uneven = UNEVEN_ROWS if threads == 1 else ()  # a loop that threads share has no branches in it
    high = [size for size in range(1, MOST_ROWS + 1) if rows % size == 0 or (size in uneven and size < rows)]
    knobs = (Knob("mr", high), Knob("nr", [LANES, 2 * LANES, 3 * LANES, 4 * LANES]))
    if mark == DOT_TILES:
        fits = Rule(
            f"sums, panels of b and rows of a fit into {TILE_REGISTERS} tile registers, each of one shape",
            lambda mr, nr: (_tiles_used(mr, nr) <= TILE_REGISTERS) & (_tiles_used(rows % mr, nr) <= TILE_REGISTERS),
        )
    else:
        most = vector_registers() * vector_lanes() // LANES
        fits = Rule(
            f"sums, a row of the panels and an element of a fit into {most} vector registers",
            lambda mr, nr: (mr + 2) * (nr // LANES) + 1 <= most,
        )
    return PlanPart(
        "block", lambda context: None, knobs, (Rule(f"nr divides {padded} columns", lambda nr: padded % nr == 0), fits)
    )


def _tiles_used(rows: Any, columns: Any) -> Any:
    """Returns how many tile registers a block needs: those of sums, of panels of b, and of rows of a, which may have
    two heights."""
    high, panels = -(-rows // LANES), columns // LANES
    heights = 1 + (rows % (high + (high == 0)) != 0)
    return high * panels + panels + heights


def _schedule(context: PlanContext, *, mark: str, threads: int) -> None:
    """Pack b, tile down to register blocks, mark these for the instructions, and compute what follows row by row."""
    s, payload = context.schedule, context.payload
    batches = len(_product(payload).loops) - 3
    if _is_transposed(payload):
        s.generalize(s.match("linalg.transpose")[0])
        s.generalize(s.match(_product(payload).kind)[0])
    if _is_transposed(payload) or len(_after(payload)) > 1:
        s.run_pass(MERGE)
    _pack(s, payload, batches)
    ragged, blocks = _tile(context, batches)
    s.cleanup("canonicalization", "linalg.tiling_canonicalization")
    s.cleanup("canonicalization", "linalg.fold_unit_extent_dims_via_slices", "tensor.fold_tensor_empty")
    copies = _lower_packs(s, threads)
    product, *after = s.match("linalg.generic", count=_generics(payload))
    s.mark_dot(product, mark)
    if not ragged:
        for unpack in s.match("linalg.unpack"):
            s.vectorize(unpack)
        for last in after:
            s.vectorize(last)
    s.cleanup("canonicalization", "vector.transfer_permutation_patterns", "vector.cast_away_vector_leading_one_dim")
    s.bufferize()
    if total := copies + sum(blocks):
        s.sequentialize(total, _shared_loops(copies, blocks) if threads > 1 else [])
    s.lower()


def _shared_loops(copies: int, blocks: tuple[int, int]) -> list[int]:
    """Returns the loops that threads share: of copies, and the outermost ones of blocks and of what follows them."""
    around, tail = blocks
    outermost = [copies + around - 1] if around else []
    return [*range(copies), *outermost, *([copies + around + tail - 1] if tail else [])]


def _generics(payload: Payload) -> int:
    """Returns how many generic operations there are: the product, and what follows it, merged into one."""
    return min(1 + len(_after(payload)), 2)


def _pack(s: Schedule, payload: Payload, batches: int) -> None:
    terms = GROUP_BITS // BITS[_element(payload)]
    transposed = _is_transposed(payload)
    product, *_ = s.match("linalg.generic", count=_generics(payload)) if transposed else s.match(_product(payload).kind)
    packed = s.pack(product, [0] * (batches + 1) + [LANES, terms])
    if not transposed:
        s.pack_transpose(s.producer(packed, 1), packed, [*range(batches), batches + 1, batches], [0, 1])
    s.cleanup("canonicalization", "linalg.tiling_canonicalization", "tensor.fold_into_pack_and_unpack")


def _lower_packs(s: Schedule, threads: int) -> int:
    """Lower both packs; that of a is no copy but a view, unless it is padded. Returns how many loops threads share."""
    left, right = s.match("linalg.pack", count=2)
    s.lower_pack(left)
    copy = s.lower_pack(right)
    if threads > 1:
        copy, _ = s.distribute(copy, threads)
    s.mark_dot(copy, INTERLEAVE)
    s.cleanup("canonicalization", "tensor.fold_tensor_empty")
    return int(threads > 1)


def _tile(context: PlanContext, batches: int) -> tuple[bool, tuple[int, int]]:
    """Tile what is last by blocks, and fuse its producers. Returns whether columns are padded.

    Then come the loops of the blocks, with those inside them, and of what follows all blocks.
    """
    s, (rows, columns, _) = context.schedule, _sizes(context.payload)
    mr, nr = context["mr"], context["nr"]
    ragged = columns % LANES != 0
    product, *after = s.match("linalg.generic", count=_generics(context.payload))
    tail = [*after, s.match("linalg.unpack")[0]]
    chain = [*([] if ragged else tail), product, s.match("linalg.fill")[0]]
    panel = LANES if ragged else 1
    whole = -(-columns // LANES) * LANES
    steps = [(0, context["nc"])] if "nc" in context.knobs else []
    steps += [(mr, 0), (0, nr)]
    tiles = _batch_tiles(context.payload)
    tiles += [[0] * batches + [high, wide // panel] for high, wide in steps if 0 < high < rows or 0 < wide < whole]
    for sizes in tiles:
        chain = _fuse(s, chain, sizes)
    first, around = (tail, _batch_tiles(context.payload)) if ragged else (chain[: len(tail)], [])
    # What follows is computed row by row, so that vectors are rows. A padded result cannot be fused into two loops.
    if rows > mr and not around if ragged else mr > 1:
        around.append([0] * batches + [mr if ragged else 1])
    for sizes in around:
        first = _fuse(s, first, sizes)
    if ragged:
        s.lower_unpack(first[-1])
    return ragged, (len(tiles), len(around)) if ragged else (len(tiles) + len(around), 0)


def _batch_tiles(payload: Payload) -> list[list[int]]:
    """Returns the tiles of loops around the product, one for each that is no single iteration."""
    sizes = _product(payload).sizes[:-3]
    return [[0] * i + [1] for i, size in enumerate(sizes) if size != 1]


def _fuse(s: Schedule, chain: list[Handle], sizes: list[int]) -> list[Handle]:
    """Tile the first of a chain, and fuse the others, which produce it, into the loop."""
    tile, (loop,) = s.tile(chain[0], sizes, "forall")
    tiles = [tile]
    for producer in chain[1:]:
        fused, loop = s.fuse(producer, loop)
        tiles.append(fused)
    return tiles
