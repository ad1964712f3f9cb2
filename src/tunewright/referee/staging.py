"""Memory in which launches wait for their turn: the referee and a supervisor share it, and no contestant sees it.

A batch has several launches, and a contestant must not see the inputs of one before it has answered the one before.
"""

from __future__ import annotations

import mmap
import os

import numpy as np
from numpy.typing import NDArray

from tunewright.referee.messages import MemorySizes, StagedLaunch

Bytes = NDArray[np.uint8]


class Staging:
    """A frame for each launch of a batch, with its inputs and then with its results; and the poison of results."""

    def __init__(self, sizes: MemorySizes, descriptor: int | None = None) -> None:
        self._sizes = sizes
        frame = sizes.input_slot + sizes.result_slot
        nbytes = sizes.result_slot + sizes.frames * frame
        self.descriptor = os.memfd_create("staging") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, nbytes)
        memory: Bytes = np.frombuffer(mmap.mmap(self.descriptor, nbytes), np.uint8)
        self.poison, frames = memory[: sizes.result_slot], memory[sizes.result_slot :]
        self._frames = frames.reshape(sizes.frames, frame)

    def inputs(self, number: int) -> Bytes:
        """Returns a copy of the slot of inputs, for the launch of this number."""
        return self._frames[number, : self._sizes.input_slot]

    def results(self, number: int) -> Bytes:
        """Returns a copy of the slot of results, as the launch of this number left it."""
        return self._frames[number, self._sizes.input_slot :]

    def close(self) -> None:
        """Gives the memory back."""
        os.close(self.descriptor)


class LaunchMemory:
    """The memory of a contestant as its supervisor sees it; mapped after the contestant was forked."""

    def __init__(self, sizes: MemorySizes, inputs: int, results: int, staging: int) -> None:
        self._staging = Staging(sizes, staging)
        self._inputs, self._results = (
            np.frombuffer(mmap.mmap(descriptor, 0), np.uint8).reshape(-1, slot)
            for descriptor, slot in ((inputs, sizes.input_slot), (results, sizes.result_slot))
        )

    def deliver(self, number: int, staged: StagedLaunch) -> None:
        """Shows the inputs of a launch to the contestant."""
        self._inputs[staged.slot, : staged.nbytes] = self._staging.inputs(number)[: staged.nbytes]

    def collect(self, number: int, staged: StagedLaunch) -> None:
        """Keeps what the launch has written until now, and poisons its slot again: what is written later is seen."""
        live = self._results[staged.slot]
        self._staging.results(number)[:] = live
        live[:] = self._staging.poison
