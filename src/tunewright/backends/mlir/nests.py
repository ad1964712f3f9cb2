"""Nests: the steps that tile a product block by block, down to vector registers."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.backends.mlir.handles import Handle
from tunewright.backends.mlir.plan import Work

UNITS = (
    ("vector.reduction_to_contract", "tensor.fold_tensor_subset_ops_into_vector_transfers"),
    (
        "vector.reduction_to_contract",
        "vector.transfer_permutation_patterns",
        "vector.cast_away_vector_leading_one_dim",
    ),
)
"""Patterns that leave a product of vectors, without dimensions of size 1."""


def nest(work: Work, kind: str) -> None:
    """Tile the last operation block by block, and fuse what it needs into each loop.

    Where panels are padded, what follows the product waits until they are unpacked, row by row.
    """
    s, m, n = work.schedule, work.payload.sizes["M"], work.payload.sizes["N"]
    packed, panels = (name in work.parts for name in ("packed", "panels"))
    mr, nr = work["mr"], work["nr"]
    ragged = bool(((packed or panels) and n % nr) or (panels and m % mr))
    follows = work.payload.operations[-1].kind == "linalg.generic"
    generics = s.match("linalg.generic", count=packed + panels + follows) if packed or panels or follows else []
    after = [generics[-1]] if follows else []
    product = [*s.match("linalg.unpack"), generics[0]] if packed or panels else s.match("linalg.matmul")
    chain = [product[-1]] if ragged else [*after, *product]
    chain += s.match("linalg.fill")
    wide, high = (nr, mr if panels else 1) if ragged else (1, 1)
    blocks = [(0, work["nc"] // wide)] if kind == "columns" else []
    blocks = _loops([*blocks, (mr // high, 0), (0, nr // wide)], (-(-m // high), -(-n // wide)))
    for number, block in enumerate(blocks):
        tile, (loop,) = s.tile(chain[0], block, "forall")
        tiles: list[Handle] = [tile]
        for producer in chain[1:]:
            tile, loop = s.fuse(producer, loop)
            tiles.append(tile)
        chain = tiles
        if number == 0:
            work.held["outer"] = loop
    work.held |= {"product": chain[-2], "blocks": len(blocks), "ragged": ragged}
    work.held["tail"] = [*after, product[0]] if ragged else []


def _loops(blocks: Sequence[tuple[int, int]], whole: tuple[int, int]) -> list[tuple[int, int]]:
    """The blocks that are smaller than what they are cut from: a loop that runs once is none."""
    found = []
    for rows, columns in blocks:
        if 0 < rows < whole[0] or 0 < columns < whole[1]:
            found.append((rows, columns))
        whole = (rows or whole[0], columns or whole[1])
    return found


def to_registers(work: Work, threads: int) -> None:
    """Cut k, make vectors, keep sums in registers, and go down to buffers and loops."""
    s, outer = work.schedule, work.op("outer")
    packed, panels, ragged = "packed" in work.parts, "panels" in work.parts, bool(work.held["ragged"])
    s.tile(work.op("product"), [0, 0, 1 if panels else work["kr"]])
    after = int(_unpacked_by_rows(work)) if ragged else 0
    s.tidy()
    s.tidy("canonicalization", "linalg.fold_unit_extent_dims_via_slices")
    copies = 0
    for pack in s.match("linalg.pack", count=1 + panels) if packed or panels else []:
        copy = s.lower_pack(pack)
        if threads > 1:
            copy, _ = s.share(copy, threads)
            copies += 1
        if packed:
            s.tile(copy, [0, work["pk"]])
    if (packed or panels) and not ragged:
        s.vectorise(s.match("linalg.unpack", inside=outer)[0])
    s.vectorise(outer)
    # Sums are kept in registers before units go: after that their place in the tile is no longer recognised.
    for patterns in UNITS:
        s.tidy("canonicalization", *patterns)
        s.hoist()
    s.bufferise()
    blocks = int(work.held["blocks"])
    kept = (
        [] if threads == 1 else [*range(copies), copies + blocks - 1, *range(copies + blocks, copies + blocks + after)]
    )
    s.sequential(copies + blocks + after, kept)
    s.lower()


def _unpacked_by_rows(work: Work) -> bool:
    """Unpack, and compute what follows, a few rows at a time; whether that made a loop."""
    s, m = work.schedule, work.payload.sizes["M"]
    tail: list[Handle] = work.held["tail"]
    rows = work["mr"] if m % work["mr"] == 0 else 1
    if rows < m:
        tile, (loop,) = s.tile(tail[0], [rows, 0], "forall")
        unpack = s.fuse(tail[1], loop)[0] if len(tail) > 1 else tile
    else:
        unpack = tail[-1]
    s.lower_unpack(unpack)
    return rows < m


def in_order(work: Work) -> None:
    """Tile the product by one block with its loops in the order asked for; sums are kept in memory between them."""
    s, order = work.schedule, [("ijk").index(loop) for loop in str(work.knobs["order"])]
    tile, _ = s.tile(s.match("linalg.matmul")[0], [work["mr"], work["nr"], work["kr"]], order=order)
    beside = s.match("linalg.fill")
    if work.payload.operations[-1].kind == "linalg.generic":
        beside += s.match("linalg.generic")
    tiles = [s.tile(one, [1, work["nr"]])[0] for one in beside]
    s.vectorise(tile, contraction=True)
    for one in tiles:
        s.vectorise(one)
    s.tidy("canonicalization", *UNITS[0])
    s.hoist()
    s.bufferise()
    s.lower()
