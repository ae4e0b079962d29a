"""Reads a recording, and checks that it is complete and unchanged."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from app.recording.lines import AUDIO, HEAD, VERSION, WAV_HEADER_BYTES, audio_path
from engine import Transcript


class BadRecording(Exception):
    """A file that is no recording, or one that is cut, edited or too new."""


@dataclass(frozen=True, slots=True)
class RecordedChunk:
    """A chunk of the engine, without its content."""

    kind: str
    """See ``taps.kind_of``; also ``end`` and ``error``."""
    at_s: float
    """When the session took it."""
    samples: int = 0
    """Its size, if it is audio."""
    interim: Transcript | None = None
    """Its content, if it is an interim transcript: it depends on how fast the speech recognition was."""


@dataclass(slots=True)
class RecordedRequest:
    """A request to the engine."""

    seed: int = 0
    chunks: list[RecordedChunk] = field(default_factory=list[RecordedChunk])
    left_s: float = 0.0
    """When the session read no more chunks."""


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event of the client or the server, with its audio."""

    at_s: float
    text: str
    """The event as JSON."""


@dataclass(slots=True)
class RecordedSession:
    """A recording in memory. Times are seconds since its start."""

    head: dict[str, Any]
    client: list[RecordedEvent] = field(default_factory=list[RecordedEvent])
    server: list[RecordedEvent] = field(default_factory=list[RecordedEvent])
    requests: dict[int, RecordedRequest] = field(default_factory=dict[int, RecordedRequest])
    pauses_s: dict[int, float] = field(default_factory=dict[int, float])
    """The times at which the end-of-turn model's results became known, by the number of the pause."""
    measured: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """The measured durations by name, in order; see ``SessionContext.measured``."""
    end_s: float = 0.0
    """When the session ended: just before the first line that only its end can have caused."""
    _may_be_over: bool = False

    def note(self, at_s: float, ends: bool) -> None:
        """Note the time of the next line, and whether the session's end can have caused it."""
        if not ends:
            self.end_s = at_s
        elif not self._may_be_over:
            self.end_s = at_s - 1e-6
        self._may_be_over = ends


def read(path: Path) -> RecordedSession:
    """Read a recording. Raises BadRecording."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadRecording(f"{path}: cannot be read: {error.strerror}.") from None
    lines = data.splitlines(keepends=True)
    head = _head(path, lines)
    made_by_server = "configuration" in head
    if made_by_server:
        _check(path, lines)
    session = RecordedSession(head)
    audio = {direction: _Audio(audio_path(path, direction)) for direction in ("out", "in")}
    for number, line in enumerate(lines[1 : -1 if made_by_server else None], 2):
        try:
            _take(session, json.loads(line), audio)
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError):
            raise BadRecording(f"{path}: line {number} is no line of a recording.") from None
    return session


def _head(path: Path, lines: list[bytes]) -> dict[str, Any]:
    try:
        head: Any = json.loads(lines[0])
        version = head[HEAD]
    except (IndexError, KeyError, TypeError, ValueError):
        raise BadRecording(f"{path}: is no recording of a session. Its first line lacks {HEAD!r}.") from None
    if version != VERSION:
        raise BadRecording(
            f"{path}: has format version {version}, and this Parley reads version {VERSION}. "
            "Replay it with the Parley that recorded it, or a newer one."
        )
    return cast("dict[str, Any]", head)


def _check(path: Path, lines: list[bytes]) -> None:
    """Compare the last line's checksums with the files. Raises BadRecording."""
    try:
        last: Any = json.loads(lines[-1])
        sums: dict[str, str] = last["sha256"]
    except (KeyError, TypeError, ValueError):
        raise BadRecording(f"{path}: is cut. It ends at line {len(lines)}, without its checksums.") from None
    if last["lines"] != len(lines) - 1 or hashlib.sha256(b"".join(lines[:-1])).hexdigest() != sums["lines"]:
        raise BadRecording(f"{path}: was changed after it was recorded. Its checksum differs.")
    for direction in ("out", "in"):
        file = audio_path(path, direction)
        try:
            audio = file.read_bytes()[WAV_HEADER_BYTES:]
        except OSError as error:
            raise BadRecording(f"{file}: cannot be read: {error.strerror}. Keep it beside {path.name}.") from None
        if hashlib.sha256(audio).hexdigest() != sums[direction]:
            raise BadRecording(f"{file}: is cut, or was changed after it was recorded. Its checksum differs.")


class _Audio:
    """The audio in one direction, read piece by piece."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data: bytes | None = None
        self._at = WAV_HEADER_BYTES

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises BadRecording if there are fewer."""
        if self._data is None:
            self._data = self._path.read_bytes() if self._path.exists() else b""
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise BadRecording(
                f"{self._path}: lacks audio of the session. A recording of the page has none: record on the server."
            )
        self._at += size
        return piece


def _take(session: RecordedSession, line: dict[str, Any], audio: dict[str, _Audio]) -> None:
    at_s, direction = float(line["at_ms"]) / 1000, line["direction"]
    event: dict[str, Any] = line.get("event", {})
    session.note(at_s, ends=direction == "turn" or event.get("type") == "left")
    match direction:
        case "out" | "in":
            text = line["text"] if "text" in line else _with_audio(event, audio[direction])
            (session.client if direction == "out" else session.server).append(RecordedEvent(at_s, text))
        case "engine" if event["type"] == "request":
            session.requests[event["request"]] = RecordedRequest(event["seed"])
        case "engine" if event["type"] == "left":
            session.requests[event["request"]].left_s = at_s
        case "engine":
            interim = msgspec.convert(event["interim"], Transcript) if "interim" in event else None
            chunk = RecordedChunk(event["kind"], at_s, event.get("samples", 0), interim)
            session.requests[event["request"]].chunks.append(chunk)
        case "turn" if event["type"] == "judged":
            session.pauses_s[event["pause"]] = at_s
        case "turn" if event["type"] == "measured":
            session.measured.setdefault(event["name"], []).append(event["value"])
        case _:
            pass


def _with_audio(event: dict[str, Any], audio: _Audio) -> str:
    if (field := AUDIO.get(event["type"])) and "bytes" in event:
        kept = {name: value for name, value in event.items() if name != "bytes"}
        event = {**kept, field: base64.b64encode(audio.take(event["bytes"])).decode()}
    return json.dumps(event, ensure_ascii=False)
