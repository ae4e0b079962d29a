"""A logging handler that nobody ever waits for: lines are kept in a bounded queue, and a thread of its own writes them.

A pipe that nobody reads, or a disk that is full, costs lines and nothing else; how many were left out is told once
lines are taken again. Knows no line's content.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from contextlib import suppress

MOST_LINES = 2000
"""Some seconds of the busiest server, half a megabyte."""

LAST_S = 1.0
"""Seconds that the end of a process waits for its last lines to be taken."""


class LineWriter(logging.Handler):
    """A writer to a file descriptor, past the stream's own lock: that one is held for as long as a write takes."""

    def __init__(self, descriptor: int = 2, most: int = MOST_LINES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[bytes | threading.Event | None] = queue.Queue(most)
        self._left_out = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line if there is room for it."""
        if self._closed:
            return
        try:
            line = self.format(record) + "\n"
        except Exception:  # noqa: BLE001 - a line that can't be written must not end the work that it reports
            self.handleError(record)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
            self._thread.start()
        try:
            self._lines.put_nowait(line.encode("utf-8", "backslashreplace"))
        except queue.Full:
            self._left_out += 1

    def flush(self) -> None:
        """Wait until what is there was written, but for LAST_S at most."""
        if self._thread is None:
            return
        written = threading.Event()
        try:
            self._lines.put(written, timeout=LAST_S)
        except queue.Full:
            return
        written.wait(LAST_S)

    def close(self) -> None:
        """Write what is there, and no more. May be called twice."""
        if not self._closed:
            self.flush()
        self._closed = True
        with suppress(queue.Full):
            self._lines.put_nowait(None)
        super().close()

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            if left_out := self._left_out:
                self._left_out = 0
                line += b"%d lines were left out: nobody took them in time\n" % left_out
            self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError:  # a full disk, or a pipe whose reader is gone
            self._left_out += 1
