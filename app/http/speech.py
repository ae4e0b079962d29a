"""``POST /v1/audio/speech``: speak a text unchanged; the audio is sent as it is produced."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pybase64
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from app.http.answering import answer
from app.http.body import Responses, StrictRoute
from app.http.live import EVENTS, Live, Write, server_sent_event
from app.http.names import AnyVoice, names_of_voice
from app.http.sound import MEDIA_TYPES, Format, encoder
from app.http_errors import RESPONSES, HttpRefusal
from app.ids import new_id
from app.responses.figures import Figures
from app.service import Service
from app.telemetry import ASKED
from engine import Audio, Output, Request

MAX_CHARS = 4096
SLOWEST_CHARS_S = 3.0
"""No voice speaks fewer characters per second at its slowest, so even the longest text is spoken completely."""
DIGIT_CHARS, SPELLED_CHARS = 4, 3
"""A digit counts as DIGIT_CHARS letters, and a sign or capital as SPELLED_CHARS, since they may be spelled out.

"777,777" is spoken as 72 letters.
"""

SILENCE_S = 4.0
"""Seconds of silence allowed around and between the words, in addition to the length of the words."""


class SpeechRequest(BaseModel):
    """The text to speak. ``instructions`` are accepted and have no effect, since no voice here supports them."""

    model: str
    input: str = Field(min_length=1, max_length=MAX_CHARS)
    voice: AnyVoice = None
    response_format: Format = Field(default="mp3", description="pcm is 16-bit little-endian mono at 24 kHz.")
    speed: float = Field(default=1.0, ge=0.25, le=4.0, allow_inf_nan=False)
    stream_format: Literal["audio", "sse"] = "audio"


class _SmallBody(StrictRoute):
    max_bytes = 64 * 1024  # the longest text, in any script and escaped in JSON


def speech(service: Service) -> APIRouter:
    """Return the route of one server."""
    router = APIRouter(route_class=_SmallBody, tags=["Audio"], responses=RESPONSES)
    sounds: dict[str, Any] = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in MEDIA_TYPES.values()}
    media: Responses = {200: {"content": {**sounds, EVENTS: {}}}}

    @router.post("/v1/audio/speech", summary="Convert text to speech", responses=media, response_class=Response)
    async def speak(body: SpeechRequest) -> Response:  # pyright: ignore[reportUnusedFunction]
        names = names_of_voice(service, body.model, body.voice, "voice")
        asked, format, model = _asked(service, body, names.voice), body.response_format, names.model
        if body.stream_format == "sse":
            return Live(lambda write: _events(service, model, asked, format, write), EVENTS, names.headers)
        return Live(lambda write: _sound(service, model, asked, format, write), MEDIA_TYPES[format], names.headers)

    return router


def _asked(service: Service, body: SpeechRequest, voice: str | None) -> Request:
    """Return the engine's request. Raises HttpRefusal."""
    if not body.input.strip():
        raise HttpRefusal(400, "invalid_value", "input contains no text to speak.", "input")
    return Request(
        id=new_id("speech"),
        session=new_id("sess"),
        owner=ASKED.get().owner,
        messages=(),
        say=body.input,
        voice=voice,
        speed=body.speed,
        max_audio_s=spoken_chars(body.input) / SLOWEST_CHARS_S / min(1.0, body.speed) + SILENCE_S,
    )


def spoken_chars(text: str) -> int:
    """Return the maximum number of letters in a text as it may be spoken."""
    digits = sum(one.isdigit() for one in text)
    spelled = sum(one.isupper() or not (one.isalnum() or one.isspace()) for one in text)
    return len(text) + (DIGIT_CHARS - 1) * digits + (SPELLED_CHARS - 1) * spelled


async def _sound(service: Service, model: str, asked: Request, format: Format, write: Write) -> Figures:
    """Write the audio file as it is produced."""
    encoding = encoder(format)

    async def take(chunk: Output) -> None:
        if isinstance(chunk, Audio) and (piece := await asyncio.to_thread(encoding.push, chunk.wave)):
            await write(piece)

    figures = await answer(service, model, asked, take)
    if piece := await asyncio.to_thread(encoding.end):
        await write(piece)
    return figures


async def _events(service: Service, model: str, asked: Request, format: Format, write: Write) -> None:
    """Write the same bytes as ``speech.audio.delta`` events, and the usage at the end."""

    async def delta(piece: bytes) -> None:
        audio = pybase64.b64encode(piece).decode("ascii")
        await write(server_sent_event({"type": "speech.audio.delta", "audio": audio}))

    figures = await _sound(service, model, asked, format, delta)
    await write(server_sent_event({"type": "speech.audio.done", "usage": _usage(figures), "parley": figures.parley()}))


def _usage(figures: Figures) -> dict[str, int]:
    total = figures.input_tokens + figures.output_tokens
    return {"input_tokens": figures.input_tokens, "output_tokens": figures.output_tokens, "total_tokens": total}
