"""Writes the recording of one session, in a thread of its own."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from app.recording.lines import AUDIO, Direction, audio_path, wav_header, without_secrets
from app.telemetry import log

MOST_BYTES = 1_000_000_000
"""Maximum size of a recording: more than an hour of speech in both directions."""

Line = tuple[float, Direction, "str | dict[str, Any]"]


class RecordingWriter:
    """Appends lines to one recording. Its methods never wait, and may be called in any thread.

    ``now`` returns monotonic seconds. A recording that becomes too large, or whose disk is full, ends without its last
    line, and so counts as cut.
    """

    def __init__(self, path: Path, head: dict[str, Any], now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._began_s = now()
        self._last_ms = -1.0
        self._lock = threading.Lock()
        self._is_closed = False
        self._queue: SimpleQueue[Line | None] = SimpleQueue()  # bounded by MOST_BYTES
        self._queued_bytes = 0
        self._files = [_create(path), _create(audio_path(path, "out")), _create(audio_path(path, "in"))]
        self._sizes = {"out": 0, "in": 0}
        self._formats = {"out": "audio/pcm", "in": "audio/pcm"}
        self._sums = {"lines": hashlib.sha256(), "out": hashlib.sha256(), "in": hashlib.sha256()}
        self._count = 0
        self._write(head)
        self._thread = threading.Thread(target=self._run, name="recording")
        self._thread.start()

    def add(self, direction: Direction, event: str | dict[str, Any]) -> None:
        """Append an event, as an object or as its JSON text, with the present time."""
        with self._lock:
            self._queued_bytes += len(event)
            if self._is_closed:
                return
            at_ms = max(round((self._now() - self._began_s) * 1000, 3), round(self._last_ms + 0.001, 3))
            self._last_ms = at_ms
            self._queue.put((at_ms, direction, event))
            if self._queued_bytes > MOST_BYTES:
                self._is_closed = True
                self._queue.put(None)

    def close(self) -> None:
        """End the recording with its checksums. May be called twice."""
        self.add("turn", {"type": "recording.ended"})
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)

    async def finished(self) -> None:
        """Wait until the files are complete."""
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            while (line := self._queue.get()) is not None:
                self._append(*line)
            self._finish()
        except OSError as error:
            log("recording.failed", path=str(self._path), error=error.strerror)
            with self._lock:
                self._is_closed = True
        finally:
            for file in self._files:
                file.close()

    def _append(self, at_ms: float, direction: Direction, event: str | dict[str, Any]) -> None:
        found: Any = _parsed(event) if isinstance(event, str) else event
        if not isinstance(found, dict):
            self._write({"at_ms": at_ms, "direction": direction, "text": event})
            return
        kept: dict[str, Any] = without_secrets(found)
        if (field := AUDIO.get(kept.get("type", ""))) and isinstance(kept.get(field), str):
            kept = {**kept, field: "", "bytes": self._audio(direction, kept[field])}
        elif direction == "in" and "session" in kept:
            self._note_formats(kept["session"])
        self._write({"at_ms": at_ms, "direction": direction, "event": kept})

    def _audio(self, direction: Direction, text: str) -> int:
        audio = base64.b64decode(text)
        file = self._files[1 if direction == "out" else 2]
        if not self._sizes[direction]:
            file.write(wav_header("audio/pcm", 0))  # the final size is not known yet
        file.write(audio)
        self._sizes[direction] += len(audio)
        self._sums[direction].update(audio)
        return len(audio)

    def _note_formats(self, session: dict[str, Any]) -> None:
        audio = session.get("audio", {})
        for direction, name in (("out", "input"), ("in", "output")):
            if (format := audio.get(name, {}).get("format")) and not self._sizes[direction]:
                self._formats[direction] = format.get("type", "audio/pcm")

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self._sums["lines"].update(data)
        self._files[0].write(data)
        self._count += 1

    def _finish(self) -> None:
        for file, direction in zip(self._files[1:], ("out", "in"), strict=True):
            file.seek(0)
            file.write(wav_header(self._formats[direction], self._sizes[direction]))
        sums = {name: held.hexdigest() for name, held in self._sums.items()}
        self._write({"lines": self._count, "sha256": sums})


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _create(path: Path) -> BinaryIO:
    """Create a file that only this user may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
