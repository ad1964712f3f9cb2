"""Steps: a schedule written in Python, checked as it is written; it prints as the transform script it is."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.backends.mlir.handles import ANY, Draft, Handle

REASSOCIATE = "reassociate-fp-reductions"
"""What the lowering is told where the order of additions is free."""

VALUE = "!transform.any_value"
GENERIC, PACK, TRANSPOSE = (f'!transform.op<"linalg.{name}">' for name in ("generic", "pack", "transpose"))

TIDY = ("canonicalization", "linalg.tiling_canonicalization")
"""Patterns that make what a step leaves behind plain again."""

_LOWERING = (
    ("vector.lower_contraction lowering_strategy = outerproduct",),
    ("vector.transfer_to_scf max_transfer_rank = 1 full_unroll = true",),
    ("vector.lower_transfer max_transfer_rank = 1",),
    ("vector.lower_outerproduct",),
    ("vector.lower_broadcast",),
    ("vector.lower_shape_cast", "vector.lower_transpose lowering_strategy = shuffle_1d"),
)
_SUMS = tuple(
    (f'vector.{name} lowering_strategy = "innerreduction"',)
    for name in ("reorder_multi_reduction_dims", "multi_reduction_flattening", "multi_reduction_unrolling")
)


class Schedule(Draft):
    """Steps in order. Each method adds one; handles are what it takes and gives."""

    def match(self, *ops: str, inside: Handle | None = None, count: int = 1) -> list[Handle]:
        """Exactly `count` operations of these names, in the order of the program."""
        if not ops or any("." not in op for op in ops):
            self.refuse("match", 'name operations with their dialect, such as "linalg.matmul"')
        if count < 1:
            self.refuse("match", f"a step holds at least one operation, not {count}")
        within = self.held("match", inside) if inside else None
        root = f"{within} : ({within.type})" if within else f"{self.root} : ({ANY})"
        n = len(self.steps) + 1
        names, listed = [f"%match{n}_{i}" for i in range(count)], ", ".join(f'"{op}"' for op in ops)
        self.add(
            "match",
            f"%found{n} = transform.structured.match ops{{[{listed}]}} in {root} -> {ANY}",
            f"{', '.join(names)} = transform.split_handle %found{n} {{pass_through_empty_handle = false}} : "
            f"({ANY}) -> ({', '.join([ANY] * count)})",
        )
        kind = "loop" if ops[0] in ("scf.for", "scf.forall") else "op"
        return [self.new(name, kind, inside=within) for name in names]

    def producer(self, of: Handle, operand: int, kind: str = PACK) -> Handle:
        """The operation, of a known kind, that makes an operand."""
        held = self.held("producer", of, "op")
        if operand < 0:
            self.refuse("producer", f"operands are counted from 0; there is no {operand}")
        n = self.add(
            "producer",
            f"%made{len(self.steps) + 1} = transform.get_producer_of_operand {held}[{operand}] : "
            f"({held.type}) -> {kind}",
        )
        return self.new(f"%made{n}", type=kind, inside=held.inside)

    def tile(
        self, op: Handle, sizes: Sequence[int], using: str = "for", *, order: Sequence[int] = ()
    ) -> tuple[Handle, list[Handle]]:
        """Cut an operation into tiles (0: not in this dimension); the tile, and the loops around it.

        With "forall" there is one loop, whose iterations may run at once; `order` says which loop comes first.
        """
        held = self.on_tensors("tile", op)
        self.check_sizes("tile", sizes)
        if using not in ("for", "forall"):
            self.refuse("tile", f'loops are made using "for" or "forall", not {using!r}')
        if order:
            self.check_order("tile", order, len(sizes))
            if using == "forall":
                self.refuse("tile", "the iterations of a forall have no order")
        said = f" interchange = {list(order)}" if order else ""
        return self._tiled("tile", held, f"transform.structured.tile_using_{using}", (sizes, using), said)

    def share(self, op: Handle, parts: int) -> tuple[Handle, list[Handle]]:
        """Cut an operation's first dimension into as many tiles as threads."""
        held = self.on_tensors("share", op)
        if parts < 1:
            self.refuse("share", f"work is shared by 1 or more, not by {parts}")
        n = len(self.steps) + 1
        self.consume(held)
        self.add(
            "share",
            f"%tile{n}, %loop{n}_0 = transform.structured.tile_using_forall {held} num_threads [{parts}] : "
            f"({held.type}) -> ({held.type}, {ANY})",
        )
        loop = self.new(f"%loop{n}_0", "loop", inside=held.inside)
        return self.new(f"%tile{n}", type=held.type, inside=loop), [loop]

    def _tiled(
        self, name: str, held: Handle, op: str, cut: tuple[Sequence[int], str], said: str
    ) -> tuple[Handle, list[Handle]]:
        sizes, using = cut
        n, count = len(self.steps) + 1, 1 if using == "forall" else sum(size > 0 for size in sizes)
        loops = [f"%loop{n}_{i}" for i in range(count)]
        self.consume(held)
        self.add(
            name,
            f"%tile{n}, {', '.join(loops)} = {op} {held} tile_sizes {list(sizes)}{said} : "
            f"({held.type}) -> ({', '.join([ANY] * (count + 1))})",
        )
        made: list[Handle] = []
        for loop in loops:
            made.append(self.new(loop, "loop", inside=made[-1] if made else held.inside))
        return self.new(f"%tile{n}", inside=made[-1]), made

    def fuse(self, producer: Handle, into: Handle) -> tuple[Handle, Handle]:
        """Compute a producer where it is used, inside a loop; the fused tile, and the loop made anew around it."""
        held, loop = self.on_tensors("fuse", producer), self.held("fuse", into, "loop")
        if held.is_within([loop]):
            self.refuse("fuse", f"{held} is inside {loop} already")
        n = len(self.steps) + 1
        around = Handle(f"%around{n}", "loop", n, inside=loop.inside)
        for other in self.handles:  # the tiles in the loop stay what they are; their loop has another name
            other.inside = around if other.inside is loop else other.inside
        self.consume(held, loop)
        self.handles.append(around)
        self.add(
            "fuse",
            f"%fused{n}, %around{n} = transform.structured.fuse_into_containing_op {held} into {loop} : "
            f"({held.type}, {loop.type}) -> ({ANY}, {ANY})",
        )
        return self.new(f"%fused{n}", inside=around), around

    def tile_and_fuse(self, op: Handle, sizes: Sequence[int]) -> tuple[Handle, list[Handle]]:
        """Cut the last operation of a chain into tiles, and compute all that it needs tile by tile."""
        held = self.on_tensors("tile_and_fuse", op)
        self.check_sizes("tile_and_fuse", sizes)
        self.consume(*[one for one in self.handles if one.kind == "op" and one is not held])
        return self._tiled("tile_and_fuse", held, "transform.structured.fuse", (sizes, "for"), " {apply_cleanup}")

    def tile_reduction(self, op: Handle, sizes: Sequence[int]) -> Handle:
        """Sum in several partial sums side by side, which are added up at the end: another order of additions."""
        held = self.on_tensors("tile_reduction", op)
        self.check_sizes("tile_reduction", sizes)
        n = len(self.steps) + 1
        self.consume(held)
        self.options.add(REASSOCIATE)
        self.add(
            "tile_reduction",
            f"%fill{n}, %part{n}, %sum{n}, %loop{n} = transform.structured.tile_reduction_using_for {held} "
            f"by tile_sizes = {list(sizes)} : ({held.type}) -> ({', '.join([ANY] * 4)})",
        )
        return self.new(f"%part{n}", inside=held.inside)

    def interchange(self, op: Handle, order: Sequence[int]) -> Handle:
        """The same operation with its loops in another order."""
        held = self.on_tensors("interchange", op)
        self.check_order("interchange", order)
        n = len(self.steps) + 1
        self.consume(held)
        self.add(
            "interchange",
            f"%plain{n} = transform.structured.generalize {held} : ({held.type}) -> {ANY}",
            f"%turned{n} = transform.structured.interchange %plain{n} iterator_interchange = {list(order)} : "
            f"({ANY}) -> {ANY}",
        )
        return self.new(f"%turned{n}", inside=held.inside)

    def pad(self, op: Handle, multiples: Sequence[int], operands: int = 3) -> Handle:
        """The operation on operands padded with zeros to multiples of sizes, a size for each of its loops."""
        held = self.on_tensors("pad", op)
        if not multiples or any(size < 1 for size in multiples):
            self.refuse("pad", f"sizes are padded to multiples of 1 or more, not of {list(multiples)}")
        n = len(self.steps) + 1
        values, dims = ", ".join(["0.0 : f32"] * operands), list(range(len(multiples)))
        self.consume(held)
        self.add(
            "pad",
            f"%padded{n}, %pads{n}, %back{n} = transform.structured.pad {held} pad_to_multiple_of {list(multiples)} "
            f'{{padding_values = [{values}], padding_dimensions = {dims}, copy_back_op = "none"}} : '
            f"({held.type}) -> ({ANY}, {ANY}, {ANY})",
        )
        return self.new(f"%padded{n}", inside=held.inside)

    def pack(self, op: Handle, sizes: Sequence[int]) -> Handle:
        """The operation on operands laid out in panels of these sizes (0: not in this dimension)."""
        held = self.on_tensors("pack", op)
        self.check_sizes("pack", sizes)
        n = len(self.steps) + 1
        self.consume(held)
        self.add(
            "pack",
            f"%packed{n} = transform.structured.pack {held} packed_sizes = {list(sizes)} : "
            f"({held.type}) -> ({GENERIC})",
        )
        return self.new(f"%packed{n}", type=GENERIC, inside=held.inside)

    def pack_transpose(
        self, pack: Handle, compute: Handle, outer: Sequence[int], inner: Sequence[int] = ()
    ) -> tuple[Handle, Handle]:
        """Panels in another order, and what is in them; the operation that computes on them, and the one that packs."""
        packs, computes = self.on_tensors("pack_transpose", pack), self.on_tensors("pack_transpose", compute)
        self.check_order("pack_transpose", outer)
        if inner:
            self.check_order("pack_transpose", inner)
        within = f" inner_perm = {list(inner)}" if inner else ""
        n = len(self.steps) + 1
        self.consume(packs, computes)
        self.add(
            "pack_transpose",
            f"%turned{n}, %panels{n}, %un{n} = transform.structured.pack_transpose {packs} "
            f"with_compute_op({computes}) outer_perm = {list(outer)}{within} : ({packs.type}, {computes.type}) -> "
            f"({GENERIC}, {PACK}, {ANY})",
        )
        return self.new(f"%turned{n}", type=GENERIC), self.new(f"%panels{n}", type=PACK)

    def lower_pack(self, pack: Handle) -> Handle:
        """Packing as a transposition, which can be tiled in turn."""
        held = self.on_tensors("lower_pack", pack)
        n = len(self.steps) + 1
        typed, cast = (held.name, ()) if held.type == PACK else (
            f"%pack{n}", (f"%pack{n} = transform.cast {held} : {held.type} to {PACK}",))  # fmt: skip
        self.consume(held)
        self.add(
            "lower_pack",
            *cast,
            f"%pad{n}, %expand{n}, %copy{n} = transform.structured.lower_pack {typed} : ({PACK}) -> "
            f'(!transform.op<"tensor.pad">, !transform.op<"tensor.expand_shape">, {TRANSPOSE})',
        )
        return self.new(f"%copy{n}", type=TRANSPOSE, inside=held.inside)

    def lower_unpack(self, unpack: Handle) -> None:
        """Unpacking as a transposition and a copy."""
        held = self.on_tensors("lower_unpack", unpack)
        n = len(self.steps) + 1
        kinds = ("tensor.empty", "linalg.transpose", "tensor.collapse_shape", "tensor.extract_slice", "linalg.copy")
        names = ", ".join(f"%un{n}_{i}" for i in range(len(kinds)))
        typed = ", ".join(f'!transform.op<"{kind}">' for kind in kinds)
        self.consume(held)
        self.add(
            "lower_unpack",
            f'%unpack{n} = transform.cast {held} : {held.type} to !transform.op<"linalg.unpack">',
            f'{names} = transform.structured.lower_unpack %unpack{n} : (!transform.op<"linalg.unpack">) -> ({typed})',
        )

    def promote(self, op: Handle, operand: int) -> None:
        """Copy an operand of a tile into a buffer of its own."""
        held = self.on_tensors("promote", op)
        if operand < 0:
            self.refuse("promote", f"operands are counted from 0; there is no {operand}")
        n = len(self.steps) + 1
        self.add(
            "promote",
            f"%operand{n} = transform.get_operand {held}[{operand}] : ({held.type}) -> {VALUE}",
            f"%copied{n} = transform.structured.promote_tensor %operand{n} : {VALUE}",
        )

    def tidy(self, *patterns: str) -> None:
        """Simplify the whole; without patterns, by those that tiles leave work for."""
        self._apply("tidy", patterns or TIDY, cse=True)

    def _apply(self, name: str, *batches: Sequence[str], cse: bool = False) -> None:
        n, lines = len(self.steps) + 1, []
        for patterns in batches:
            listed = " ".join(f"transform.apply_patterns.{pattern}" for pattern in patterns)
            lines.append(f"transform.apply_patterns to %func{n} {{ {listed} }} {'{apply_cse} ' if cse else ''}: {ANY}")
        self.add(
            name,
            f'%func{n} = transform.structured.match ops{{["func.func"]}} in {self.root} : ({ANY}) -> {ANY}',
            *lines,
        )

    def vectorise(self, what: Handle, *, contraction: bool = False) -> None:
        """Vectors instead of an operation, or instead of every operation in a loop.

        A `contraction` stays one product of vectors, whatever its sizes: for operations that linalg has a name for.
        """
        self.at_stage("vectorise", "vectors")
        held = self.held("vectorise", what)
        n = len(self.steps) + 1
        if held.kind == "op":
            self.consume(held)
            said = " {create_named_contraction}" if contraction else ""
            self.add("vectorise", f"transform.structured.vectorize {held}{said} : {held.type}")
            return
        self.consume(*[one for one in self.handles if one is not held and one.is_within([held])])
        self.add(
            "vectorise",
            f"%found{n} = transform.structured.match interface{{LinalgOp}} in {held} : ({held.type}) -> {ANY}",
            f"transform.foreach %found{n} : {ANY} {{ ^bb0(%one{n}: {ANY}): "
            f"transform.structured.vectorize %one{n} : {ANY} }}",
        )

    def vectorise_all(self) -> None:
        """Vectors instead of every operation."""
        self.at_stage("vectorise_all", "vectors")
        n = len(self.steps) + 1
        self.consume(*self.handles)
        self.add(
            "vectorise_all",
            f"%found{n} = transform.structured.match interface{{LinalgOp}} in {self.root} : ({ANY}) -> {ANY}",
            f"transform.foreach %found{n} : {ANY} {{ ^bb0(%one{n}: {ANY}): "
            f"transform.structured.vectorize %one{n} : {ANY} }}",
        )

    def hoist(self) -> None:
        """Keep in registers what a loop reads and writes at the same place each time."""
        self.at_stage("hoist", "vectors")
        n = len(self.steps) + 1
        self.consume(*self.handles)
        self.stage = "vectors"
        self.add(
            "hoist",
            f'%func{n} = transform.structured.match ops{{["func.func"]}} in {self.root} : ({ANY}) -> {ANY}',
            f'%hoisted{n} = transform.apply_registered_pass "loop-invariant-subset-hoisting" to %func{n} : '
            f"({ANY}) -> {ANY}",
            f"transform.apply_patterns to %hoisted{n} {{ transform.apply_patterns.canonicalization }} "
            f"{{apply_cse}} : {ANY}",
        )

    def bufferise(self) -> None:
        """Memory instead of tensors."""
        self.at_stage("bufferise", "vectors")
        n = len(self.steps) + 1
        self.consume(*self.handles)
        self.stage = "buffers"
        self.add(
            "bufferise",
            f"%buffers{n} = transform.bufferization.one_shot_bufferize layout{{IdentityLayoutMap}} {self.root} "
            f'{{bufferize_function_boundaries = true, memcpy_op = "linalg.copy"}} : ({ANY}) -> {ANY}',
            f'%func{n} = transform.structured.match ops{{["func.func"]}} in %buffers{n} : ({ANY}) -> {ANY}',
            f"transform.apply_patterns to %func{n} {{ transform.apply_patterns.canonicalization }} "
            f"{{apply_cse}} : {ANY}",
        )
        self.root = f"%buffers{n}"

    def sequential(self, total: int, parallel: Sequence[int] = ()) -> None:
        """Run the iterations of `total` foralls one after another, but for those `parallel` by number.

        Each has one dimension. They are counted in the order of the program, inner ones before those around them.
        """
        self.at_stage("sequential", "buffers")
        if self.stage != "buffers":
            self.refuse("sequential", "it works on buffers; put bufferise before it")
        if total < 1 or any(not 0 <= one < total for one in parallel):
            self.refuse("sequential", f"of {total} foralls, {list(parallel)} cannot stay parallel")
        n = len(self.steps) + 1
        names = [f"%all{n}_{i}" for i in range(total)]
        self.add(
            "sequential",
            f'%found{n} = transform.structured.match ops{{["scf.forall"]}} in {self.root} : ({ANY}) -> {ANY}',
            f"{', '.join(names)} = transform.split_handle %found{n} {{pass_through_empty_handle = false}} : "
            f"({ANY}) -> ({', '.join([ANY] * total)})",
            *(
                f"transform.loop.forall_to_for {name} : ({ANY}) -> {ANY}"
                for i, name in enumerate(names)
                if i not in parallel
            ),
        )

    def lower(self) -> None:
        """Vectors as the processor has them."""
        self.at_stage("lower", "buffers")
        if self.stage != "buffers":
            self.refuse("lower", "it works on buffers; put bufferise before it")
        self.stage = "lowered"
        self._apply("lower", *_SUMS, *_LOWERING, ("canonicalization",))
