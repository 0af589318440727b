"""GET /console: a page to work in. Off unless RUNNER_CONSOLE=true.

The page and its files need no token: they say nothing of this VM. What the page does is asked of
the other routes, with the token that its user gives it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from aiohttp import web

from image.console import PAGE, Asset, load
from runner.api.conditional import matches
from runner.api.contract import CACHE_CONTROL, ETAG, IF_NONE_MATCH, Answer, Parameter, offers
from runner.errors import NotFound
from runner.settings import Settings

#: Empty where the console is off.
FILES: web.AppKey[Mapping[str, Asset]] = web.AppKey("console_files", Mapping)
#: Written into the page in place of this word: xterm.js makes <style> elements at run time, and
#: only who knows the page's nonce may (CSP level 3, section 6.7.3).
_NONCE = b"{{nonce}}"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'nonce-{nonce}'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def prepare(app: web.Application, settings: Settings) -> None:
    """Reads the files, if they are to be served. Before serving: it blocks."""
    app[FILES] = load() if settings.console else {}


@offers(
    Answer(200, "The page.", media=("text/html",), headers=(CACHE_CONTROL,)), raises=(NotFound,)
)
async def page(request: web.Request) -> web.Response:
    """The page, with a policy that lets in nothing but its own files."""
    found = request.app[FILES].get(PAGE)
    if found is None:
        raise NotFound
    nonce = secrets.token_urlsafe(18)
    return web.Response(
        body=found.content.replace(_NONCE, nonce.encode()),
        content_type="text/html",
        charset="utf-8",
        headers=_HEADERS
        | {"Content-Security-Policy": _POLICY.format(nonce=nonce), "Cache-Control": "no-store"},
    )


@offers(
    Answer(200, "The file.", media=("text/*", "image/*"), headers=(ETAG, CACHE_CONTROL)),
    Answer(304, "The caller has it.", headers=(ETAG, CACHE_CONTROL)),
    parameters=(
        Parameter("path", "name", "As the page has it.", required=True, raises=(NotFound,)),
        IF_NONE_MATCH,
    ),
)
async def asset(request: web.Request) -> web.Response:
    """One of its files, by its exact name."""
    found = request.app[FILES].get(request.match_info["name"])
    if found is None or found.media_type == "text/html":
        raise NotFound
    headers = _HEADERS | {"ETag": found.etag}
    if matches(request.headers.getall("If-None-Match", []), found.etag):
        return web.Response(status=304, headers=headers)
    return web.Response(
        body=found.content, content_type=found.media_type, charset="utf-8", headers=headers
    )
