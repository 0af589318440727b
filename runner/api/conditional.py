"""Conditional requests (RFC 9110 section 13)."""

from __future__ import annotations

from collections.abc import Iterable


def names_strongly(header_values: Iterable[str], etag: str) -> bool:
    """Whether If-Match names this entity tag; strong comparison, as section 13.1.1 asks."""
    named = [tag.strip() for value in header_values for tag in value.split(",")]
    return "*" in named or etag in named


def matches(header_values: Iterable[str], etag: str) -> bool:
    """Whether If-None-Match names this entity tag; weak comparison, as section 13.1.2 asks."""
    named = [tag.strip() for value in header_values for tag in value.split(",")]
    return "*" in named or etag in [tag.removeprefix("W/") for tag in named]
