"""The page's download of a session: the events of all sessions since the page was loaded, without audio."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.recording.bad_recording import BadRecording

CREATED = "session.created"
SPOKEN = "input_audio_buffer.committed"


def last_session(path: Path, lines: Sequence[tuple[int, Any]]) -> list[tuple[int, Any]]:
    """Return the numbered lines of the last session. Raises BadRecording if its beginning or speech is missing."""
    start = next((place for place in reversed(range(len(lines))) if _type(lines[place]) == CREATED), None)
    if start is None:
        raise BadRecording(f"{path}: lacks the session's beginning. Record long sessions on the server.")
    while start and _direction(lines[start - 1]) == "out":  # sent before the server had answered
        start -= 1
    if any(_type(line) == SPOKEN for line in lines[start:]):
        raise BadRecording(f"{path}: lacks the user's speech, which the page does not keep. Record on the server.")
    return list(lines[start:])


def _type(line: tuple[int, Any]) -> str | None:
    match line[1]:
        case {"event": {"type": str(type)}}:
            return type
        case _:
            return None


def _direction(line: tuple[int, Any]) -> str | None:
    match line[1]:
        case {"direction": str(direction)}:
            return direction
        case _:
            return None
