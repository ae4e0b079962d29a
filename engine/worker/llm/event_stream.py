"""A reader of the events that chat completions servers stream, whatever content type they declare. Sans I/O.

Events are those of ``text/event-stream``. A line that is a JSON object itself, as in ``application/x-ndjson``, is an
event too.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")
_BOM = "\ufeff"


class EventStreamReader:
    """The reader of one stream. Feed the text as it arrives, and flush at its end."""

    def __init__(self) -> None:
        self._line = ""
        self._data: list[str] = []
        self._first = True

    @property
    def held(self) -> int:
        """Characters of the event that is not complete yet."""
        return len(self._line) + sum(map(len, self._data))

    def feed(self, text: str) -> list[str]:
        """Return the data of each event that is complete by now."""
        if self._first and text:
            text = text.removeprefix(_BOM)
            self._first = False
        *lines, self._line = _LINE_END.split(self._line + text)
        return [event for line in lines for event in self._read(line)]

    def flush(self) -> list[str]:
        """Return the last event, where the stream ends without an empty line and not within its JSON."""
        line = self._line if self._line.rstrip().endswith(("}", "]")) else ""
        self._line = ""
        return self.feed(f"{line}\n\n")

    def _read(self, line: str) -> list[str]:
        if line.startswith("{"):
            return [line]
        if not line:
            event = "\n".join(self._data)
            self._data = []
            return [event] if event else []
        field, _, value = line.partition(":")
        if field == "data":
            self._data.append(value.removeprefix(" "))
        return []
