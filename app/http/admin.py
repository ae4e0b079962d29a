"""``/admin``: the workers of this server, and changes of them while it serves. It has keys of its own.

Without ``server.admin_key_file`` nobody may use it, not even from this machine: a page in a browser is on this machine,
too.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from app.access.auth import ADMIN, address_of, given_key
from app.http.body import StrictRoute
from app.http_errors import RESPONSES, HttpRefusal
from app.service import Service, Serving
from app.telemetry import ASKED, RequestContext, audit


class ScaleRequest(BaseModel):
    """The number of replicas that a stage should have."""

    stage: str
    count: int = Field(description="The number of replicas. Stages that share a worker with it get as many.")


class Workers(BaseModel):
    workers: list[dict[str, Any]]


class _SmallBody(StrictRoute):
    max_bytes = 4096


def admin(service: Service) -> APIRouter:
    """The routes, for one server."""
    router = APIRouter(
        prefix=ADMIN,
        route_class=_SmallBody,
        tags=["Admin"],
        responses=RESPONSES,
        dependencies=[Depends(_gate(service))],
    )

    @router.get("/workers", summary="Every replica of every stage, and how it gets on")
    async def workers() -> Workers:  # pyright: ignore[reportUnusedFunction]
        return _workers(_engine(service))

    @router.post("/scale", summary="Start or drain replicas of a stage; answers when that is done")
    async def scale(body: ScaleRequest) -> Workers:  # pyright: ignore[reportUnusedFunction]
        engine = _engine(service)
        return await _changed(engine, engine.scale(body.stage, body.count), f"scale {body.stage}={body.count}")

    @router.post("/restart", summary="Replace every worker, one after the other, without dropping a request")
    async def restart() -> Workers:  # pyright: ignore[reportUnusedFunction]
        engine = _engine(service)
        return await _changed(engine, engine.restart(), "restart")

    return router


def _gate(service: Service) -> Any:
    async def check(request: Request) -> None:
        given = given_key(request.headers)
        service.admin_keys.refresh()
        if not service.admin_keys:
            message = "This server has no admin key: name a file that holds one in server.admin_key_file."
            raise HttpRefusal(403, "no_admin_key", message)
        owner = service.admin_keys.owner(given) if given is not None else None
        if owner is None:
            if given is not None:
                service.throttle.failed(address_of(request.scope))
            raise HttpRefusal(401, "invalid_admin_key", "Send the admin key: 'Authorization: Bearer <key>'.")
        ASKED.set(RequestContext(ASKED.get().id, owner))

    return check


async def _changed(engine: Serving, change: Awaitable[None], what: str) -> Workers:
    audit("admin.change", what=what)
    await change
    audit("admin.changed", what=what)
    return _workers(engine)


def _workers(engine: Serving) -> Workers:
    return Workers(workers=[msgspec.to_builtins(replica) for replica in engine.replicas()])


def _engine(service: Service) -> Serving:
    """The engine, ready or not: a stage without replicas is a reason to look. Raises HttpRefusal before its start."""
    host = service.engine_host
    if host.engine is None:
        raise HttpRefusal(503, host.state, f"The server is {host.state}; try again soon.")
    return host.engine
