"""Conversion of requests to the bodies of OpenAI's HTTP API, and of streamed events to chunks."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, cast

import av
import numpy as np
import pybase64
from numpy.typing import NDArray

from app.media.images import MAX_IMAGE_BYTES
from engine import (
    Audio,
    AudioPart,
    EngineError,
    ImagePart,
    Ledger,
    Message,
    ModelInfo,
    Output,
    Part,
    Request,
    Text,
    TextPart,
    ToolCall,
    Transcript,
    Usage,
    wav,
)


def speech_body(request: Request, model: ModelInfo) -> dict[str, Any]:
    """Return the body of ``POST /v1/audio/speech`` for a request to speak a text."""
    return {
        "model": model.name,
        "input": request.say,
        "voice": request.voice,
        "response_format": "pcm",
        "stream_format": "sse",
    }


def completion_body(request: Request, model: ModelInfo) -> dict[str, Any]:
    """Return the body of ``POST /v1/chat/completions`` for a conversation that ends with the user's turn."""
    speaks = "speech" in model.abilities
    return {
        "model": model.name,
        "messages": [_message(message) for message in request.messages],
        "modalities": ["text", "audio"] if speaks else ["text"],
        "audio": {"voice": request.voice, "format": "pcm16"} if speaks else None,
        "stream": True,
        "temperature": 0.0 if request.sampling.greedy else request.sampling.temperature,
        "seed": request.sampling.seed,
        "max_completion_tokens": request.max_text_tokens,
    }


class SpeechDecoder:
    """Decodes the events of a spoken text."""

    def __init__(self) -> None:
        self.ended = False
        self.ledger: Ledger | None = None

    def decode(self, event: dict[str, Any]) -> Iterator[Output]:
        """Decode an event. Raises EngineError for an error event."""
        _check(event)
        match event.get("type"):
            case "speech.audio.delta":
                yield _sound(event["audio"])
            case "speech.audio.done":
                self.ended = True
                self.ledger = _ledger(event)
            case _:
                pass


class Completion:
    """Decodes the events of an answer to a conversation."""

    def __init__(self) -> None:
        self.ended = False
        self.ledger: Ledger | None = None
        self._calls: dict[int, dict[str, str]] = {}
        self._characters = 0

    def decode(self, event: dict[str, Any]) -> Iterator[Output]:
        """Decode an event. Raises EngineError for an error event."""
        _check(event)
        self.ledger = _ledger(event) or self.ledger
        if (transcript := (event.get("parley") or {}).get("input_transcript")) is not None:
            yield Transcript(transcript, final=True)
        for choice in event.get("choices", ()):
            yield from self._delta(choice["delta"])
            if (finish := choice.get("finish_reason")) is not None:
                yield from self._end(finish)

    def _delta(self, delta: dict[str, Any]) -> Iterator[Output]:
        audio = delta.get("audio") or {}
        if text := delta.get("content") or audio.get("transcript"):
            piece = Text(text, self._characters)
            self._characters = piece.end
            yield piece
        if data := audio.get("data"):
            yield _sound(data)
        for piece in delta.get("tool_calls") or ():
            call = self._calls.setdefault(piece["index"], {"id": piece.get("id", ""), "name": "", "arguments": ""})
            for name, value in piece["function"].items():
                call[name] += value

    def _end(self, finish: str) -> Iterator[Output]:
        self.ended = True
        for call in self._calls.values():
            yield ToolCall(call["id"], call["name"], call["arguments"])
        yield Usage(finish="tool" if finish == "tool_calls" else "length" if finish == "length" else "stop")


def _check(event: dict[str, Any]) -> None:
    if (error := event.get("error")) is not None:
        raise EngineError(str(error["message"]))


def _ledger(event: dict[str, Any]) -> Ledger | None:
    ledger = (event.get("parley") or {}).get("ledger")
    return None if ledger is None else Ledger(ledger["terms_ms"])


def _sound(data: str) -> Audio:
    pcm = np.frombuffer(pybase64.b64decode(data), "<i2")
    return Audio(pcm.astype(np.float32) / np.float32(32767))


def _message(message: Message) -> dict[str, Any]:
    """Return a message in the API's format. Without audio and images its content is plain text, which every role
    allows.
    """
    if all(isinstance(part, TextPart) for part in message.parts):
        return {"role": message.role, "content": _text(message)}
    return {"role": message.role, "content": [_part(part) for part in message.parts]}


def _text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case AudioPart(pcm):
            return {"type": "input_audio", "input_audio": {"data": _base64(wav(pcm)), "format": "wav"}}
        case ImagePart(pixels):
            return {"type": "image_url", "image_url": {"url": _picture(pixels)}}
        case _:
            raise AssertionError(f"the commands send no {type(part).__name__}")


def _picture(pixels: NDArray[np.uint8]) -> str:
    """Return a data URI: PNG, or JPEG if the PNG would exceed the server's limit."""
    png = _encoded(pixels, "png", "rgb24")
    if len(png) <= MAX_IMAGE_BYTES:
        return f"data:image/png;base64,{_base64(png)}"
    return f"data:image/jpeg;base64,{_base64(_encoded(pixels, 'mjpeg', 'yuvj444p'))}"


def _encoded(pixels: NDArray[np.uint8], codec: str, form: str) -> bytes:
    encoder: Any = av.CodecContext.create(codec, "w")
    encoder.height, encoder.width = pixels.shape[:2]
    encoder.pix_fmt = form
    encoder.time_base = Fraction(1, 1)
    frame = cast("Any", av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=form))
    frame.pts = 0
    frame.time_base = Fraction(1, 1)
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])


def _base64(data: bytes) -> str:
    return pybase64.b64encode(data).decode("ascii")
