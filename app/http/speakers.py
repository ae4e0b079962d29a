"""``POST /v1/speakers``: the voiceprint of a person, for ``turn_detection.voiceprint``. The server stores nothing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Form, UploadFile
from pydantic import BaseModel, Field

from app.http.body import StrictRoute
from app.http_errors import RESPONSES, HttpRefusal
from app.realtime.input import voiceprint
from app.realtime.input.enrolment import enrolled
from app.realtime.input.speaker_encoder import INSTALL
from app.service import Service


class Enrolment(BaseModel):
    voiceprint: str = Field(description="The voice, for `turn_detection.voiceprint`. The server does not store it.")


class _Recording(StrictRoute):
    max_bytes = 26 * 1024 * 1024  # as for transcriptions


def speakers(service: Service) -> APIRouter:
    """Return the route of one server."""
    router = APIRouter(route_class=_Recording, tags=["Audio"], responses=RESPONSES)

    @router.post("/v1/speakers", summary="Return the voiceprint of a person who agrees to it; nothing is stored")
    async def enrol(  # pyright: ignore[reportUnusedFunction]
        file: Annotated[UploadFile, File(description="A recording with at least 3 s of speech of one person.")],
        consent: Annotated[
            bool, Form(description="Must be true: the person agrees to the use of their voice.")
        ] = False,
    ) -> Enrolment:
        if not consent:
            message = "The person must agree to the use of their voice: ask them, then send consent=true."
            raise HttpRefusal(400, "consent_required", message, "consent")
        context = service.context()
        encoder = context.speaker_encoder
        if encoder is None:
            raise HttpRefusal(400, "unsupported_value", f"This server can't tell voices apart. {INSTALL}")
        pcm = await context.samples(file.file)
        voice = await context.in_thread(lambda: enrolled(pcm, encoder, context.vad()))
        return Enrolment(voiceprint=voiceprint.written(voice))

    return router
