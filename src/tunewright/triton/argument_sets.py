"""Sets of arguments of a call: the caller's own, and a copy elsewhere in memory whose contents change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tunewright.triton import adapter
from tunewright.triton.contents import ArgumentContents
from tunewright.triton.launching import LaunchCall
from tunewright.triton.mutated_args import PointerUse, all_tensors, parameter_of
from tunewright.triton.snapshot import Snapshot
from tunewright.triton.tensors import CHUNK, Memories, Room, is_float, plain, view_like

POISON = 85
"""What integers are overwritten with before a launch that is judged; floats become NaN."""


class ArgumentSet:
    """The arguments of a call at one place in memory: `stored` are the tensors that the kernel stores to, by name.

    Of the `copied` memory the contents may change. The `kept` memory is compared with its copies: what the kernel only
    reads, and what lies beside the tensors that it stores to, must stay as it is, unless it is `unprotected`.
    Of what is `overwritten`, a launch stores to every element. If it `has_known_stores`, all go to `stored` tensors.
    """

    def __init__(
        self,
        call: LaunchCall,
        tensors: Mapping[str, Any],
        use: PointerUse,
        snapshot: Snapshot,
        *,
        copied: Mapping[int, Any],
        kept: Mapping[int, Any],
    ) -> None:
        self.call, self.tensors = call, tensors
        self.stored = {name: tensor for name, tensor in tensors.items() if parameter_of(name) in use.mutated}
        self._snapshot = snapshot
        memories = Memories(tensors)
        written = {number for name, number in memories.of.items() if name in self.stored}
        unread = pure_outputs(tensors, use, memories)
        self._rewritten = [name for name in self.stored if name not in unread]
        self._only_written = {name: plain(self.stored[name]) for name in unread if _can_poison(self.stored[name])}
        inputs = {name for name, number in memories.of.items() if number not in written}
        self._kept = {
            number: (memories.all[number], copy, [name for name in inputs if memories.of[name] == number])
            for number, copy in kept.items()
            if number not in written
        }
        stored_in = {number: [name for name in self.stored if memories.of.get(name) == number] for number in written}
        self._partly_stored = {
            number: (memories.all[number], kept[number], names)
            for number, names in stored_in.items()
            if number in kept and not any(_covers(self.stored[name], kept[number]) for name in names)
        }
        changing = [name for name in (*inputs, *self._rewritten) if memories.of.get(name) in copied]
        self.contents = ArgumentContents({name: tensors[name] for name in sorted(changing)})
        parameters = {parameter_of(name) for name in tensors}
        self.has_known_stores = not memories.overlaps and all(store & parameters for store in use.stores)
        self.overwritten: frozenset[str] = frozenset()
        self.unprotected: frozenset[str] = frozenset()

    def draw(self, number: int) -> int:
        """Returns the draw whose contents this set has, if it is reset to this one: the caller's keep theirs."""
        return number if self.contents.can_change else 0

    def reset(self, draw: int) -> None:
        """Sets the contents of a draw, and restores what the kernel stores to, unless every launch overwrites it."""
        self.contents.undo()
        self._snapshot.restore(name for name in self.stored if name not in self.overwritten)
        self.contents.draw(self.draw(draw))

    def refresh(self) -> None:
        """Restores before a launch what the kernel both reads and stores to."""
        self._restore_stored(self._rewritten)

    def refresh_results(self, *, poisoned: bool) -> None:
        """Restores before a launch that is judged all that the kernel stores to, or poisons what it overwrites."""
        self._restore_stored(self.stored)
        for name in self.overwritten if poisoned else ():
            _fill(self._only_written[name])

    def _restore_stored(self, names: Iterable[str]) -> None:
        self._snapshot.restore(names)
        for name in self._rewritten:
            self.contents.redraw(name)

    def poison_unread(self) -> None:
        """Poisons all that the kernel stores to and does not read."""
        self.overwritten = frozenset(self._only_written)
        self.refresh_results(poisoned=True)

    def find_overwritten(self) -> frozenset[str]:
        """Returns what no longer has any poison."""
        return frozenset(name for name in self.overwritten if not _has_poison(self._only_written[name]))

    def repair(self) -> list[str]:
        """Restores what the kernel should only read, and returns the names of arguments that were changed."""
        self.contents.undo()
        changed = []
        for own, copy, names in self._kept.values():
            if not own.equal(copy):
                own.copy_(copy)
                changed += names
        for own, copy, names in self._partly_stored.values():
            right = copy.clone()
            for name in names:
                view_like(self.stored[name], right).copy_(plain(self.stored[name]))
            if not own.equal(right):
                own.copy_(right)
                changed.append(f"memory beside {names[0]}")
        return [name for name in changed if name not in self.unprotected]

    def restore(self) -> None:
        """Restores the original contents of all arguments."""
        self.repair()
        self._snapshot.restore()


def pure_outputs(tensors: Mapping[str, Any], use: PointerUse, memories: Memories) -> set[str]:
    """Returns the tensors that the kernel stores to and never reads, also not by another name."""
    written = {name for name in tensors if parameter_of(name) in use.mutated - use.read}
    return {name for name in written if not memories.is_shared(name)}


def make_sets(fn: Any, call: LaunchCall, use: PointerUse, room: Room | None) -> list[ArgumentSet]:
    """Returns the caller's own arguments, and if results are judged, a copy of as many of them as there is room for.

    Without room they are not judged. Then pure outputs are not copied: the call that tunes overwrites them. If results
    are judged, outputs are filled with NaN, so the host has a copy of them.
    """
    tensors = all_tensors(fn, call.all_named)
    memories = Memories(tensors)
    outputs = pure_outputs(tensors, use, memories)
    stored = {name: tensor for name, tensor in tensors.items() if parameter_of(name) in use.mutated}
    if room is None:
        snapshot = Snapshot({name: tensor for name, tensor in stored.items() if name not in outputs})
        return [ArgumentSet(call, tensors, use, snapshot, copied={}, kept={})]
    snapshot = Snapshot(stored, rarely=outputs)
    covered = {memories.of[name] for name in outputs if _covers(tensors[name], memories.all[memories.of[name]])}
    kept, copied = memories.copies(room, without=covered), memories.copies(room)
    sets = [ArgumentSet(call, tensors, use, snapshot, copied={}, kept=kept)]
    if copied:
        views = {
            id(tensors[name]): view_like(tensors[name], copied[number])
            for name, number in memories.of.items()
            if number in copied
        }
        copy = call.replace_each(lambda value: adapter.with_tensors(value, views))
        others = all_tensors(fn, copy.all_named)
        sets.append(ArgumentSet(copy, others, use, snapshot.of(others), copied=copied, kept=kept))
    return sets


def _covers(tensor: Any, memory: Any) -> bool:
    """Whether a tensor has all elements of its memory."""
    return bool(tensor.numel() * tensor.element_size() == memory.numel() * memory.element_size())


def _can_poison(tensor: Any) -> bool:
    return "bool" not in str(plain(tensor).dtype)


def _fill(tensor: Any) -> None:
    tensor.fill_(float("nan") if is_float(tensor) else POISON)


def _has_poison(tensor: Any) -> bool:
    parts = tensor.view(-1).split(CHUNK) if tensor.is_contiguous() else (tensor,)
    return any(bool(part.float().isnan().any() if is_float(part) else (part == POISON).any()) for part in parts)
