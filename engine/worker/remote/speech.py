"""A server that speaks: OpenAI's ``/v1/audio/speech``, as OpenAI, vLLM-Omni, Kokoro-FastAPI, Speaches, Chatterbox's
servers and LocalAI have it. It is asked for raw samples (pcm); a WAV that comes instead is read as well.

Knows no stage, and of an answer one text at a time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx2

from engine.core import Wave
from engine.deployment.config import build
from engine.errors import ConfigError, EngineError, RequestError, StageFailed
from engine.worker.remote.connection import LARGEST_ERROR, ServerConnections, body_of, json_of, kind_of
from engine.worker.remote.options import ServerOptions, check_language, check_server, check_times
from engine.worker.remote.patience import Patience
from engine.worker.remote.pcm_stream import FASTEST_HZ, SLOWEST_HZ, SoundBytes
from engine.worker.remote.refusals import message_of, says


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechOptions(ServerOptions):
    """The ``options`` of a stage that asks a speech server."""

    voice: str = ""
    """The voice where a request names none; empty: the first of ``voices``, or the server's own."""
    voices: tuple[str, ...] = ()
    """The voices that may be named, as the server calls them."""
    language: str = ""
    """The language of the answers, as BCP 47. It is sent as ``language``, unless ``fields`` say otherwise."""
    rate_hz: int = 24_000
    """The rate of raw samples, which don't say it themselves. A WAV does."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of each request, as the server knows them: {lang_code: e}, {instructions: "Speak calmly."}; null
    leaves one of ours out."""
    first_sound_s: float = 30.0
    """A text of which no sound has come by then is given up."""
    stall_s: float = 20.0
    """Seconds without anything more, after which an answer that has begun is given up."""

    @property
    def names(self) -> tuple[str, ...]:
        """The voices that are known by name, the one first that speaks where nobody is named."""
        return tuple(dict.fromkeys(name for name in (self.voice, *self.voices) if name))

    @property
    def who(self) -> str:
        return f"The speech server at {self.host}"


def speech_options(mapping: Mapping[str, Any]) -> SpeechOptions:
    """The options that a configuration gives. Raises ConfigError, which names what is wrong and shows no secret."""
    options: SpeechOptions = build(SpeechOptions, dict(mapping), "options")
    check_server(options)
    check_times(options, ("first_sound_s", "stall_s"))
    if not SLOWEST_HZ <= options.rate_hz <= FASTEST_HZ:
        raise ConfigError(f"options.rate_hz: must be {SLOWEST_HZ} to {FASTEST_HZ}")
    if options.voices and options.voice and options.voice not in options.voices:
        raise ConfigError(f"options.voice: {options.voice!r} is not one of voices ({', '.join(options.voices)})")
    if "input" in options.fields:
        raise ConfigError("options.fields: must not contain input, which the stage sets")
    check_language(options.language)
    return options


class SpeechServer:
    """A server that speaks. It needs ``aclose`` at the end. Raises ConfigError for a key file that can't be used."""

    def __init__(self, options: SpeechOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._connection = ServerConnections(options, now)
        self._extras: dict[str, Any] = {"stream": True}  # vLLM-Omni sends nothing before all is made without it

    def check_voice(self, voice: str | None) -> None:
        """Raises RequestError for a voice that there is not, where the configuration lists them."""
        if voice and self._options.voices and voice not in self._options.names:
            raise RequestError(f"There is no voice {voice!r:.80}; choose one of {', '.join(self._options.names)}.")

    async def say(self, text: str, voice: str | None, speed: float) -> AsyncGenerator[tuple[Wave, int]]:
        """The sound of a text as it comes, each piece with its rate in Hz; nothing, if the server makes none of it.

        To close this generator ends the request at the server. Raises one EngineError, which shows nothing of the text.
        """
        patience = self._connection.patience(self._options.first_sound_s, self._options.stall_s)
        extras = self._extras
        while True:
            body = self._body(text, voice, speed, extras)
            try:
                async with self._connection.answer("audio/speech", patience, (text,), **json_of(body)) as response:
                    self._extras = extras
                    async with aclosing(self._sound(response, patience, text)) as pieces:
                        async for piece in pieces:
                            yield piece
                return
            except RequestError:
                if not extras:
                    raise
                extras = {}  # it may be these that the server does not take

    async def probe(self) -> str:
        """Nothing, if the server is there. It is asked to say nothing. Raises EngineError."""
        await self._connection.models()  # several servers take names that they do not list
        return ""

    async def aclose(self) -> None:
        await self._connection.aclose()

    def _body(self, text: str, voice: str | None, speed: float, extras: Mapping[str, Any]) -> dict[str, Any]:
        """Build the fields that every server takes, as far as they are needed: the rest is the server's own."""
        options = self._options
        asked: dict[str, Any] = {
            "model": options.model,
            "input": text,
            "voice": voice or next(iter(options.names), None),
            "response_format": "pcm",
            "speed": speed if speed != 1.0 else None,
            "language": options.language or None,
        }
        asked = {**asked, **extras, **options.fields}
        return {name: value for name, value in asked.items() if value is not None}

    async def _sound(
        self, response: httpx2.Response, patience: Patience, text: str
    ) -> AsyncGenerator[tuple[Wave, int]]:
        kind = kind_of(response)
        if kind.endswith("json") or kind.startswith("text/"):
            raise self._silent(await body_of(response, LARGEST_ERROR, patience), text)
        sound = SoundBytes(self._options.rate_hz, self._options.who, kind)
        async with aclosing(response.aiter_bytes()) as pieces:
            while (data := await patience.wait(anext(pieces, None))) is not None:
                if len(wave := sound.feed(data)):
                    patience.progress()
                    yield wave, sound.rate_hz

    def _silent(self, body: bytes, text: str) -> EngineError:
        """Return the error for a text in place of sound."""
        said = says(message_of(body)[0], (text,), self._connection.key)
        return StageFailed(f"{self._options.who} returned text instead of audio{said}. Check the url.")
