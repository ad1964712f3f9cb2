"""Sealing: from now on a hit means warm; whatever still compiles, measures or misses is counted, or refused."""

from __future__ import annotations

from collections import Counter

from tunewright.errors import Sealed


class Seal:
    """Whether this process should be done with preparing, and what it did since."""

    def __init__(self) -> None:
        self.on = self.raises = False
        self.counts: Counter[str] = Counter()

    def close(self, *, raises: bool) -> None:
        """Count from here on; refuse if it `raises`."""
        self.on, self.raises, self.counts = True, raises, Counter()

    def lift(self) -> None:
        """Let everything happen again."""
        self.on = self.raises = False

    def note(self, kind: str, what: str) -> None:
        """A compile, measurement or miss is about to happen."""
        if not self.on:
            return
        self.counts[kind] += 1
        if self.raises:
            raise Sealed(
                f"{what}, after this process was sealed: warm it up before `tunewright.seal()`, or bring it in a bundle"
            )


SEAL = Seal()
"""The one of this process."""


def seal(*, raises: bool = True) -> Counter[str]:
    """Say that this process has all it needs; what it still compiles, measures or misses is counted here, and raises.

    With `raises=False` it is only counted: `compiles`, `measurements`, `misses`.
    """
    SEAL.close(raises=raises)
    return SEAL.counts


def unseal() -> None:
    """Let this process compile, measure and miss again."""
    SEAL.lift()
