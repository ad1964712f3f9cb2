"""Bodies: what a request brings, bounded in bytes and in time, unpacked without being blown up."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Any

from litestar.exceptions import HTTPException
from litestar.types import Receive

_ENCODINGS = (b"", b"identity", b"gzip")


class Intake:
    """Receives the body of a request, as an ASGI application expects it: at most so much, within so many seconds."""

    def __init__(self, receive: Receive, encoding: bytes, most: int, seconds: float) -> None:
        if encoding not in _ENCODINGS:
            raise HTTPException(status_code=415, detail="send it as it is, or packed by gzip")
        self._receive, self._left = receive, most
        self._until = time.monotonic() + seconds
        self._unpack = zlib.decompressobj(31) if encoding == b"gzip" else None
        self._most, self._whole = most, False

    async def __call__(self) -> Any:
        """The next part of it; when it is whole, whatever else there is to say, such as that they hung up."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout(self._until - time.monotonic()):
                message: Any = await self._receive()
        except TimeoutError as error:
            raise HTTPException(status_code=408, detail="the body took too long to arrive") from error
        if message["type"] != "http.request":
            return message
        self._whole = not message.get("more_body", False)
        body = self._unpacked(message.get("body", b""), last=self._whole)
        self._left -= len(body)
        if self._left < 0:
            raise HTTPException(status_code=413, detail=f"the body has over {self._most:,} bytes; send less at once")
        return {**message, "body": body}

    def _unpacked(self, part: bytes, *, last: bool) -> bytes:
        if self._unpack is None:
            return part
        try:
            body = self._unpack.decompress(part, self._left + 1)  # one more than may be, which shows that there is more
        except zlib.error as error:
            raise HTTPException(status_code=400, detail="the body says it is packed by gzip, and is not") from error
        if last and len(body) <= self._left and not self._unpack.eof:
            raise HTTPException(status_code=400, detail="the packed body ends too early")
        return body
