"""Logs: one JSON object a line on stderr, or plain text on a terminal.

A request is one wide event, written when its response is done. No secret, no file content and no
program output is ever logged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

#: What every LogRecord has of itself; anything else came by `extra` and belongs to the event.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class JsonFormatter(logging.Formatter):
    """`time` (UTC, RFC 3339), `level`, `logger`, `event`, then the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; values that JSON does not know are written as text."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        event: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        } | _extras(record)
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str, ensure_ascii=True)


class TextFormatter(logging.Formatter):
    """For people: time, level, event, and the fields as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = " ".join(f"{name}={value}" for name, value in _extras(record).items())
        line = f"{moment} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _without_the_senders_bytes(record: logging.LogRecord) -> bool:
    """What is no HTTP is told in a line: its bytes may be a secret, and nothing of ours failed."""
    if record.exc_info and isinstance(record.exc_info[1], HttpProcessingError):
        record.msg, record.args, record.exc_info = "a request was not HTTP", (), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


def configure(log_format: str | None) -> None:
    """Sets the process's only handler; `log_format` None means text exactly on a terminal."""
    chosen = log_format or ("text" if sys.stderr.isatty() else "json")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if chosen == "text" else JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # Its access log and its per-error lines would say a second time what the wide event says.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(_without_the_senders_bytes)
