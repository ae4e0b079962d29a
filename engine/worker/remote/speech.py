"""A client for speech servers: OpenAI's ``/v1/audio/speech``.

OpenAI, vLLM-Omni, Kokoro-FastAPI, Speaches, Chatterbox's servers and LocalAI implement it. The client requests raw
samples (pcm), and also accepts a WAV file.
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
    """The ``options`` of a stage that uses a speech server."""

    voice: str = ""
    """The default voice. Empty: the first of ``voices``, or the server's default."""
    voices: tuple[str, ...] = ()
    """The voices that requests may name, as the server calls them."""
    language: str = ""
    """The language of the answers, as BCP 47. It is sent as ``language``, unless ``fields`` overrides that."""
    rate_hz: int = 24_000
    """The sample rate of raw samples, which do not contain it. A WAV file contains its own rate."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of each request, like {lang_code: e} or {instructions: "Speak calmly."}. null removes a field."""
    first_sound_s: float = 30.0
    """Seconds without any audio after which a text fails."""
    stall_s: float = 20.0
    """Seconds without further audio after which a text fails that has begun."""

    @property
    def names(self) -> tuple[str, ...]:
        """The known voices, the default one first."""
        return tuple(dict.fromkeys(name for name in (self.voice, *self.voices) if name))

    @property
    def who(self) -> str:
        return f"The speech server at {self.host}"


def speech_options(mapping: Mapping[str, Any]) -> SpeechOptions:
    """Read the options of a configuration. Raises ConfigError, whose message shows no secret."""
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
    """A speech server. Call ``aclose`` at the end. Raises ConfigError for an invalid key file."""

    def __init__(self, options: SpeechOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._connection = ServerConnections(options, now)
        self._extras: dict[str, Any] = {"stream": True}  # without it, vLLM-Omni sends nothing before the end

    def check_voice(self, voice: str | None) -> None:
        """Raise RequestError for an unknown voice, if the configuration lists the voices."""
        if voice and self._options.voices and voice not in self._options.names:
            raise RequestError(f"There is no voice {voice!r:.80}; choose one of {', '.join(self._options.names)}.")

    async def say(self, text: str, voice: str | None, speed: float) -> AsyncGenerator[tuple[Wave, int]]:
        """Yield the audio of a text as it arrives, each piece with its sample rate in Hz.

        Closing this generator cancels the request at the server. Raises one EngineError, whose message contains nothing
        of the text.
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
                extras = {}  # the server may not accept these

    async def probe(self) -> str:
        """Return "" if the server is up, without synthesizing anything. Raises EngineError if it is not."""
        await self._connection.models()  # several servers accept names that they do not list
        return ""

    async def aclose(self) -> None:
        await self._connection.aclose()

    def _body(self, text: str, voice: str | None, speed: float, extras: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request's fields. Values that are not set are left to the server."""
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
            raise self._no_audio(await body_of(response, LARGEST_ERROR, patience), text)
        sound = SoundBytes(self._options.rate_hz, self._options.who, kind)
        async with aclosing(response.aiter_bytes()) as pieces:
            while (data := await patience.wait(anext(pieces, None))) is not None:
                if len(wave := sound.feed(data)):
                    patience.progress()
                    yield wave, sound.rate_hz

    def _no_audio(self, body: bytes, text: str) -> EngineError:
        """Return the error for text instead of audio."""
        said = says(message_of(body)[0], (text,), self._connection.key)
        return StageFailed(f"{self._options.who} returned text instead of audio{said}. Check the url.")
