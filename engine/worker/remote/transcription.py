"""A client for transcription servers with OpenAI's API ``/v1/audio/transcriptions``.

OpenAI, Speaches, LocalAI and vLLM offer it. The client sends a WAV file and receives its transcript.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

from engine.audio.wav import wav
from engine.core import NO_HINTS, Pcm, SpeechHints
from engine.deployment.config import build
from engine.errors import ConfigError, EngineError, StageFailed
from engine.worker.remote.connection import LARGEST_BODY, ServerConnections, body_of, kind_of
from engine.worker.remote.options import ServerOptions, check_language, check_server, check_times
from engine.worker.remote.patience import Patience
from engine.worker.remote.refusals import message_of, says


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionOptions(ServerOptions):
    """The ``options`` of a stage that uses a transcription server."""

    language: str = ""
    """The users' language, as BCP 47. Most servers are more accurate if they know it. Empty: the server detects it."""
    prompt: str = ""
    """Likely words, such as names and terms. Whisper also continues in its style."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of each request, like {temperature: 0}. null removes a default field."""
    answer_s: float = 20.0
    """Seconds after the end of the turn until which the transcript must arrive."""

    @property
    def who(self) -> str:
        return f"The transcription server at {self.host}"


def transcription_options(mapping: Mapping[str, Any]) -> TranscriptionOptions:
    """Read the options of a configuration. Raises ConfigError, whose message shows no secret."""
    options: TranscriptionOptions = build(TranscriptionOptions, dict(mapping), "options")
    check_server(options)
    check_times(options, ("answer_s",))
    check_language(options.language)
    if "file" in options.fields:
        raise ConfigError("options.fields: must not contain file, which the stage sets")
    return options


class TranscriptionServer:
    """A transcription server. Call ``aclose`` at the end. Raises ConfigError for an invalid key file."""

    def __init__(self, options: TranscriptionOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._connection = ServerConnections(options, now)

    async def hear(self, pcm: Pcm, hints: SpeechHints = NO_HINTS) -> str:
        """Return the transcript of a recording: int16 [samples] at MIC_RATE_HZ. Raises one EngineError.

        Cancelling this call cancels the request at the server.
        """
        options = self._options
        patience = self._connection.patience(options.answer_s, options.answer_s)
        sent = {"data": self._form(hints), "files": {"file": ("turn.wav", wav(pcm), "audio/wav")}}
        async with self._connection.answer("audio/transcriptions", patience, (), **sent) as response:
            return await self._words(response, patience)

    async def probe(self) -> str:
        """Return "" if the server is up, without transcribing anything. Raises EngineError if it is not."""
        await self._connection.models()  # several servers accept names that they do not list
        return ""

    async def aclose(self) -> None:
        await self._connection.aclose()

    def _form(self, hints: SpeechHints) -> dict[str, str]:
        options = self._options
        language = hints.languages[0] if len(hints.languages) == 1 else options.language
        prompt = "\n".join(part for part in (options.prompt, ", ".join(hints.keywords), hints.prompt) if part)
        asked: dict[str, Any] = {
            "model": options.model,
            "response_format": "json",
            "language": language.partition("-")[0].lower() or None,  # Whisper servers only know ISO 639-1
            "prompt": prompt or None,
        }
        asked = {**asked, **options.fields}
        return {name: str(value) for name, value in asked.items() if value is not None}

    async def _words(self, response: httpx2.Response, patience: Patience) -> str:
        kind, body = kind_of(response), await body_of(response, LARGEST_BODY, patience)
        if kind == "text/plain":
            return body.decode("utf-8", "replace")
        try:
            match msgspec.json.decode(body):
                case {"text": str(text)}:
                    return text
                case _:
                    raise self._no_transcript(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._no_transcript(b"") from None

    def _no_transcript(self, body: bytes) -> EngineError:
        """Return the error for a response without a transcript. It quotes the server's own message, if any."""
        said = says(message_of(body)[0] if b'"error"' in body else "", (), self._connection.key)
        return StageFailed(f"{self._options.who} returned no transcript{said}. Check the url.")
