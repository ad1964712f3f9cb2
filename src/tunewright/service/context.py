"""Request context: storage, record cache, token index and metrics, shared by all handlers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from tunewright.errors import StoreError
from tunewright.lazy_logging import LazyLogger
from tunewright.service.cache import RecordCache
from tunewright.service.config import ServiceConfig
from tunewright.service.metrics import Metrics
from tunewright.service.storage import ServiceStorage
from tunewright.service.tokens import Token, TokenIndex, TokenStore

log = LazyLogger(__name__)

T = TypeVar("T")

MAX_QUEUED = 1000
"""Calls that may wait for a thread; further ones are refused at once."""

TOKEN_REFRESH_SECONDS = 1.0
"""How often tokens are read again; a revoked token is refused after at most twice this time."""

UNKNOWN_TOKEN_SECONDS = 0.1
"""How often tokens are read again for an unknown token, which may be new."""

LINES_PER_READ = 500
"""How many lines of a long response are read at once."""


class RequestContext:
    """What all handlers share; blocking calls run in its threads."""

    def __init__(self, config: ServiceConfig) -> None:
        self.config = config
        self.storage = ServiceStorage(config.store)
        self.record_cache = RecordCache(config.cache_bytes, config.fresh)
        self.token_index = TokenIndex()
        self.queued = 0
        self.metrics = Metrics(lambda: max(0, self.queued - config.threads))
        self.signers = _read_signers(config.signers)
        self._threads = ThreadPoolExecutor(config.threads, thread_name_prefix="tunewright store")
        self._tokens_read_at = float("-inf")
        self._token_refresh: asyncio.Task[None] | None = None

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Calls a blocking function in a thread."""
        if self.queued >= MAX_QUEUED:
            raise StoreError("too many requests wait for the store; try again in a moment")
        self.queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
        finally:
            self.queued -= 1

    async def fetch_records(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Returns existing records as fragments of a response (`"digest":record`), from the cache if possible."""
        cached, missing = self.record_cache.get_many(digests)
        self.metrics.warm.inc(len(cached))
        if not missing:
            return cached
        read, stored = self.record_cache.begin_read(), dict[str, bytes]()
        try:
            stored = await self.run(self.storage.records, missing)
        finally:
            stored = self.record_cache.finish_read(read, stored)
        self.metrics.stored.inc(len(stored))
        self.metrics.missed.inc(len(missing) - len(stored))
        return cached | stored

    async def stream_lines(self, make_lines: Callable[[], Iterator[bytes]]) -> AsyncIterator[bytes]:
        """Yields a long response in chunks of lines; the last line has their count, so that truncation is noticed."""
        lines, count = make_lines(), 0
        while chunk := await self.run(lambda: list(islice(lines, LINES_PER_READ))):
            count += len(chunk)
            yield b"\n".join(chunk) + b"\n"
        yield b'{"lines":%d}\n' % count

    async def refresh_tokens(self) -> None:
        """Reads the tokens again if they are old; while the store is unavailable, the last ones stay valid."""
        if (age := time.monotonic() - self._tokens_read_at) >= TOKEN_REFRESH_SECONDS:
            await self._read_tokens_again(wait=age >= 2 * TOKEN_REFRESH_SECONDS)

    async def find_token(self, text: str) -> Token | None:
        """Returns the token with this text. Unknown ones cause a read of the store, shared by concurrent requests."""
        await self.refresh_tokens()
        if (token := self.token_index.find(text)) is None and text.startswith("tw_"):
            await asyncio.sleep(self._tokens_read_at + UNKNOWN_TOKEN_SECONDS - time.monotonic())
            await self._read_tokens_again(wait=True)
            token = self.token_index.find(text)
        return token

    async def _read_tokens_again(self, *, wait: bool) -> None:
        if self._token_refresh is None or self._token_refresh.done():
            self._token_refresh = asyncio.get_running_loop().create_task(self._read_tokens())
        if wait:
            await asyncio.shield(self._token_refresh)

    async def _read_tokens(self) -> None:
        try:
            self.token_index.replace(await self.run(TokenStore(self.storage.primary).all))
        except StoreError as error:
            log.warning("cannot read the tokens: %s", error)
            if not self.has_tokens:
                return
        self._tokens_read_at = time.monotonic()

    @property
    def has_tokens(self) -> bool:
        """Whether the tokens were read at least once."""
        return self._tokens_read_at != float("-inf")

    def close(self) -> None:
        """Waits for running calls, then ends the threads."""
        self._threads.shutdown(wait=True)


def _read_signers(path: str) -> dict[bytes, str]:
    """Returns the trusted signers of a file; without a file, none are required."""
    if not path:
        return {}
    from tunewright.stores.bundle.signers import read_signers  # noqa: PLC0415 - needs `cryptography`

    if not (signers := read_signers(Path(path).expanduser()).require_single(path)):
        raise StoreError(f"{path} lists no signer; add the public keys of those you trust")
    return signers
