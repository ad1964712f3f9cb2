"""Steps that copy operands into panels, and out of them."""

from __future__ import annotations

from collections.abc import Sequence

from tunewright.mlir.handles import ANY, Handle, ScheduleBuilder

VALUE = "!transform.any_value"
GENERIC, PACK, UNPACK, TRANSPOSE = (
    f'!transform.op<"linalg.{name}">' for name in ("generic", "pack", "unpack", "transpose")
)
_PACKED = ("tensor.pad", "tensor.expand_shape", "linalg.transpose")
_UNPACKED = ("tensor.empty", "linalg.transpose", "tensor.collapse_shape", "tensor.extract_slice", "linalg.copy")


class PackingSteps(ScheduleBuilder):
    """The steps of a schedule that pack; each takes handles and returns new ones."""

    def pack(self, op: Handle, sizes: Sequence[int]) -> Handle:
        """Pack operands into panels of these sizes (0: not this dimension)."""
        held = self.check_tensor_op("pack", op)
        self.check_sizes("pack", sizes)
        n = len(self.steps) + 1
        self.consume(held)
        self.add(
            "pack",
            f"%packed{n} = transform.structured.pack {held} packed_sizes = {list(sizes)} : "
            f"({held.type}) -> ({GENERIC})",
        )
        return self.new_handle(f"%packed{n}", type=GENERIC, inside=held.inside)

    def pack_transpose(
        self, pack: Handle, compute: Handle, outer: Sequence[int], inner: Sequence[int] = ()
    ) -> tuple[Handle, Handle]:
        """Transpose panels and their contents. Returns the compute operation and the pack operation."""
        packs, computes = self.check_tensor_op("pack_transpose", pack), self.check_tensor_op("pack_transpose", compute)
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
        return self.new_handle(f"%turned{n}", type=GENERIC), self.new_handle(f"%panels{n}", type=PACK)

    def lower_pack(self, pack: Handle) -> Handle:
        """Lower a pack to a transpose. Returns the transpose, which can be tiled."""
        held = self.check_tensor_op("lower_pack", pack)
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
        return self.new_handle(f"%copy{n}", type=TRANSPOSE, inside=held.inside)

    def lower_unpack(self, unpack: Handle) -> None:
        """Lower an unpack to a transpose and a copy."""
        held = self.check_tensor_op("lower_unpack", unpack)
        n = len(self.steps) + 1
        names = ", ".join(f"%un{n}_{i}" for i in range(len(_UNPACKED)))
        typed = ", ".join(f'!transform.op<"{kind}">' for kind in _UNPACKED)
        self.consume(held)
        self.add(
            "lower_unpack",
            f'%unpack{n} = transform.cast {held} : {held.type} to !transform.op<"linalg.unpack">',
            f'{names} = transform.structured.lower_unpack %unpack{n} : (!transform.op<"linalg.unpack">) -> ({typed})',
        )

    def lower_relayouts(self) -> None:
        """Lower every pack and unpack that is left to copies, which are loops."""
        self.check_stage("lower_relayouts", "vectors")
        n, lines = len(self.steps) + 1, []
        self.consume(*self.handles)
        for kind, results in (
            ("pack", ("tensor.pad", "tensor.expand_shape", "linalg.transpose")),
            ("unpack", _UNPACKED),
        ):
            typed = ", ".join(f'!transform.op<"{result}">' for result in results)
            names = ", ".join(f"%{kind}{n}_{i}" for i in range(len(results)))
            lines += [
                f'%all_{kind}{n} = transform.structured.match ops{{["linalg.{kind}"]}} in {self.root} : '
                f"({ANY}) -> {ANY}",
                f"transform.foreach %all_{kind}{n} : {ANY} {{ ^bb0(%any_{kind}{n}: {ANY}): "
                f'%one_{kind}{n} = transform.cast %any_{kind}{n} : {ANY} to !transform.op<"linalg.{kind}"> '
                f"{names} = transform.structured.lower_{kind} %one_{kind}{n} : "
                f'(!transform.op<"linalg.{kind}">) -> ({typed}) }}',
            ]
        self.add("lower_relayouts", *lines)

    def promote(self, op: Handle, operand: int) -> None:
        """Copy an operand of a tile into its own buffer."""
        held = self.check_tensor_op("promote", op)
        if operand < 0:
            self.reject("promote", f"operands are counted from 0, not {operand}")
        n = len(self.steps) + 1
        self.add(
            "promote",
            f"%operand{n} = transform.get_operand {held}[{operand}] : ({held.type}) -> {VALUE}",
            f"%copied{n} = transform.structured.promote_tensor %operand{n} : {VALUE}",
        )
