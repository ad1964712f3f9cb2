"""Sealing: a process that is warmed up counts, or refuses, any further compilation, measurement or miss."""

from __future__ import annotations

from collections import Counter

from tunewright.errors import Sealed


class Seal:
    """Whether this process is sealed, and what happened since."""

    def __init__(self) -> None:
        self.on = self.raises = False
        self.counts: Counter[str] = Counter()

    def close(self, *, raises: bool) -> None:
        """Starts counting; with `raises`, also refuses."""
        self.on, self.raises, self.counts = True, raises, Counter()

    def lift(self) -> None:
        """Allows everything again."""
        self.on = self.raises = False

    def check(self, kind: str, what: str) -> None:
        """Counts a compilation, measurement or miss that is about to happen; raises Sealed if it is refused."""
        if not self.on:
            return
        self.counts[kind] += 1
        if self.raises:
            raise Sealed(
                f"{what}, but this process is sealed: warm it up before `tunewright.seal()`, or ship it in a bundle"
            )


SEAL = Seal()
"""The seal of this process."""


def seal(*, raises: bool = True) -> Counter[str]:
    """Declares this process warmed up: from now on, compilations, measurements and misses are counted, and raise.

    With `raises=False` they are only counted, as `compiles`, `measurements` and `misses`. Returns the counts.
    """
    SEAL.close(raises=raises)
    return SEAL.counts


def unseal() -> None:
    """Allows this process to compile, measure and miss again."""
    SEAL.lift()
