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

from app.recording.lines import AUDIO, MICROPHONE, Direction, audio_path, wav_header, without_secrets
from app.telemetry import log

MOST_BYTES = 1_000_000_000
"""Maximum size of a recording: more than an hour of speech in both directions."""

Line = tuple[float, Direction, "str | dict[str, Any]"]


class RecordingWriter:
    """Appends lines to one recording. Its methods never wait.

    ``tick`` returns the time of the next line in microseconds, later than that of the last one. Nothing is recorded
    before ``open``. A recording that becomes too large, or whose disk is full, ends without its last line, and so
    counts as cut.
    """

    def __init__(self, path: Path, tick: Callable[[], int]) -> None:
        self.path = path
        self.is_closed = True
        self.lines = 0
        """Lines added since ``open``."""
        self._tick = tick
        self._queue: SimpleQueue[Line | None] = SimpleQueue()  # bounded by MOST_BYTES
        self._queued_bytes = 0
        self._files: list[BinaryIO] = []
        self._sizes = {"out": 0, "in": 0}
        self._formats = {"out": "audio/pcm", "in": "audio/pcm"}
        self._sums = {"lines": hashlib.sha256(), "out": hashlib.sha256(), "in": hashlib.sha256()}
        self._count = 0
        self._thread: threading.Thread | None = None

    def open(self, head: dict[str, Any]) -> None:
        """Create the files, and record from now on. Raises OSError."""
        for path in (self.path, audio_path(self.path, "out"), audio_path(self.path, "in")):
            self._files.append(_create(path))
        self._write(head)
        self._thread = threading.Thread(target=self._run, name="recording")
        self._thread.start()
        self.is_closed = False

    def add(self, direction: Direction, event: str | dict[str, Any]) -> None:
        """Append an event, as an object or as its JSON text, with the present time."""
        if self.is_closed:
            return
        self.lines += 1
        self._queue.put((self._tick() / 1000, direction, event))
        self._queued_bytes += len(event)
        if self._queued_bytes > MOST_BYTES:
            self._end()

    def close(self) -> None:
        """End the recording with its checksums. May be called twice."""
        self.add("turn", {"type": "recording.ended"})
        if not self.is_closed:
            self._end()

    async def finished(self) -> None:
        """Wait until the files are complete."""
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _end(self) -> None:
        self.is_closed = True
        self._queue.put(None)

    def _run(self) -> None:
        try:
            while (line := self._queue.get()) is not None:
                self._append(*line)
            self._finish()
        except OSError as error:
            log("recording.failed", path=str(self.path), error=error.strerror)
            self.is_closed = True
        finally:
            for file in self._files:
                file.close()

    def _append(self, at_ms: float, direction: Direction, event: str | dict[str, Any]) -> None:
        found: Any = _parsed(event) if isinstance(event, str) else event
        if not isinstance(found, dict):
            self._write({"at_ms": at_ms, "direction": direction, "text": event})
            return
        kept: dict[str, Any] = without_secrets(found)
        field = AUDIO.get(kept["type"]) if isinstance(kept.get("type"), str) else None
        if field is not None and (audio := _decoded(kept.get(field))) is not None:
            if direction == "media":
                self._formats["out"] = MICROPHONE
            kept = {**kept, field: "", "bytes": self._append_audio("in" if direction == "in" else "out", audio)}
        elif direction == "in" and "session" in kept:
            self._note_formats(kept["session"])
        self._write({"at_ms": at_ms, "direction": direction, "event": kept})

    def _append_audio(self, direction: str, audio: bytes) -> int:
        if not audio:
            return 0
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


def _decoded(text: Any) -> bytes | None:
    """Return the audio of a text; None if its encoding would not give the same text, because it is invalid."""
    try:
        audio = base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        return None
    return audio if base64.b64encode(audio).decode() == text else None


def _create(path: Path) -> BinaryIO:
    """Create a file that only this user may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
