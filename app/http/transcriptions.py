"""``POST /v1/audio/transcriptions``: what the model's ears hear in a recording."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from app.http.answering import answer
from app.http.body import Responses, StrictRoute
from app.http.live import ClientGone, Live, Write, while_there
from app.http.names import names_of_model
from app.http.trouble import RESPONSES, HttpRefusal
from app.media import decode_audio
from app.realtime.ids import new_id
from app.service import Service
from engine import MIC_RATE_HZ, AudioPart, Chunk, Message
from engine import Request as EngineRequest


class _Recording(StrictRoute):
    max_bytes = 26 * 1024 * 1024  # OpenAI's 25 MB, and the form around it


def transcriptions(service: Service) -> APIRouter:
    """The route, for one server."""
    router = APIRouter(route_class=_Recording, tags=["Audio"], responses=RESPONSES)
    media: Responses = {200: {"content": {"application/json": {}, "text/plain": {}, "text/event-stream": {}}}}

    @router.post("/v1/audio/transcriptions", summary="Hear a recording", responses=media, response_model=None)
    async def transcribe(  # pyright: ignore[reportUnusedFunction]
        request: Request,
        file: Annotated[UploadFile, File(description="WAV, FLAC, OGG or MP3.")],
        model: Annotated[str, Form()],
        response_format: Annotated[Literal["json", "text"], Form()] = "json",
        stream: Annotated[bool, Form()] = False,
    ) -> Response:
        names = names_of_model(service, model)
        pcm = await _samples(service, file)
        if stream:
            return Live(lambda write: _events(service, pcm, write), "text/event-stream", names.headers)
        try:
            text = await while_there(request.receive, _heard(service, pcm))
        except ClientGone:
            return Response(status_code=499)  # nobody reads it
        if response_format == "text":
            return PlainTextResponse(text + "\n", headers=names.headers)
        return JSONResponse({"text": text, "usage": _usage(pcm)}, headers=names.headers)

    return router


async def _samples(service: Service, file: UploadFile) -> Any:
    """The recording, decoded. Raises HttpRefusal or MediaError."""
    house = service.house()
    if "audio" not in house.engine.model.abilities:
        raise HttpRefusal(400, "unsupported_value", f"{house.engine.model.name} does not hear.", "model")
    return await asyncio.to_thread(decode_audio, await file.read(), house.limits.audio_s)


async def _heard(service: Service, pcm: Any) -> str:
    """The transcript. Raises HttpRefusal if the model answers to speech without writing down what it heard."""
    words: list[str] = []

    async def take(chunk: Chunk) -> None:
        if chunk.kind == "heard" and chunk.meta.get("final"):
            words.append(chunk.data)

    asked = EngineRequest(
        id=new_id("heard"),
        session=new_id("sess"),
        messages=(Message("user", (AudioPart(pcm),)),),
        modalities=("text",),
        max_text_tokens=1,
    )
    await answer(service, asked, take)
    if not words:
        raise HttpRefusal(400, "unsupported_value", "The loaded model answers speech without a transcript.", "model")
    return words[-1]


async def _events(service: Service, pcm: Any, write: Write) -> None:
    """One delta with all of it: earlier guesses may have been revised, and a delta can't be taken back."""
    text = await _heard(service, pcm)
    for event in (
        {"type": "transcript.text.delta", "delta": text},
        {"type": "transcript.text.done", "text": text, "usage": _usage(pcm)},
    ):
        await write(b"data: " + orjson.dumps(event) + b"\n\n")


def _usage(pcm: Any) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(len(pcm) / MIC_RATE_HZ, 3)}
