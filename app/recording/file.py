"""Reads a recording, and checks that it is complete and unchanged."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from app.recording.bad_recording import BadRecording
from app.recording.lines import AUDIO, HEAD, VERSION, WAV_HEADER_BYTES, audio_path
from app.recording.page_download import last_session
from engine import Transcript

_AGAIN = "Copy it again, or record a new session."


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
    is_media: bool = False
    """Whether it is input of the client that was no message."""
    follows: bool = False
    """Whether the session took it right after the previous one, before any of its tasks ran."""


@dataclass(slots=True)
class RecordedSession:
    """A recording in memory. Times are seconds since its start."""

    head: dict[str, Any]
    client: list[RecordedEvent] = field(default_factory=list[RecordedEvent])
    server: list[RecordedEvent] = field(default_factory=list[RecordedEvent])
    requests: dict[int, RecordedRequest] = field(default_factory=dict[int, RecordedRequest])
    named: list[RecordedEvent] = field(default_factory=list[RecordedEvent])
    """The server's events in both protocols, if the client's is not Realtime. They tell the ids that it knew."""
    pauses_s: dict[int, float] = field(default_factory=dict[int, float])
    """The times at which the end-of-turn model's results became known, by the number of the pause: infinite if it gave
    none.
    """
    waits_s: dict[str, float] = field(default_factory=dict[str, float])
    """The ends of waits, by their numbers; see ``Waits``."""
    ahead_s: dict[int, float] = field(default_factory=dict[int, float])
    """The changes of a call's additional lead, by the number of the reading that first returned it."""
    measured: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """The measured durations by name, in order; see ``SessionContext.measured``."""
    end_s: float = 0.0
    """When the session ended: just before the first line that only its end can have caused."""
    next_follows: bool = False
    """Whether the next line follows the previous event of the client; see ``RecordedEvent``."""
    last_s: float = 0.0
    """The time of the last line."""
    _may_be_over: bool = False

    @property
    def is_of_page(self) -> bool:
        """Whether the page has written it: without audio, and without the engine's results."""
        return "configuration" not in self.head

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
    session = RecordedSession(head)
    if session.is_of_page:
        parsed = last_session(path, _parsed(path, lines[1:]))
        audio = {direction: _Audio(None) for direction in ("out", "in")}
    else:
        _check(path, lines)
        parsed = _parsed(path, lines[1:-1])
        audio = {direction: _Audio(audio_path(path, direction)) for direction in ("out", "in")}
    for number, line in parsed:
        try:
            _take(session, line, audio)
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError):
            raise BadRecording(_bad_line(path, number)) from None
    for request in session.requests.values():
        request.left_s = request.left_s or session.end_s + 1.0  # its further chunks came after the recording
    return session


def _parsed(path: Path, lines: Sequence[bytes]) -> list[tuple[int, Any]]:
    """Return the lines after the head with their numbers. Raises BadRecording."""
    parsed: list[tuple[int, Any]] = []
    for number, line in enumerate(lines, 2):
        try:
            parsed.append((number, json.loads(line)))
        except (ValueError, RecursionError):
            raise BadRecording(_bad_line(path, number)) from None
    return parsed


def _bad_line(path: Path, number: int) -> str:
    return f"{path}: line {number} is no line of a recording. The file was cut or changed: record or download it again."


def _head(path: Path, lines: list[bytes]) -> dict[str, Any]:
    try:
        head: Any = json.loads(lines[0])
        version = head[HEAD]
    except (IndexError, KeyError, TypeError, ValueError, RecursionError):
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
        count, sums = last["lines"], cast("dict[str, str]", last["sha256"])
        lines_sum, audio_sums = sums["lines"], {direction: sums[direction] for direction in ("out", "in")}
    except (KeyError, TypeError, ValueError):
        message = f"{path}: is cut. It ends at line {len(lines)}, without its checksums. {_AGAIN}"
        raise BadRecording(message) from None
    if count != len(lines) - 1 or hashlib.sha256(b"".join(lines[:-1])).hexdigest() != lines_sum:
        raise BadRecording(f"{path}: was changed after it was recorded. Its checksum differs. {_AGAIN}")
    for direction, audio_sum in audio_sums.items():
        file = audio_path(path, direction)
        try:
            audio = file.read_bytes()[WAV_HEADER_BYTES:]
        except OSError as error:
            raise BadRecording(f"{file}: cannot be read: {error.strerror}. Keep it beside {path.name}.") from None
        if hashlib.sha256(audio).hexdigest() != audio_sum:
            raise BadRecording(f"{file}: is cut, or was changed after it was recorded. Its checksum differs. {_AGAIN}")


class _Audio:
    """The audio in one direction, read piece by piece."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._data: bytes | None = None
        self._at = WAV_HEADER_BYTES

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes; silence without a file. Raises BadRecording if there are fewer."""
        if self._path is None:
            return bytes(size)
        if self._data is None:
            self._data = self._path.read_bytes() if self._path.exists() else b""
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise BadRecording(f"{self._path}: lacks audio of the session. {_AGAIN}")
        self._at += size
        return piece


def _take(session: RecordedSession, line: dict[str, Any], audio: dict[str, _Audio]) -> None:
    at_s, direction = float(line["at_ms"]) / 1000, line["direction"]
    if not session.last_s <= at_s < math.inf:
        raise ValueError(at_s)
    session.last_s = at_s
    event: dict[str, Any] = line.get("event", {})
    session.note(at_s, ends=direction == "turn" or event.get("type") == "left")
    match direction:
        case "out" | "media" | "in" | "wire":
            text = line["text"] if "text" in line else _with_audio(event, audio["in" if direction == "in" else "out"])
            for events in _lists(session, direction):
                events.append(RecordedEvent(at_s, text, direction == "media", session.next_follows))
            session.next_follows = False
        case "engine" if event["type"] == "request":
            session.requests[event["request"]] = RecordedRequest(event["seed"])
        case "engine" if event["type"] == "left":
            session.requests[event["request"]].left_s = at_s
        case "engine":
            interim = msgspec.convert(event["interim"], Transcript) if "interim" in event else None
            chunk = RecordedChunk(event["kind"], at_s, event.get("samples", 0), interim)
            session.requests[event["request"]].chunks.append(chunk)
        case "turn" if event["type"] == "asked":
            session.pauses_s[event["pause"]] = math.inf
        case "turn" if event["type"] == "judged" and event.get("probability", 0.0) is not None:  # embeddings have none
            session.pauses_s[event["pause"]] = at_s
        case "turn" if event["type"] == "follows":
            session.next_follows = True
        case "turn" if event["type"] == "waited":
            session.waits_s[event["wait"]] = at_s
        case "turn" if event["type"] == "ahead":
            session.ahead_s[event["reading"]] = event["value"]
        case "turn" if event["type"] == "measured":
            session.measured.setdefault(event["name"], []).append(event["value"])
        case _:
            pass


def _lists(session: RecordedSession, direction: str) -> tuple[list[RecordedEvent], ...]:
    """Return the lists that an event in this direction belongs to."""
    match direction:
        case "out" | "media":
            return (session.client,)
        case "in":
            return session.server, session.named
        case _:
            return (session.named,)


def _with_audio(event: dict[str, Any], audio: _Audio) -> str:
    if (field := AUDIO.get(event["type"])) and "bytes" in event:
        kept = {name: value for name, value in event.items() if name != "bytes"}
        event = {**kept, field: base64.b64encode(audio.take(event["bytes"])).decode()}
    return json.dumps(event, ensure_ascii=False)
