"""``POST /v1/realtime/client_secrets``: a short-lived key for a page, and the settings its sessions start from."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from app.access.auth import caller_of
from app.access.client_secrets import LIFETIME_S, LIFETIMES_S
from app.http.body import StrictRoute
from app.http_errors import RESPONSES, HttpRefusal
from app.ids import new_id
from app.limits.principal import Principal
from app.realtime.protocol.to_wire import encode_session
from app.realtime.session_settings import opening_options, session_view
from app.service import Service
from app.telemetry import audit


class ExpiresAfter(BaseModel):
    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(default=LIFETIME_S, ge=LIFETIMES_S[0], le=LIFETIMES_S[1])


class SecretRequest(BaseModel):
    """The session that the key is for."""

    expires_after: ExpiresAfter = ExpiresAfter()
    session: dict[str, Any] = Field(
        default={}, description="Settings as in session.update; the rest keeps its defaults."
    )


class ClientSecret(BaseModel):
    value: str = Field(
        description="The secret. It may be used any number of times until it expires; sessions outlive it."
    )
    expires_at: int = Field(description="The end of its life, as Unix time in seconds.")
    session: dict[str, Any] = Field(description="The settings in effect.")


class WithdrawRequest(BaseModel):
    """The secret that has leaked, or is not needed any more."""

    value: str | None = Field(
        default=None, max_length=200, description="The secret to end; without it, all secrets that this key has made."
    )


class Withdrawn(BaseModel):
    withdrawn: int = Field(description="The number of secrets that were ended, with every session that they opened.")


class _SmallBody(StrictRoute):
    max_bytes = 64 * 1024  # instructions and tools; as many secrets as may be alive each keep one


def client_secrets(service: Service) -> APIRouter:
    """The route, for one server."""
    router = APIRouter(route_class=_SmallBody, tags=["Realtime"], responses=RESPONSES)

    @router.post("/v1/realtime/client_secrets", summary="Make a short-lived key for a browser")
    async def create(body: SecretRequest, request: Request) -> ClientSecret:  # pyright: ignore[reportUnusedFunction]
        return _issue(service, body, caller_of(request.scope))

    @router.post("/v1/realtime/client_secrets/withdraw", summary="End a short-lived key, or all that this key has made")
    async def withdraw(body: WithdrawRequest, request: Request) -> Withdrawn:  # pyright: ignore[reportUnusedFunction]
        gone = service.withdraw_secrets(caller_of(request.scope), body.value)
        if body.value is not None and not gone:
            raise HttpRefusal(404, "client_secret_not_found", "No client secret of this key has that value.", "value")
        return Withdrawn(withdrawn=gone)

    return router


def _issue(service: Service, body: SecretRequest, maker: Principal) -> ClientSecret:
    context, lifetime_s = service.context(), body.expires_after.seconds
    options = opening_options(context.engine.model, body.session)
    secret = service.secrets.issue(body.session, lifetime_s, maker)
    audit("client_secret.issued", lifetime_s=lifetime_s)
    session = session_view(context, new_id("sess"), int(context.wall() + context.limits.session_s), options)
    return ClientSecret(
        value=secret.value, expires_at=int(context.wall() + lifetime_s), session=encode_session(session)
    )
