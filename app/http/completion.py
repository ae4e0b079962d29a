"""A chat completion built from the engine's chunks: one JSON object, or a stream of server-sent events.

The audio of an answer is not stored, so its ``expires_at`` is the time of sending.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, assert_never

import numpy as np
import pybase64

from app.http.live import Write, server_sent_event
from app.http.sound import Format, SoundFileEncoder, encoded, encoder
from app.http_errors import HttpRefusal, body_of
from app.ids import new_id
from app.responses.figures import Figures
from engine import Audio, Codes, Output, Text, ToolCall, ToolCallDelta, Transcript, Usage
from engine.core import Wave

_FINISH = {"stop": "stop", "length": "length", "tool": "tool_calls"}


class WholeCompletion:
    """Collects a complete answer. ``format`` is its audio format; None for a text answer."""

    def __init__(self, id: str, model: str, format: Format | None) -> None:
        self._id = id
        self._model = model
        self._format: Format | None = format
        self._text = ""
        self._waves: list[Wave] = []
        self._calls: list[dict[str, Any]] = []

    async def take(self, chunk: Output) -> None:
        match chunk:
            case Text(text):
                self._text += text
            case Audio(wave):
                self._waves.append(wave)
            case ToolCall():
                self._calls.append(_call(chunk))
            case ToolCallDelta() | Transcript() | Usage() | Codes():
                pass
            case _:
                assert_never(chunk)

    async def body(self, figures: Figures) -> dict[str, Any]:
        """Return the ``chat.completion`` object."""
        now_s = int(time.time())
        choice = {
            "index": 0,
            "message": await self._message(now_s),
            "logprobs": None,
            "finish_reason": _FINISH.get(figures.finish, "stop"),
        }
        head = {"id": self._id, "object": "chat.completion", "created": now_s, "model": self._model}
        return {**head, "choices": [choice], "usage": usage(figures), "parley": figures.parley()}

    async def _message(self, now_s: int) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._text or None, "refusal": None}
        if self._waves and self._format is not None:
            data = await asyncio.to_thread(encoded, np.concatenate(self._waves), self._format)
            sound = {"id": new_id("audio"), "data": _base64(data), "transcript": self._text}
            message |= {"content": None, "audio": {**sound, "expires_at": now_s}}
        if self._calls:
            message["tool_calls"] = self._calls
        return message


class StreamedCompletion:
    """Writes an answer as ``chat.completion.chunk`` events, and ``[DONE]`` after the last."""

    def __init__(self, write: Write, id: str, model: str, with_usage: bool, format: Format | None) -> None:
        self._write = write
        self._with_usage = with_usage
        self._head = {"id": id, "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        self._encoder: SoundFileEncoder | None = encoder(format) if format is not None else None
        self._audio_id = new_id("audio")
        self._begun = False
        self._calls: list[str] = []  # call ids in the order of their first pieces

    @property
    def begun(self) -> bool:
        return self._begun

    async def fail(self, refusal: HttpRefusal) -> None:
        await self._event(body_of(refusal))

    async def take(self, chunk: Output) -> None:
        match chunk:
            case Text(text):
                spoken = {"audio": {"id": self._audio_id, "transcript": text}}
                await self._delta(spoken if self._encoder is not None else {"content": text})
            case Audio(wave):
                if self._encoder is not None:
                    await self._sound(await asyncio.to_thread(self._encoder.push, wave))
            case Transcript(text, final):
                if final:
                    await self._delta({}, None, {"parley": {"input_transcript": text}})
            case ToolCallDelta(call_id, name, arguments):
                await self._call_piece(call_id, name, arguments)
            case ToolCall(call_id, name, arguments):
                if call_id not in self._calls:
                    await self._call_piece(call_id, name, arguments)
            case Usage() | Codes():
                pass
            case _:
                assert_never(chunk)

    async def _call_piece(self, id: str, name: str, arguments: str) -> None:
        """Send the next piece of a call's arguments. The first piece also names the function."""
        if id in self._calls:
            call: dict[str, Any] = {"function": {"arguments": arguments}}
        else:
            self._calls.append(id)
            call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        await self._delta({"tool_calls": [{"index": self._calls.index(id), **call}]})

    async def end(self, figures: Figures) -> None:
        if self._encoder is not None:
            await self._sound(await asyncio.to_thread(self._encoder.end))
            await self._delta({"audio": {"id": self._audio_id, "expires_at": int(time.time())}})
        extra = {"parley": parley} if (parley := figures.parley()) is not None else {}
        await self._delta({}, _FINISH.get(figures.finish, "stop"), extra)
        if self._with_usage:
            await self._event({**self._head, "choices": [], "usage": usage(figures)})
        await self._write(b"data: [DONE]\n\n")

    async def _sound(self, data: bytes) -> None:
        if data:
            await self._delta({"audio": {"id": self._audio_id, "data": _base64(data)}})

    async def _delta(
        self, delta: dict[str, Any], finish: str | None = None, extra: dict[str, Any] | None = None
    ) -> None:
        if not self._begun:
            delta = {"role": "assistant", "refusal": None, **delta}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        none_yet = {"usage": None} if self._with_usage else {}
        await self._event({**self._head, "choices": [choice], **none_yet, **(extra or {})})

    async def _event(self, event: dict[str, Any]) -> None:
        self._begun = True
        await self._write(server_sent_event(event))


def usage(figures: Figures) -> dict[str, Any]:
    """Return the token counts. Each codec frame counts as one audio token."""
    return {
        "prompt_tokens": figures.input_tokens,
        "completion_tokens": figures.output_tokens,
        "total_tokens": figures.input_tokens + figures.output_tokens,
        "prompt_tokens_details": {"cached_tokens": figures.cached_tokens, "audio_tokens": figures.audio_input_tokens},
        "completion_tokens_details": {
            "text_tokens": figures.text_tokens,
            "audio_tokens": figures.audio_tokens,
            "reasoning_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _base64(data: bytes) -> str:
    return pybase64.b64encode(data).decode("ascii")
