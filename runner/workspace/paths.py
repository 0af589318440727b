"""Names from outside become a `SafePath` here and nowhere else.

Source of the limits: Linux NAME_MAX (255 bytes a component) and the wire contract (256 bytes and
10 components a name).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runner.errors import InvalidPath

NAME_BYTES_MAX = 256
COMPONENT_BYTES_MAX = 255
DEPTH_MAX = 10


@dataclass(frozen=True, slots=True, order=True)
class SafePath:
    """A relative path of plain components: no empty one, no `.`, no `..`, no NUL, no slash.

    It is safe to hand to `tree` component by component. It says nothing of what is at that path.
    """

    parts: tuple[bytes, ...]

    @classmethod
    def parse(cls, untrusted_name: str, *, field: str = "name") -> SafePath:
        """Takes a canonical relative name or raises `InvalidPath` naming `field` and `reason`."""

        def refuse(reason: str, detail: str) -> InvalidPath:
            return InvalidPath(detail, field=field, reason=reason)

        if not untrusted_name:
            raise refuse("empty", "it is empty")
        if "\x00" in untrusted_name:
            raise refuse("nul", "it contains NUL")
        if untrusted_name.startswith("/"):
            raise refuse("absolute", "it is absolute")
        try:
            raw = untrusted_name.encode("utf-8")
        except UnicodeEncodeError:
            raise refuse("encoding", "it is not valid Unicode") from None
        parts = tuple(raw.split(b"/"))
        if any(part == b".." for part in parts):
            raise refuse("traversal", "it contains ..")
        if any(part in (b"", b".") for part in parts):
            raise refuse("not_canonical", "it contains an empty or . component")
        if any(len(part) > COMPONENT_BYTES_MAX for part in parts):
            raise refuse("component_too_long", f"a component is over {COMPONENT_BYTES_MAX} bytes")
        if len(raw) > NAME_BYTES_MAX:
            raise refuse("too_long", f"it is over {NAME_BYTES_MAX} bytes")
        if len(parts) > DEPTH_MAX:
            raise refuse("too_deep", f"it has over {DEPTH_MAX} components")
        return cls(parts)

    @classmethod
    def of_parts(cls, parts: Iterable[bytes]) -> SafePath:
        """From components that `tree` itself read from a directory: any length, still plain."""
        checked = tuple(parts)
        if not checked:
            raise InvalidPath("it is empty", reason="empty")
        if any(part in (b"", b".", b"..") or b"/" in part or b"\x00" in part for part in checked):
            raise InvalidPath("a component is not plain", reason="not_canonical")
        return cls(checked)

    @property
    def name(self) -> bytes:
        """The last component."""
        return self.parts[-1]

    @property
    def parent(self) -> tuple[bytes, ...]:
        """The components above the last."""
        return self.parts[:-1]

    def __bytes__(self) -> bytes:
        return b"/".join(self.parts)

    def __str__(self) -> str:
        """For people, logs and JSON: bytes that are not UTF-8 become surrogate escapes."""
        return bytes(self).decode("utf-8", "surrogateescape")


def refuse_conflicts(paths: Iterable[tuple[str, SafePath]]) -> None:
    """Raises `InvalidPath` when two paths are equal or one lies under another.

    `paths` pairs each path with the field that named it.
    """
    claimed: dict[tuple[bytes, ...], str] = {}
    listed = list(paths)
    for field, path in listed:
        if path.parts in claimed:
            raise InvalidPath(
                f"{claimed[path.parts]} has the same destination", field=field, reason="duplicate"
            )
        claimed[path.parts] = field
    for field, path in listed:
        for depth in range(1, len(path.parts)):
            above = claimed.get(path.parts[:depth])
            if above is not None:
                raise InvalidPath(
                    f"it lies under the file of {above}", field=field, reason="nested"
                )
