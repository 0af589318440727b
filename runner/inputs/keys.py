"""The name of an object in the cache: what a control plane computes too. Pure."""

from __future__ import annotations

import hashlib
import re

#: 64 lowercase hex digits; also the form in which a client gives one.
KEY = re.compile(r"[0-9a-f]{64}")


def cache_key(storage_session_id: str, object_id: str) -> str:
    """SHA-256 (hex) of storage session, NUL, object id."""
    named = b"\0".join(
        text.encode("utf-8", "surrogatepass") for text in (storage_session_id, object_id)
    )
    return hashlib.sha256(named).hexdigest()
