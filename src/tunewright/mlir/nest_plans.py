"""Steps that tile a matmul in nested blocks, down to vector registers."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.mlir.handles import Handle
from tunewright.mlir.plan import PlanContext
from tunewright.mlir.schedule import Schedule

VECTOR_PATTERNS = (
    ("vector.reduction_to_contract", "tensor.fold_tensor_subset_ops_into_vector_transfers"),
    (
        "vector.reduction_to_contract",
        "vector.transfer_permutation_patterns",
        "vector.cast_away_vector_leading_one_dim",
    ),
)
"""Patterns that reduce to a vector contraction without unit dimensions."""


def hoist_accumulators(s: Schedule) -> None:
    """Clean up vectors and hoist: before unit dimensions are dropped, too, or accumulators would not be recognized."""
    for patterns in VECTOR_PATTERNS:
        s.cleanup("canonicalization", *patterns)
        s.hoist()


def tile_blocks(context: PlanContext, kind: str) -> None:
    """Tile the last operation in nested blocks, and fuse its producers into each loop.

    If panels are padded, the epilogue runs after unpacking, row by row.
    """
    s, m, n = context.schedule, context.payload.sizes["M"], context.payload.sizes["N"]
    packed, panels = (name in context.parts for name in ("packed", "panels"))
    mr, nr = context["mr"], context["nr"]
    ragged = bool(((packed or panels) and n % nr) or (panels and m % mr))
    follows = context.payload.operations[-1].kind == "linalg.generic"
    generics = s.match("linalg.generic", count=packed + panels + follows) if packed or panels or follows else []
    after = [generics[-1]] if follows else []
    product = [*s.match("linalg.unpack"), generics[0]] if packed or panels else s.match("linalg.matmul")
    chain = [product[-1]] if ragged else [*after, *product]
    chain += s.match("linalg.fill")
    wide, high = (nr, mr if panels else 1) if ragged else (1, 1)
    blocks = [(0, context["nc"] // wide)] if kind == "columns" else []
    blocks = _real_loops([*blocks, (mr // high, 0), (0, nr // wide)], (-(-m // high), -(-n // wide)))
    for number, block in enumerate(blocks):
        tile, (loop,) = s.tile(chain[0], block, "forall")
        tiles: list[Handle] = [tile]
        for producer in chain[1:]:
            tile, loop = s.fuse(producer, loop)
            tiles.append(tile)
        chain = tiles
        if number == 0:
            context.handles["outer"] = loop
    context.handles |= {"product": chain[-2], "blocks": len(blocks), "ragged": ragged}
    context.handles["tail"] = [*after, product[0]] if ragged else []


def _real_loops(blocks: Sequence[tuple[int, int]], whole: tuple[int, int]) -> list[tuple[int, int]]:
    """Returns the blocks that make a loop: those smaller than the block around them."""
    loops = []
    for rows, columns in blocks:
        if 0 < rows < whole[0] or 0 < columns < whole[1]:
            loops.append((rows, columns))
        whole = (rows or whole[0], columns or whole[1])
    return loops


def tile_registers(context: PlanContext, threads: int) -> None:
    """Tile k, vectorize, keep accumulators in registers, bufferize and lower."""
    s, outer = context.schedule, context.op("outer")
    packed, panels, ragged = "packed" in context.parts, "panels" in context.parts, bool(context.handles["ragged"])
    s.tile(context.op("product"), [0, 0, 1 if panels else context["kr"]])
    after = int(_unpack_by_rows(context)) if ragged else 0
    s.cleanup()
    s.cleanup("canonicalization", "linalg.fold_unit_extent_dims_via_slices")
    copies = 0
    for pack in s.match("linalg.pack", count=1 + panels) if packed or panels else []:
        copy = s.lower_pack(pack)
        if threads > 1:
            copy, _ = s.distribute(copy, threads)
            copies += 1
        if packed:
            s.tile(copy, [0, context["pk"]])
    if (packed or panels) and not ragged:
        s.vectorize(s.match("linalg.unpack", inside=outer)[0])
    s.vectorize(outer)
    hoist_accumulators(s)
    s.bufferize()
    blocks = int(context.handles["blocks"])
    parallel = (
        [] if threads == 1 else [*range(copies), copies + blocks - 1, *range(copies + blocks, copies + blocks + after)]
    )
    s.sequentialize(copies + blocks + after, parallel)
    s.lower()


def _unpack_by_rows(context: PlanContext) -> bool:
    """Unpack and run the epilogue a few rows at a time. Returns whether that made a loop."""
    s, m = context.schedule, context.payload.sizes["M"]
    tail: list[Handle] = context.handles["tail"]
    rows = context["mr"] if m % context["mr"] == 0 else 1
    if rows < m:
        tile, (loop,) = s.tile(tail[0], [rows, 0], "forall")
        unpack = s.fuse(tail[1], loop)[0] if len(tail) > 1 else tile
    else:
        unpack = tail[-1]
    s.lower_unpack(unpack)
    return rows < m


def tile_in_order(context: PlanContext) -> None:
    """Tile the matmul by one block with its loops in the order of the knob; accumulators are in memory."""
    s, order = context.schedule, [("ijk").index(loop) for loop in str(context.knobs["order"])]
    tile, _ = s.tile(s.match("linalg.matmul")[0], [context["mr"], context["nr"], context["kr"]], order=order)
    elementwise = s.match("linalg.fill")
    if context.payload.operations[-1].kind == "linalg.generic":
        elementwise += s.match("linalg.generic")
    tiles = [s.tile(op, [1, context["nr"]])[0] for op in elementwise]
    s.vectorize(tile, contraction=True)
    for elementwise_tile in tiles:
        s.vectorize(elementwise_tile)
    s.cleanup("canonicalization", *VECTOR_PATTERNS[0])
    s.hoist()
    s.bufferize()
    s.lower()
