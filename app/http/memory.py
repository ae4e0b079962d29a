"""``/v1/memory``: show, export, store and delete the facts that sessions remember. Only on a server with memory."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from app.access.auth import owner_of
from app.facts import Fact, FactStore
from app.http.body import StrictRoute
from app.http_errors import RESPONSES, HttpRefusal
from app.ids import USER
from app.service import Service

PATH = "/v1/memory"

User = Annotated[str, Query(description="The user, as in `parley.memory.user` of the user's sessions.")]
AnyUser = Annotated[str | None, Query(description="The user. Default: all users of this API key.")]


class FactView(BaseModel):
    user: str
    name: str
    value: str
    updated_at: int = Field(description="When it was stored, as Unix time in seconds.")


class FactList(BaseModel):
    facts: list[FactView]


class FactValue(BaseModel):
    value: str = Field(description="The fact, at most 500 characters.")


class Deleted(BaseModel):
    deleted: int = Field(description="The number of deleted facts.")


class _SmallBody(StrictRoute):
    max_bytes = 16 * 1024


def memory(service: Service) -> APIRouter:
    """Return the routes of one server. They are none without ``server.memory.path``."""
    router = APIRouter(route_class=_SmallBody, tags=["Memory"], responses=RESPONSES)
    if service.facts is not None:
        _add_routes(router, service.facts)
    return router


def _add_routes(router: APIRouter, store: FactStore) -> None:
    @router.get(PATH, summary="List the facts of one user, or export the facts of all users of this API key")
    async def show(request: Request, user: AnyUser = None) -> FactList:  # pyright: ignore[reportUnusedFunction]
        facts = await store.facts(owner_of(request.scope), _checked(user))
        return FactList(facts=[_view(fact) for fact in facts])

    @router.put(PATH + "/{name}", summary="Store a fact, or replace the one of this name")
    async def put(name: str, body: FactValue, request: Request, user: User = "") -> FactView:  # pyright: ignore[reportUnusedFunction]
        return _view(await store.put(owner_of(request.scope), _checked(user) or "", name, body.value))

    @router.delete(PATH + "/{name}", summary="Delete a fact")
    async def forget(name: str, request: Request, user: User = "") -> Deleted:  # pyright: ignore[reportUnusedFunction]
        return Deleted(deleted=await store.delete(owner_of(request.scope), _checked(user), name))

    @router.delete(PATH, summary="Delete the facts of one user, or of all users of this API key")
    async def clear(request: Request, user: AnyUser = None) -> Deleted:  # pyright: ignore[reportUnusedFunction]
        return Deleted(deleted=await store.delete(owner_of(request.scope), _checked(user)))


def _checked(user: str | None) -> str | None:
    if user is not None and re.match(USER, user) is None:
        message = "A user's name must have at most 128 characters of ASCII, without spaces."
        raise HttpRefusal(400, "invalid_value", message, "user")
    return user


def _view(fact: Fact) -> FactView:
    return FactView(user=fact.user, name=fact.name, value=fact.value, updated_at=fact.updated_at)
