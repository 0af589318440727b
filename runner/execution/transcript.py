"""What an execution has printed so far: text in order of arrival, for any number of readers.

Holds no more than the jails keep of their streams. Who reads slowly slows the program down, as long
as there is a program; nobody makes the daemon remember more. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
import codecs
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from jail.facts import Facts
from jail.pump import StreamName

StageName = Literal["compile", "run"]
Mark = Literal["started", "stdout", "stderr"]

#: So far the quickest reader may be behind before the program has to wait for it.
WINDOW_BYTES = 64 << 10
#: A reader gets no more at once: what it writes to its client waits in memory until it is sent.
EVENT_BYTES = 64 << 10

_MARKS: tuple[Mark, ...] = ("started", "stdout", "stderr")
_STAGES: tuple[StageName, ...] = ("compile", "run")
_CODE_BITS = 3


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a stage; `text` is empty for `started`."""

    mark: Mark
    stage: StageName
    text: str


class Transcript:
    """Written to by one execution's stages, one after the other; complete after `close`.

    The text is kept as UTF-8, and one number for each change of the stream: a program that writes
    single bytes to both streams in turn costs nine bytes for each, not an object.
    """

    def __init__(self) -> None:
        self._text = bytearray()
        #: For each part: where it ends in the text, and in the low bits which mark and stage.
        self._parts = array("Q")
        self._readers: set[Reader] = set()
        self._moved = asyncio.Event()
        self._taken = asyncio.Event()
        self._closed = False
        self._discarded = False

    def stage(self, name: StageName) -> Capture:
        """The sink for the next stage's jail."""
        return Capture(self, name)

    def reader(self) -> Reader:
        """A new reader, from the beginning. Its owner closes it, or the program waits for it."""
        reader = Reader(self)
        self._readers.add(reader)
        return reader

    def close(self) -> None:
        """Nothing comes any more; readers get what there is, and then the end."""
        self._closed = True
        self._move()

    def discard(self) -> None:
        """Forgets the text, once its last reader has left: what is over has its result."""
        self._discarded = True
        if not self._readers:
            self._text.clear()
            del self._parts[:]

    def left(self, reader: Reader) -> None:
        """This reader is gone: nobody waits for it any more."""
        self._readers.discard(reader)
        self.read_on()
        if self._discarded:
            self.discard()

    def text_of(self, begin: int, end: int) -> str:
        """The text between two positions, both between characters."""
        return self._text[begin:end].decode("utf-8")

    @property
    def size(self) -> int:
        """How many bytes of text there are."""
        return len(self._text)

    def append(self, mark: Mark, stage: StageName, text: str) -> None:
        """Adds to the part that is being written, or begins one."""
        if mark != "started" and not text:
            return
        self._text += text.encode("utf-8")
        code = _MARKS.index(mark) << 1 | _STAGES.index(stage)
        part = len(self._text) << _CODE_BITS | code
        if self._parts and self._parts[-1] & (1 << _CODE_BITS) - 1 == code:
            self._parts[-1] = part
        else:
            self._parts.append(part)
        self._move()

    async def keep_pace(self, released: asyncio.Event) -> None:
        """Waits until a reader has come close, or until `released`.

        The quickest counts: a client that lost its connection without either side knowing, and that
        has asked again, must not be held up by what it left behind.
        """
        while not released.is_set() and self._lag() > WINDOW_BYTES:
            await self._taken.wait()

    def read_on(self) -> None:
        """A reader has moved or left, or need not be waited for: whoever keeps pace looks again."""
        self._taken.set()
        self._taken = asyncio.Event()

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _lag(self) -> int:
        return min((len(self._text) - reader.passed_on for reader in self._readers), default=0)


class Reader:
    """Follows a transcript from its beginning to its end."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._part = 0
        self._position = 0
        #: How far everything has been passed on: asking for more says that it has.
        self.passed_on = 0

    async def next(self) -> list[Event]:
        """What is new, as soon as there is something; empty at the end, and only there."""
        transcript = self._transcript
        self.passed_on = self._position
        transcript.read_on()
        while not (events := list(self._take())) and not transcript._closed:
            await transcript._moved.wait()
        return events

    def close(self) -> None:
        """The program no longer waits for this reader."""
        self._transcript.left(self)

    def _take(self) -> Iterator[Event]:
        text, parts = self._transcript._text, self._transcript._parts
        stop = self._cut(min(self._position + EVENT_BYTES, len(text)))
        while self._part < len(parts):
            part = parts[self._part]
            end = min(part >> _CODE_BITS, stop)
            mark, stage = _MARKS[part >> 1 & 3], _STAGES[part & 1]
            if mark == "started":
                self._part += 1
                yield Event(mark, stage, "")
            elif end > self._position:
                begin, self._position = self._position, end
                yield Event(mark, stage, self._transcript.text_of(begin, end))
            elif self._part + 1 < len(parts) and part >> _CODE_BITS == self._position:
                self._part += 1
            else:
                # The last part may yet grow.
                return

    def _cut(self, position: int) -> int:
        """The nearest place before `position` that is between two characters (RFC 3629)."""
        text = self._transcript._text
        while position < len(text) and text[position] & 0xC0 == 0x80:
            position -= 1
        return position


class Capture:
    """One stage's way into the transcript: a `jail.pump.OutputSink`."""

    def __init__(self, transcript: Transcript, stage: StageName) -> None:
        self._transcript = transcript
        self._stage = stage
        self._begin = transcript.size
        decoder = codecs.getincrementaldecoder("utf-8")
        # Bytes that are no UTF-8 become U+FFFD; a sequence that is cut waits for its rest.
        self._decoders = {name: decoder("replace") for name in ("stdout", "stderr")}
        self._seen: dict[StreamName, int] = {"stdout": 0, "stderr": 0}
        self._released = asyncio.Event()
        self._started = False

    def started(self) -> None:
        """The command has been exec'd. What it prints can be here before anybody says so."""
        if not self._started:
            self._started = True
            self._transcript.append("started", self._stage, "")

    async def __call__(self, stream: StreamName, data: bytes) -> None:
        """Takes bytes as they come; returns when the readers are ready for more."""
        self._take(stream, data)
        await self._transcript.keep_pace(self._released)

    def release(self) -> None:
        """The command is over: there is nobody left to be slowed down."""
        self._released.set()
        self._transcript.read_on()

    def complete(self, facts: Facts) -> str:
        """Adds what never came through the sink; returns the stage's text in order of arrival."""
        self._rest("stdout", facts.stdout.kept)
        self._rest("stderr", facts.stderr.kept)
        return self._transcript.text_of(self._begin, self._transcript.size)

    def _rest(self, stream: StreamName, kept: bytes) -> None:
        self._take(stream, kept[self._seen[stream] :], final=True)

    def _take(self, stream: StreamName, data: bytes, *, final: bool = False) -> None:
        if data:
            self.started()
        self._seen[stream] += len(data)
        text = self._decoders[stream].decode(data, final)
        self._transcript.append(stream, self._stage, text)
