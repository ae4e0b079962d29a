"""A reader of the events that chat completions servers stream, whatever content type they declare. Sans I/O.

Events are those of ``text/event-stream``. A line that is a JSON object itself, as in ``application/x-ndjson``, is an
event too.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")
_BOM = "\ufeff"


class EventStreamReader:
    """The reader of one stream. Feed the text as it arrives, and flush at its end.

    Each piece is searched once, so an event of many pieces costs no more than its length.
    """

    def __init__(self) -> None:
        self._line: list[str] = []  # pieces of the line that is not complete yet
        self._data: list[str] = []
        self._first = True
        self.held = 0
        """Characters of the event that is not complete yet."""

    def feed(self, text: str) -> list[str]:
        """Return the data of each event that is complete by now."""
        if self._first and text:
            text = text.removeprefix(_BOM)
            self._first = False
        if self._line and self._line[-1] == "\r":  # it may be the first half of a line's end
            text = self._line.pop() + text
            self.held -= 1
        *lines, rest = _LINE_END.split(text)
        events = [event for line in lines for event in self._read(self._whole(line))]
        self._keep(rest.removesuffix("\r"))
        self._keep(rest[len(rest.removesuffix("\r")) :])
        return events

    def flush(self) -> list[str]:
        """Return the last event, where the stream ends without an empty line and not within its JSON."""
        line = self._whole("")
        return self.feed(f"{line if line.rstrip().endswith(('}', ']')) else ''}\n\n")

    def _keep(self, piece: str) -> None:
        if piece:
            self._line.append(piece)
            self.held += len(piece)

    def _whole(self, end: str) -> str:
        """Return the current line, which ends with ``end``, and begin the next one."""
        line = "".join([*self._line, end])
        self.held -= len(line) - len(end)
        self._line = []
        return line

    def _read(self, line: str) -> list[str]:
        if line.startswith("{"):
            return [line]
        if not line:
            event = "\n".join(self._data)
            self.held -= sum(map(len, self._data))
            self._data = []
            return [event] if event else []
        field, _, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
            self.held += len(self._data[-1])
        return []
