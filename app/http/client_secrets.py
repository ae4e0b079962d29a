"""``POST /v1/realtime/client_secrets``: short-lived keys for web pages, with their sessions' initial settings."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from app.access.auth import caller_of
from app.access.client_secrets import LIFETIME_S, LIFETIMES_S
from app.facts import no_memory
from app.http.body import StrictRoute
from app.http_errors import RESPONSES, HttpRefusal
from app.ids import new_id
from app.limits.principal import Principal
from app.realtime.protocol.to_wire import encode_session
from app.realtime.session_settings import opening_options, session_view
from app.service import Service


class ExpiresAfter(BaseModel):
    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(default=LIFETIME_S, ge=LIFETIMES_S[0], le=LIFETIMES_S[1])


class SecretRequest(BaseModel):
    """The session that the key opens, and the key's lifetime."""

    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any] = Field(
        default={}, description="Settings as in session.update. Omitted settings keep their defaults."
    )


class ClientSecret(BaseModel):
    value: str = Field(
        description="The secret. It can be used any number of times until it expires. Open sessions continue."
    )
    expires_at: int = Field(description="Expiry time as Unix time in seconds.")
    session: dict[str, Any] = Field(description="The settings in effect.")


class WithdrawRequest(BaseModel):
    """A secret that has leaked or is no longer needed."""

    value: str | None = Field(
        default=None, max_length=200, description="The secret to withdraw. Default: all secrets of this API key."
    )


class Withdrawn(BaseModel):
    withdrawn: int = Field(description="The number of withdrawn secrets. The sessions that they opened end too.")


class _SmallBody(StrictRoute):
    max_bytes = 64 * 1024  # instructions and tools; each valid secret keeps its own


def client_secrets(service: Service) -> APIRouter:
    """Return the routes of one server."""
    router = APIRouter(route_class=_SmallBody, tags=["Realtime"], responses=RESPONSES)

    @router.post("/v1/realtime/client_secrets", summary="Create a client secret: a short-lived key for a browser")
    async def create(body: SecretRequest, request: Request) -> ClientSecret:  # pyright: ignore[reportUnusedFunction]
        return _issue(service, body, caller_of(request.scope))

    @router.post("/v1/realtime/client_secrets/withdraw", summary="Withdraw one client secret, or all of this API key")
    async def withdraw(body: WithdrawRequest, request: Request) -> Withdrawn:  # pyright: ignore[reportUnusedFunction]
        gone = service.withdraw_secrets(caller_of(request.scope), body.value)
        if body.value is not None and not gone:
            raise HttpRefusal(404, "client_secret_not_found", "This API key has no such client secret.", "value")
        return Withdrawn(withdrawn=gone)

    return router


def _issue(service: Service, body: SecretRequest, maker: Principal) -> ClientSecret:
    context, lifetime_s = service.context(model=str(body.session.get("model") or "")), body.expires_after.seconds
    options = opening_options(context, body.session)
    if options.parley.memory is not None and context.memory is None:
        raise no_memory()
    secret = service.issue_secret(body.session, lifetime_s, maker)
    session = session_view(context, new_id("sess"), int(context.wall() + context.limits.session_s), options)
    return ClientSecret(
        value=secret.value, expires_at=int(context.wall() + lifetime_s), session=encode_session(session)
    )
