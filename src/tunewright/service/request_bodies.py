"""Request bodies, limited in bytes and time, also while they are decompressed."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Any

from litestar.exceptions import HTTPException
from litestar.types import Receive

_ENCODINGS = (b"", b"identity", b"gzip")


class BoundedBody:
    """An ASGI `receive` that passes on at most `max_bytes` of a body, within some seconds."""

    def __init__(self, receive: Receive, encoding: bytes, max_bytes: int, seconds: float) -> None:
        if encoding not in _ENCODINGS:
            raise HTTPException(status_code=415, detail="unknown content encoding; send gzip or no encoding")
        self._receive, self._bytes_left = receive, max_bytes
        self._deadline = time.monotonic() + seconds
        self._decompressor = zlib.decompressobj(31) if encoding == b"gzip" else None
        self._max_bytes, self._is_complete = max_bytes, False

    async def __call__(self) -> Any:
        """Returns the next part of the body; once it is complete, any other message, such as a disconnect."""
        if self._is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                message: Any = await self._receive()
        except TimeoutError as error:
            raise HTTPException(status_code=408, detail="the body took too long to arrive") from error
        if message["type"] != "http.request":
            return message
        self._is_complete = not message.get("more_body", False)
        body = self._decompress(message.get("body", b""), is_last=self._is_complete)
        self._bytes_left -= len(body)
        if self._bytes_left < 0:
            raise HTTPException(
                status_code=413, detail=f"the body has more than {self._max_bytes:,} bytes; send smaller batches"
            )
        return {**message, "body": body}

    def _decompress(self, part: bytes, *, is_last: bool) -> bytes:
        if self._decompressor is None:
            return part
        try:
            body = self._decompressor.decompress(part, self._bytes_left + 1)  # one byte more shows that there is more
        except zlib.error as error:
            raise HTTPException(status_code=400, detail="the body is not valid gzip") from error
        if is_last and len(body) <= self._bytes_left and not self._decompressor.eof:
            raise HTTPException(status_code=400, detail="the gzip body ends too early")
        return body
