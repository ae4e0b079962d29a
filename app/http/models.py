"""``GET /v1/models``: the loaded models; and routes for their voices, as HTTP clients request them.

``/v1/audio/voices`` and ``/v1/audio/models`` are not part of OpenAI's API: Open WebUI fills its menus from them (its
``routers/audio.py``), and servers such as Kokoro-FastAPI have them too.
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
    language: str = Field(description="BCP 47 code. Empty if the voice speaks all languages of the model.")


class Loaded(BaseModel):
    """The abilities of the loaded model: an extension of OpenAI's API."""

    voices: list[str]
    voice_details: list[AudioVoice]
    examples: list[str]
    understands_speech: bool
    languages: list[str]
    abilities: list[str]
    context: int
    notes: list[str] = Field(description="Sentences that users should read before they talk to the model.")
    memory_available: bool = Field(description="Whether a session can remember facts about its user.")


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
    """Return the routes of one server."""
    router = APIRouter(responses=RESPONSES)
    created = int(time.time())

    @router.get("/v1/models", tags=["Models"], summary="List the loaded models")
    async def listed() -> ModelList:  # pyright: ignore[reportUnusedFunction]
        return ModelList(data=[_model(service, model, created) for model in _loaded(service)])

    @router.get("/v1/models/{id}", tags=["Models"], summary="Get a loaded model by name")
    async def one(id: str) -> ModelEntry:  # pyright: ignore[reportUnusedFunction]
        model = service.context(model=id).engine.model
        if id != model.name:
            raise not_loaded(service.hosts.names, id)
        return _model(service, model, created)

    @router.get("/v1/audio/voices", tags=["Audio"], summary="List the voices of a loaded model")
    async def voices(model: str = "") -> AudioVoices:  # pyright: ignore[reportUnusedFunction]
        return AudioVoices(voices=_voices(service.context(model=model).engine.model))

    @router.get("/v1/audio/models", tags=["Audio"], summary="List the loaded models that have speech input or output")
    async def audio_models() -> AudioModels:  # pyright: ignore[reportUnusedFunction]
        spoken = [model for model in _loaded(service) if {"speech", "audio"} & model.abilities]
        return AudioModels(models=[AudioModel(id=model.name) for model in spoken])

    return router


def _loaded(service: Service) -> list[ModelInfo]:
    """Return the models that can be used now, the default one first. Raises Closed if there is none."""
    service.context()
    return [host.engine.model for host in service.hosts.all if host.engine is not None and host.state == "ready"]


def _model(service: Service, info: ModelInfo, created: int) -> ModelEntry:
    loaded = Loaded(
        voices=list(info.voice_ids),
        voice_details=_voices(info),
        examples=list(info.examples),
        understands_speech=info.understands_speech,
        languages=list(info.languages),
        abilities=sorted(info.abilities),
        context=info.context,
        notes=list(info.notes),
        memory_available=service.facts is not None,
    )
    return ModelEntry(id=info.name, created=created, parley=loaded)


def _voices(info: ModelInfo) -> list[AudioVoice]:
    return [AudioVoice(id=voice.id, name=voice.name, language=voice.language) for voice in info.voices]
