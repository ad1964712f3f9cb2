"""Desk: where requests meet the archive: threads for what blocks, warm records for what does not, tokens, meters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from tunewright.errors import StoreError
from tunewright.remarks import Remarks
from tunewright.service.archive import Archive
from tunewright.service.meters import Meters
from tunewright.service.serving import Serving
from tunewright.service.tokens import Ring, Token, Tokens
from tunewright.service.warm import Warm

log = Remarks(__name__)

T = TypeVar("T")

MOST_QUEUED = 1000
"""Calls that may wait for a thread; more are turned away at once rather than kept waiting."""

TOKENS_SECONDS = 1.0
"""How often tokens are read again: after twice that long at the latest, a revoked one opens nothing."""

GUESSES_SECONDS = 0.1
"""How often they are read again for a token that nobody knows: it may be new."""

LINES = 500
"""How many lines of a long answer are read at once."""


class Desk:
    """All that handlers need."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.archive = Archive(serving.store)
        self.warm = Warm(serving.warm, serving.fresh)
        self.ring = Ring()
        self.queued = 0
        self.meters = Meters(lambda: max(0, self.queued - serving.threads))
        self.signers = _signers(serving.signers)
        self._threads = ThreadPoolExecutor(serving.threads, thread_name_prefix="tunewright store")
        self._known = float("-inf")
        self._learning: asyncio.Task[None] | None = None

    async def call(self, what: Callable[..., T], *args: Any) -> T:
        """What `what` returns, from a thread."""
        if self.queued >= MOST_QUEUED:
            raise StoreError("too much is asked at once; try again in a moment")
        self.queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, what, *args)
        finally:
            self.queued -= 1

    async def parts(self, digests: Sequence[str]) -> dict[str, bytes]:
        """The records there are, as parts of an answer (`"digest":record`), warm ones first."""
        found, missing = self.warm.get_many(digests)
        self.meters.warm.inc(len(found))
        if not missing:
            return found
        flight, fresh = self.warm.begin(), dict[str, bytes]()
        try:
            fresh = await self.call(self.archive.records, missing)
        finally:
            fresh = self.warm.end(flight, fresh)
        self.meters.stored.inc(len(fresh))
        self.meters.missed.inc(len(missing) - len(fresh))
        return found | fresh

    async def lines(self, make: Callable[[], Iterator[bytes]]) -> AsyncIterator[bytes]:
        """A long answer, a line each, some at a time; the last one says how many there were, so that none is lost."""
        answer, count = make(), 0
        while part := await self.call(lambda: list(islice(answer, LINES))):
            count += len(part)
            yield b"\n".join(part) + b"\n"
        yield b'{"lines":%d}\n' % count

    async def know_tokens(self) -> None:
        """See that the tokens known are not too old; while the store is away, those known last are good."""
        if (age := time.monotonic() - self._known) >= TOKENS_SECONDS:
            await self._look_again(wait=age >= 2 * TOKENS_SECONDS)

    async def find_token(self, text: str) -> Token | None:
        """The token that a text is. For one that nobody knows the store is asked, once for all who guess meanwhile."""
        await self.know_tokens()
        if (found := self.ring.find(text)) is None and text.startswith("tw_"):
            await asyncio.sleep(self._known + GUESSES_SECONDS - time.monotonic())
            await self._look_again(wait=True)
            found = self.ring.find(text)
        return found

    async def _look_again(self, *, wait: bool) -> None:
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._learn())
        if wait:
            await asyncio.shield(self._learning)

    async def _learn(self) -> None:
        try:
            self.ring.know(await self.call(Tokens(self.archive.truth).all))
        except StoreError as error:
            log.warning("tokens cannot be read: %s", error)
            if not self.knows_tokens:
                return
        self._known = time.monotonic()

    @property
    def knows_tokens(self) -> bool:
        """Whether tokens were read at least once."""
        return self._known != float("-inf")

    def close(self) -> None:
        """Finish what was begun."""
        self._threads.shutdown(wait=True)


def _signers(path: str) -> dict[bytes, str]:
    """Who may sign what is published; nobody must, where no list is given."""
    if not path:
        return {}
    from tunewright.stores.bundle import signing  # noqa: PLC0415 - needs `cryptography`

    if not (found := signing.allowed(Path(path).expanduser())):
        raise StoreError(f"{path} lists no signer; put the public keys there of those whom you trust")
    return found
