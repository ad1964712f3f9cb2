"""Launches compiled kernels: what they take, and the emulator, which returns results or faults and never a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tunewright.backends.c_launch import dim_places
from tunewright.backends.grid_launch import GridLaunch
from tunewright.cuda.nvcc import CudaBuild
from tunewright.errors import BackendError, SignatureError
from tunewright.model.signature import Parameter

if TYPE_CHECKING:
    from tunewright.emulator import Emulation, Options, PtxFault


class EmulatedFault(BackendError):
    """Raised by a call whose execution has faults, such as a data race; `faults` lists them."""

    def __init__(self, faults: Sequence[PtxFault]) -> None:
        self.faults = list(faults)
        super().__init__(f"{describe_faults(faults)}; correct the kernel: a GPU would compute anything here")


def describe_faults(faults: Sequence[PtxFault]) -> str:
    """Returns the first fault, and how many more there are."""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0]}{more}"


class CudaLaunch:
    """A compiled kernel that takes numpy arrays and numbers."""

    def __init__(self, build: CudaBuild, shape: GridLaunch, parameters: Sequence[Parameter]) -> None:
        self.build, self.shape, self._parameters = build, shape, parameters

    @cached_property
    def _module(self) -> Any:
        from tunewright.emulator.ptx_text import parse_module  # noqa: PLC0415 - an extension of its own

        return parse_module(self.build.ptx)

    @property
    def taken(self) -> Sequence[Any]:
        """The parameters of the compiled kernel."""
        return self._module.kernel(self.build.entry).parameters  # type: ignore[no-any-return]

    def arguments(self, args: Sequence[Any]) -> list[Any]:
        """Returns what the kernel takes: the arguments, and the named sizes after them if it takes more."""
        taken, places = self.taken, dim_places(self._parameters)
        if len(taken) == len(args):
            places = []
        elif len(taken) != len(args) + len(places):
            raise SignatureError(
                f"the kernel takes {len(taken)} arguments, but the function has {len(args)}, "
                f"and {len(places)} named sizes; declare the missing ones"
            )
        for parameter, value, own in zip(self._parameters, args, taken, strict=False):
            if not isinstance(value, np.ndarray | bool | int | float | np.generic):
                kind = type(value).__name__
                raise SignatureError(f"a CUDA kernel takes numpy arrays and numbers; {parameter.name} is {kind}")
            if isinstance(value, float | np.floating) and own.type[0] in "us":
                raise SignatureError(f"{parameter.name} is a float, but the kernel takes an integer; pass an int")
        return [*args, *(int(args[number].shape[axis]) for number, axis in places)]

    def is_written(self, number: int) -> bool:
        """Whether an argument may be written, as it is declared."""
        role = self._parameters[number].role
        return role is None or role.writes


class EmulatedLaunch(CudaLaunch):
    """A kernel that is executed on the CPU."""

    def __call__(self, *args: Any) -> None:
        """Executes all blocks, and leaves the results in the arrays; raises EmulatedFault if anything is wrong."""
        done = self.execute(args)
        if done.faults:
            raise EmulatedFault(done.faults)
        if wrong := self.find_misuse(done):
            raise BackendError(wrong)
        self.store(done, args)

    def execute(self, args: Sequence[Any], options: Options | None = None) -> Emulation:
        """Executes the kernel and returns what it did; the arrays that are given stay as they are."""
        from tunewright.emulator import emulate  # noqa: PLC0415 - as above
        from tunewright.emulator.launch import EVERYTHING  # noqa: PLC0415

        return emulate(self._module, self.shape, self.arguments(args), options or EVERYTHING, self.build.entry)

    def find_misuse(self, done: Emulation) -> str | None:
        """Returns which array the kernel wrote though it is declared as In; None if there is none."""
        for parameter, written in zip(self._parameters, done.written, strict=False):
            if written is not None and written.any() and parameter.role is not None and not parameter.role.writes:
                return f"the kernel writes {parameter.name}, which is In; declare it as Out or InOut"
        return None

    def store(self, done: Emulation, args: Sequence[Any]) -> None:
        """Copies what the kernel wrote to the arrays."""
        for number, left in enumerate(done.arrays[: len(args)]):
            if left is not None and self.is_written(number):
                args[number][...] = left
