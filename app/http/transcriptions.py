"""``POST /v1/audio/transcriptions``: transcribe a recording."""

from __future__ import annotations

import asyncio
from typing import Annotated, BinaryIO

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import JSONResponse, Response

from app.http.body import Responses, StrictRoute
from app.http.live import EVENTS, ClientGone, Live, Write, server_sent_event, while_there
from app.http.names import names_of_model
from app.http.recognition import recognized
from app.http.transcript import MEDIA_TYPES, TIMED, Format, Granularity, TranscriptionResult, span_of
from app.http_errors import RESPONSES, HttpRefusal
from app.realtime.session_context import SessionContext
from app.service import Service
from engine import MIC_RATE_HZ, AudioPart, ModelInfo
from engine.core import Pcm


class _Recording(StrictRoute):
    max_bytes = 26 * 1024 * 1024  # OpenAI's limit of 25 MB, plus the form around it


def transcriptions(service: Service) -> APIRouter:
    """Return the route of one server."""
    router = APIRouter(route_class=_Recording, tags=["Audio"], responses=RESPONSES)
    media: Responses = {200: {"content": {kind: {} for kind in ("application/json", *MEDIA_TYPES.values(), EVENTS)}}}

    @router.post("/v1/audio/transcriptions", summary="Transcribe a recording", responses=media, response_model=None)
    async def transcribe(  # pyright: ignore[reportUnusedFunction]
        request: Request,
        file: Annotated[
            UploadFile, File(description="WAV, FLAC, OGG, MP3, AAC, M4A, MP4 or WebM. Of a video, the audio is used.")
        ],
        model: Annotated[str, Form()],
        response_format: Annotated[Format, Form()] = "json",
        stream: Annotated[bool, Form()] = False,
        granularities: Annotated[
            list[Granularity] | None, Form(alias="timestamp_granularities[]", max_length=8)
        ] = None,
        include: Annotated[list[str] | None, Form(alias="include[]", max_length=8)] = None,
    ) -> Response:
        names = names_of_model(service, model)
        asked = tuple(granularities or ())
        context = service.context(model=names.model)
        _check(context.engine.model, response_format, asked, include)
        try:
            if stream:
                pcm = await while_there(request.receive, context.samples(file.file))
                return Live(lambda write: _events(service, names.model, pcm, write), EVENTS, names.headers)
            whole = _transcript(service, context, file.file, response_format)
            transcript = await while_there(request.receive, whole)
        except ClientGone:
            return Response(status_code=499)  # nobody reads it
        _check_words(transcript, context.engine.model, asked)
        if response_format in MEDIA_TYPES:
            text, media_type = transcript.written(response_format), MEDIA_TYPES[response_format]
            return Response(text, media_type=media_type, headers=names.headers)
        return JSONResponse(transcript.body(response_format, asked), headers=names.headers)

    return router


def _check(model: ModelInfo, format: Format, granularities: tuple[Granularity, ...], include: list[str] | None) -> None:
    """Refuse unsupported options instead of ignoring them. Raises HttpRefusal."""
    if "audio" not in model.abilities:
        raise HttpRefusal(400, "unsupported_value", f"{model.name} has no speech input.", "model")
    if "word" in granularities and format != "verbose_json":
        message = "timestamp_granularities[] with 'word' requires response_format=verbose_json."
        raise HttpRefusal(400, "unsupported_value", message, "timestamp_granularities[]")
    if include:
        raise HttpRefusal(400, "unsupported_parameter", "include[] is not supported: leave it out.", "include[]")


def _check_words(transcript: TranscriptionResult, model: ModelInfo, granularities: tuple[Granularity, ...]) -> None:
    """Raise HttpRefusal if word times are requested but the ASR model does not report them."""
    if "word" in granularities and transcript.text and not transcript.words:
        message = f"{model.name} does not report word times: request segments instead."
        raise HttpRefusal(400, "unsupported_value", message, "timestamp_granularities[]")


async def _transcript(
    service: Service, context: SessionContext, recording: BinaryIO, format: Format
) -> TranscriptionResult:
    """Transcribe a recording, and find its speech if the format includes times. Raises MediaError."""
    pcm = await context.samples(recording)
    words = await recognized(service, context.engine.model.name, [AudioPart(pcm)])
    span = await asyncio.to_thread(lambda: span_of(pcm, context.vad())) if format in TIMED else None
    languages = context.engine.model.heard_languages
    language = words.language or (languages[0] if len(languages) == 1 else None)
    return TranscriptionResult(words.text, len(pcm) / MIC_RATE_HZ, language, span, words.words)


async def _events(service: Service, model: str, pcm: Pcm, write: Write) -> None:
    """Send the transcript as one delta: earlier hypotheses may have been revised, and a delta can't be taken back."""
    words = await recognized(service, model, [AudioPart(pcm)])
    transcript = TranscriptionResult(words.text, len(pcm) / MIC_RATE_HZ)
    for event in (
        {"type": "transcript.text.delta", "delta": transcript.text},
        {"type": "transcript.text.done", "text": transcript.text, "usage": transcript.usage},
    ):
        await write(server_sent_event(event))
