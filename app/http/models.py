"""``GET /v1/models``: the one model that is loaded; and its voices, as clients that speak over HTTP look for them.

``/v1/audio/voices`` and ``/v1/audio/models`` are not OpenAI's: Open WebUI fills its menus from them (its
``routers/audio.py``), and Kokoro-FastAPI and others serve them.
"""

from __future__ import annotations

import time
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.http.names import not_loaded
from app.http_errors import RESPONSES
from app.service import Service
from engine import ModelInfo


class AudioVoice(BaseModel):
    id: str
    name: str
    language: str = Field(description="BCP 47; empty where the voice speaks every language that the model does.")


class Loaded(BaseModel):
    """The abilities of the loaded model: ours, not the API's."""

    voices: list[str]
    voice_details: list[AudioVoice]
    examples: list[str]
    understands_speech: bool
    languages: list[str]
    abilities: list[str]
    context: int
    notes: list[str] = Field(description="What people should know before they talk to it, a sentence each.")


class ModelEntry(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "parley"
    parley: Loaded


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelEntry]


class AudioVoices(BaseModel):
    voices: list[AudioVoice]


class AudioModel(BaseModel):
    id: str


class AudioModels(BaseModel):
    models: list[AudioModel]


def models(service: Service) -> APIRouter:
    """The routes, for one server."""
    router = APIRouter(responses=RESPONSES)
    created = int(time.time())

    @router.get("/v1/models", tags=["Models"], summary="What is loaded")
    async def listed() -> ModelList:  # pyright: ignore[reportUnusedFunction]
        return ModelList(data=[_model(service.context().engine.model, created)])

    @router.get("/v1/models/{id}", tags=["Models"], summary="The loaded model, by its name")
    async def one(id: str) -> ModelEntry:  # pyright: ignore[reportUnusedFunction]
        model = service.context().engine.model
        if id != model.name:
            raise not_loaded(model, id)
        return _model(model, created)

    @router.get("/v1/audio/voices", tags=["Audio"], summary="The voices that the loaded model has")
    async def voices() -> AudioVoices:  # pyright: ignore[reportUnusedFunction]
        return AudioVoices(voices=_voices(service.context().engine.model))

    @router.get("/v1/audio/models", tags=["Audio"], summary="The loaded model, if it speaks or hears")
    async def audio_models() -> AudioModels:  # pyright: ignore[reportUnusedFunction]
        model = service.context().engine.model
        return AudioModels(models=[AudioModel(id=model.name)] if {"speech", "audio"} & model.abilities else [])

    return router


def _model(info: ModelInfo, created: int) -> ModelEntry:
    loaded = Loaded(
        voices=list(info.voice_ids),
        voice_details=_voices(info),
        examples=list(info.examples),
        understands_speech=info.understands_speech,
        languages=list(info.languages),
        abilities=sorted(info.abilities),
        context=info.context,
        notes=list(info.notes),
    )
    return ModelEntry(id=info.name, created=created, parley=loaded)


def _voices(info: ModelInfo) -> list[AudioVoice]:
    return [AudioVoice(id=voice.id, name=voice.name, language=voice.language) for voice in info.voices]
