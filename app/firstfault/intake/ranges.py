"""How are the bytes of a remote object read? Block by block, the next ones fetched meanwhile.

A stream holds a few blocks, never the object: what a diagnosis needs in memory does not grow with it.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

FIRST_BYTES = 512 * 1024
"""Fetched at a new place, where a window of lines may be all that is wanted."""

BLOCK_BYTES = 4 * 1024 * 1024
AHEAD = 2
"""Blocks under way while one is read, once reading goes on in order."""

Fetch = Callable[[int, int], bytes]
"""Bytes from `start` up to `end` of the object. Raises OSError."""


class BlockStream(io.RawIOBase):
    """An object of `size` bytes as a raw stream. open_fetch is called at the first byte beyond `head`.

    eager: the stream will be read to its end, so whole blocks are fetched from the start.
    """

    def __init__(
        self, size: int, open_fetch: Callable[[], Fetch], head: bytes = b"", eager: bool = False
    ) -> None:
        super().__init__()
        self._size = size
        self._open_fetch = open_fetch
        self._fetch: Fetch | None = None
        self._head = head[:size]
        self._eager = eager
        self._at = 0
        self._start = -1
        self._block = b""
        self._coming: deque[tuple[int, int, Future[bytes]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        if self._at < len(self._head):
            data = self._head[self._at : self._at + wanted]
        else:
            if not self._start <= self._at < self._start + len(self._block):
                self._turn()
            data = self._block[self._at - self._start :][:wanted]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._coming.clear()
        self._block = b""
        super().close()

    def _turn(self) -> None:
        """Make the block that holds the position the one in hand."""
        if self._fetch is None:
            self._fetch = self._open_fetch()
        in_order = self._at == self._start + len(self._block)
        while self._coming and self._coming[0][0] != self._at:
            self._coming.popleft()[2].cancel()
        self._block = b""
        if self._coming:
            start, end, future = self._coming.popleft()
            block = future.result()
        else:
            size = BLOCK_BYTES if in_order or self._eager else FIRST_BYTES
            start, end = self._at, min(self._at + size, self._size)
            block = self._fetch(start, end)
        if len(block) != end - start:
            raise OSError(f"the server sent {len(block)} of {end - start} bytes at byte {start}")
        self._start, self._block = start, block
        if in_order or self._eager:
            self._look_ahead(end)

    def _look_ahead(self, end: int) -> None:
        last = self._coming[-1][1] if self._coming else end
        while len(self._coming) < AHEAD and last < self._size:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="fetch")
            upto = min(last + BLOCK_BYTES, self._size)
            assert self._fetch is not None
            self._coming.append((last, upto, self._pool.submit(self._fetch, last, upto)))
            last = upto
