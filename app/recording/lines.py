"""The file format of a recording: JSON lines, and two WAV files for the audio.

The first line is the head. Every other line is ``{"at_ms", "direction", "event"}``, in order of time:

- ``out``: a client event, as the session took it.
- ``media``: input of the client that is no message, such as the audio of a call.
- ``in``: a server event as the session emitted it, in the Realtime protocol.
- ``wire``: a server event in the client's protocol, if that is another one. It tells the ids that the client knows.
- ``engine``: a request to the engine, or the arrival of one of its chunks.
- ``turn``: a moment or value that depends on the machine's speed and decides how the session goes on.

The audio of an event is replaced by its size in bytes, and stored in ``NAME.out.wav`` (the microphone, in the session's
input format) or ``NAME.in.wav`` (the answers). The last line holds checksums, so that a cut or edited file is noticed.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Literal, cast

from engine.core import MIC_RATE_HZ

VERSION = 1
HEAD = "parley_session"
"""The key of the head that holds the format's version."""

Direction = Literal["out", "media", "in", "wire", "engine", "turn"]

MICROPHONE = "parley.microphone"
"""Samples of a media stream: ``samples`` int16 at MIC_RATE_HZ, without audio if all are zero."""
REFUSED = "parley.refused"
"""Input of a media stream that the transport refused."""
HISTORY = "parley.history"
"""The next item of the initial conversation."""

AUDIO = {
    "input_audio_buffer.append": "audio",
    "session.input_audio.append": "audio",
    MICROPHONE: "audio",
    "response.output_audio.delta": "delta",
}
"""The field with the audio, for each type of event that carries audio."""

SECRETS = frozenset({"resume_token", "client_secret", "authorization", "headers", "api_key"})
"""Fields of events that are never recorded."""

WAV_HEADER_BYTES = 44
WAV_FORMATS = {
    "audio/pcm": (1, 24_000, 2),
    "audio/pcmu": (7, 8_000, 1),
    "audio/pcma": (6, 8_000, 1),
    MICROPHONE: (1, MIC_RATE_HZ, 2),
}
"""The WAV format tag, the sample rate and the bytes of a sample, for each audio format of the protocol and for
media streams."""


def without_secrets(value: Any) -> Any:
    """Return a JSON value without the fields in SECRETS, at any depth. JSON schemas of tools are kept unchanged."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        kept = {name: held for name, held in fields.items() if name not in SECRETS}
        return {name: held if name == "parameters" else without_secrets(held) for name, held in kept.items()}
    if isinstance(value, list):
        return [without_secrets(one) for one in cast("list[Any]", value)]
    return value


def audio_path(recording: Path, direction: str) -> Path:
    """Return the path of the audio in one direction."""
    return recording.with_suffix(f".{direction}.wav")


def wav_header(format: str, size: int) -> bytes:
    """Return the header of a mono WAV file with ``size`` bytes of audio in a format of the protocol."""
    tag, rate_hz, width = WAV_FORMATS.get(format, WAV_FORMATS["audio/pcm"])
    fields = (b"RIFF", 36 + size, b"WAVE", b"fmt ", 16, tag, 1, rate_hz, rate_hz * width, width, 8 * width, b"data")
    return struct.pack("<4sI4s4sIHHIIHH4sI", *fields, size)
