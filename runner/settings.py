"""Every RUNNER_* variable: its type, its default and what it takes. Nothing else reads them.

A bad value stops the start with its name and what it takes. An unknown RUNNER_ variable is only
warned about: CI systems and Kubernetes put names of their own under that prefix.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from image.quantity import memory as _memory
from image.quantity import seconds as _seconds
from image.quantity import size as _size
from jail.profile import Network

PREFIX = "RUNNER_"


class SettingsError(Exception):
    """A setting that cannot be taken; the message names the variable and what it takes."""


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"\d{1,10}", text.strip()) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(" or ".join(choices))
        return text

    return parse


def _text(text: str) -> str:
    if not text:
        raise ValueError("a text that is not empty")
    return text


def _origins(text: str) -> frozenset[str]:
    """As a browser writes them (RFC 6454 section 6.2), separated by commas."""
    origins = frozenset(each.strip() for each in text.split(","))
    if not all(re.fullmatch(r"https?://[a-z0-9.\-\[\]:]+", each) for each in origins):
        raise ValueError("origins such as https://console.example.org, separated by commas")
    return origins


def _absolute(text: str) -> str:
    if not text.startswith("/") or text == "/" or "\x00" in text or "/../" in f"{text}/":
        raise ValueError("an absolute path below /")
    return text.rstrip("/")


def _program(text: str) -> str:
    path = _absolute(text)
    if shutil.which(path) is None:
        raise ValueError("the absolute path of an executable file")
    return path


def _http_url(text: str) -> str:
    """A base that paths are put behind."""
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        raise ValueError("an http:// or https:// URL without query")
    return text.rstrip("/")


def sidecar_key(text: str) -> bytes:
    """32 bytes as base64url, padded or not (RFC 4648 section 5)."""
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        raise ValueError("32 bytes in base64url")
    return key


def _setting(default: Any, parse: Callable[[str], Any], *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The daemon's settings. Sizes in bytes, times in seconds."""

    host: str = _setting("127.0.0.1", _text)
    port: int = _setting(8080, _whole(0, 65535))
    data_root: str = _setting("/var/lib/sandbox-runner", _absolute)
    session_uid: int = _setting(200000, _whole(1, 4294967293))
    session_gid: int = _setting(200000, _whole(1, 4294967293))
    nsjail: str | None = _setting(None, _program)
    token: str | None = _setting(None, _text, secret=True)
    trusted_proxy: bool = _setting(False, _flag)
    sidecar_key: bytes | None = _setting(None, sidecar_key, secret=True)
    network: Network = _setting(
        Network.NONE, lambda text: Network(_one_of(*(n.value for n in Network))(text))
    )
    run_timeout: float = _setting(30.0, _seconds)
    compile_timeout: float = _setting(10.0, _seconds)
    memory_limit: int = _setting(512 << 20, _memory)
    pids_limit: int = _setting(64, _whole(1, 32768))
    output_limit: int = _setting(1 << 20, _size)
    #: For a client's next bytes, and for all of them, whether it sends or reads.
    idle_timeout: float = _setting(30.0, _seconds)
    transfer_timeout: float = _setting(3600.0, _seconds)
    checkpoint_max_bytes: int = _setting(512 << 20, _size)
    body_max_bytes: int = _setting(50 << 20, _size)
    inline_max_bytes: int = _setting(1 << 20, _size)
    lock_wait: float = _setting(5.0, _seconds)
    spare_jails: int = _setting(1, _whole(0, 64))
    boot_hooks: str | None = _setting(None, _absolute)
    boot_timeout: float = _setting(60.0, _seconds)
    max_jobs: int = _setting(8, _whole(1, 1024))
    queue_wait: float = _setting(30.0, _seconds)
    heartbeat: float = _setting(10.0, _seconds)
    results_max_bytes: int = _setting(32 << 20, _size)
    #: May carry a password.
    file_server_url: str | None = _setting(None, _http_url, secret=True)
    file_server_timeout: float = _setting(30.0, _seconds)
    file_max_bytes: int = _setting(2 << 30, _size)
    input_cache_bytes: int = _setting(1 << 30, _size)
    workspace_max_bytes: int | None = _setting(None, _size)
    #: Kept aside for the daemon's own needs when a guest has filled the disk.
    disk_reserve: int = _setting(8 << 20, _size)
    sessions: bool = _setting(True, _flag)
    terminal_idle_timeout: float = _setting(1800.0, _seconds)
    terminal_total_timeout: float = _setting(8 * 3600.0, _seconds)
    terminal_grace: float = _setting(60.0, _seconds)
    allowed_origins: frozenset[str] = _setting(frozenset(), _origins)
    console: bool = _setting(False, _flag)
    stop_timeout: float = _setting(10.0, _seconds)
    runtimes: str | None = _setting(None, _absolute)
    #: `off` is for diagnosis: what the runner is without controllers, and that it says so.
    cgroups: str = _setting("on", _one_of("on", "off"))
    log_format: str | None = _setting(None, _one_of("json", "text"))

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Parses and checks; raises `SettingsError` for the first variable that is not right."""
        known = {PREFIX + each.name.upper(): each for each in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in sorted(environ.items()):
            if name not in known:
                continue
            try:
                values[known[name].name] = known[name].metadata["parse"](text)
            except ValueError as error:
                raise SettingsError(f"{name} takes {error}") from None
        settings = cls(**values)
        if not settings.is_loopback and not settings.token and not settings.trusted_proxy:
            raise SettingsError(
                f"{PREFIX}HOST is not a loopback address: set {PREFIX}TOKEN, or "
                f"{PREFIX}TRUSTED_PROXY=true where an authenticated proxy is the only way in"
            )
        return settings

    @classmethod
    def unknown_names(cls, environ: Mapping[str, str]) -> list[str]:
        """Variables with our prefix that are no setting of ours: a misspelt limit is no limit."""
        known = {PREFIX + each.name.upper() for each in fields(cls)}
        return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the daemon."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            # A name that is looked up: what it begins with says nothing of where it leads.
            return False
