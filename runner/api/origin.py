"""Whether the page that a browser asks for is one of ours (RFC 6454, RFC 6455 section 10.2).

A browser lets any page open a WebSocket to any host, and says only afterwards, in `Origin`, which
page it was. Programs that are not browsers send none.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from aiohttp import web

from runner.errors import OriginRefused
from runner.settings import Settings


def refuse_foreign_page(request: web.Request, settings: Settings) -> None:
    """Raises `OriginRefused` unless the page is from this host or from an allowed origin."""
    origins = request.headers.getall("Origin", [])
    if not origins:
        return
    if len(origins) > 1 or not _is_ours(origins[0], request.headers.get("Host", ""), settings):
        raise OriginRefused("add it to RUNNER_ALLOWED_ORIGINS if it should be let in")


def _is_ours(origin: str, host: str, settings: Settings) -> bool:
    if origin in settings.allowed_origins:
        return True
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower():
        return False
    # A name of the attacker's own can be made to mean this machine (DNS rebinding). Where nothing
    # else keeps strangers out, the page must have come from an address that means nothing else.
    return settings.token is not None or not settings.is_loopback or _is_local(parts.hostname)


def _is_local(name: str | None) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name or "").is_loopback
    except ValueError:
        return False
