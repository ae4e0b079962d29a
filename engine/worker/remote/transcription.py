"""A server that writes down what it hears: OpenAI's ``/v1/audio/transcriptions``, as OpenAI, Speaches, LocalAI and vLLM
have it. A recording goes there as a WAV, and its words come back. Knows no stage and no turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

from engine.audio.wav import wav
from engine.core import Pcm
from engine.deployment.config import build
from engine.errors import ConfigError, EngineError, StageFailed
from engine.worker.remote.connection import LARGEST_BODY, ServerConnections, body_of, kind_of
from engine.worker.remote.options import ServerOptions, check_language, check_server, check_times
from engine.worker.remote.patience import Patience
from engine.worker.remote.refusals import message_of, says


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptionOptions(ServerOptions):
    """The ``options`` of a stage that asks a transcription server."""

    language: str = ""
    """The language that people speak, as BCP 47: most servers hear better where they know it. Empty: they find out."""
    prompt: str = ""
    """Words that are likely: names, terms. Whisper goes on in the style of it."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of each request, as the server knows them: {temperature: 0}; null leaves one of ours out."""
    answer_s: float = 20.0
    """Words that have not come by then, behind the end of the turn, are given up."""

    @property
    def who(self) -> str:
        return f"The transcription server at {self.host}"


def transcription_options(mapping: Mapping[str, Any]) -> TranscriptionOptions:
    """The options that a configuration gives. Raises ConfigError, which names what is wrong and shows no secret."""
    options: TranscriptionOptions = build(TranscriptionOptions, dict(mapping), "options")
    check_server(options)
    check_times(options, ("answer_s",))
    check_language(options.language)
    if "file" in options.fields:
        raise ConfigError("options.fields: must not contain file, which the stage sets")
    return options


class TranscriptionServer:
    """A server that transcribes. It needs ``aclose`` at the end. Raises ConfigError for a key file that can't be
    used."""

    def __init__(self, options: TranscriptionOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._connection = ServerConnections(options, now)

    async def hear(self, pcm: Pcm) -> str:
        """The words of a recording: int16 [samples] at MIC_RATE_HZ. Raises one EngineError.

        To cancel it ends the request at the server.
        """
        options = self._options
        patience = self._connection.patience(options.answer_s, options.answer_s)
        sent = {"data": self._form(), "files": {"file": ("turn.wav", wav(pcm), "audio/wav")}}
        async with self._connection.answer("audio/transcriptions", patience, (), **sent) as response:
            return await self._words(response, patience)

    async def probe(self) -> str:
        """Nothing, if the server is there. It is asked to hear nothing. Raises EngineError."""
        await self._connection.models()  # several servers take names that they do not list
        return ""

    async def aclose(self) -> None:
        await self._connection.aclose()

    def _form(self) -> dict[str, str]:
        options = self._options
        asked: dict[str, Any] = {
            "model": options.model,
            "response_format": "json",
            "language": options.language.partition("-")[0].lower() or None,  # Whisper's servers know ISO 639-1 alone
            "prompt": options.prompt or None,
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
                    raise self._wordless(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._wordless(b"") from None

    def _wordless(self, body: bytes) -> EngineError:
        """Return the error for an answer that is no transcript."""
        said = says(message_of(body)[0] if b'"error"' in body else "", (), self._connection.key)
        return StageFailed(f"{self._options.who} returned no transcript{said}. Check the url.")
