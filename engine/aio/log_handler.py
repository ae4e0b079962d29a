"""A logging handler that never blocks its caller: a bounded queue holds the lines, and a thread writes them.

If nobody reads the pipe, or the disk is full, lines are dropped. Their number is logged once writing works again.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from contextlib import suppress

MOST_LINES = 2000
"""Maximum number of queued lines: a few seconds of the busiest server, half a megabyte."""

LAST_S = 1.0
"""Maximum seconds that ``flush`` and ``close`` wait for the last lines to be written."""


class LineWriter(logging.Handler):
    """A log handler that writes to a file descriptor.

    It bypasses the stream object: a stream holds its lock for as long as a write takes.
    """

    def __init__(self, descriptor: int = 2, most: int = MOST_LINES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[bytes | threading.Event | None] = queue.Queue(most)
        self._left_out = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line; drop and count it if the queue is full."""
        if self._closed:
            return
        try:
            line = self.format(record) + "\n"
        except Exception:  # noqa: BLE001 - a log line that cannot be formatted must not break its caller
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
        """Wait until all queued lines are written, for a few seconds at most (see LAST_S)."""
        if self._thread is None:
            return
        written = threading.Event()
        try:
            self._lines.put(written, timeout=LAST_S)
        except queue.Full:
            return
        written.wait(LAST_S)

    def close(self) -> None:
        """Write the queued lines and accept no further ones. May be called twice."""
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
                line += b"%d log lines were dropped: the output was blocked\n" % left_out
            self._write(line)

    def _write(self, line: bytes) -> None:
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError:  # a full disk, or a pipe without a reader
            self._left_out += 1
