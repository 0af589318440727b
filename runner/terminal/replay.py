"""The last bytes a terminal put out, by their offset from its first. Pure."""

from __future__ import annotations


class Replay:
    """Keeps `capacity` bytes; what is added pushes the oldest out."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept = bytearray()
        #: Offset of the oldest byte that is kept, and of the next one that will come.
        self.start = self.end = 0

    def append(self, data: bytes) -> None:
        """Adds what the terminal put out."""
        self._kept += data
        self.end += len(data)
        excess = len(self._kept) - self._capacity
        if excess > 0:
            del self._kept[:excess]
            self.start += excess

    def read(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset` on, which must be from `start` to `end`."""
        first = offset - self.start
        return bytes(self._kept[first : first + limit])
