"""``GET /v1/models``: the one model that is loaded."""

from __future__ import annotations

import time
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from app.http.answering import check_model
from app.http.trouble import RESPONSES
from app.service import Service
from engine import ModelInfo


class Loaded(BaseModel):
    """Ours, not the API's: what the model can do."""

    voices: list[str]
    voice_details: list[dict[str, str]]
    examples: list[str]
    languages: list[str]
    abilities: list[str]
    context: int


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "parley"
    parley: Loaded


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


def models(service: Service) -> APIRouter:
    """The routes, for one server."""
    router = APIRouter(tags=["Models"], responses=RESPONSES)
    created = int(time.time())

    @router.get("/v1/models", summary="What is loaded")
    async def listed() -> Models:  # pyright: ignore[reportUnusedFunction]
        return Models(data=[_model(service.house().engine.model, created)])

    @router.get("/v1/models/{id}", summary="The loaded model, by its name")
    async def one(id: str) -> Model:  # pyright: ignore[reportUnusedFunction]
        model = service.house().engine.model
        check_model(model, id)
        return _model(model, created)

    return router


def _model(info: ModelInfo, created: int) -> Model:
    loaded = Loaded(
        voices=list(info.voice_ids),
        voice_details=[{"id": voice.id, "name": voice.name, "language": voice.language} for voice in info.voices],
        examples=list(info.examples),
        languages=list(info.languages),
        abilities=sorted(info.abilities),
        context=info.context,
    )
    return Model(id=info.name, created=created, parley=loaded)
