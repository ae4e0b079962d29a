"""The ``/admin`` routes: list the workers, and scale or restart them while the server runs.

These routes need keys of their own. Without ``server.admin_key_file`` they are closed to everybody, also on this
machine, since a page in a local browser runs on this machine too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, Field

from app.access.auth import ADMIN, address_of, given_key
from app.engine_host import Serving
from app.http.body import StrictRoute
from app.http_errors import RESPONSES, HttpRefusal
from app.service import Service
from app.telemetry import ASKED, RequestContext, audit


class ScaleRequest(BaseModel):
    """The number of replicas that a stage should have."""

    stage: str = Field(description="The stage's name, as `/admin/workers` lists it.")
    count: int = Field(description="The number of replicas. Stages in the same worker get the same number.")


class Workers(BaseModel):
    workers: list[dict[str, Any]]


class _SmallBody(StrictRoute):
    max_bytes = 4096


def admin(service: Service) -> APIRouter:
    """Return the routes of one server."""
    router = APIRouter(
        prefix=ADMIN,
        route_class=_SmallBody,
        tags=["Admin"],
        responses=RESPONSES,
        dependencies=[Depends(_gate(service))],
    )

    @router.get("/workers", summary="List the replicas of all stages with their state")
    async def workers() -> Workers:  # pyright: ignore[reportUnusedFunction]
        _engines(service)
        return _workers(service)

    @router.post("/scale", summary="Start or drain replicas of a stage; responds when done")
    async def scale(body: ScaleRequest) -> Workers:  # pyright: ignore[reportUnusedFunction]
        engines = _engines(service)
        engine = next((one for one in engines if body.stage in one.stats()), engines[0])
        return await _changed(service, engine.scale(body.stage, body.count), f"scale {body.stage}={body.count}")

    @router.post("/restart", summary="Replace all workers one by one, without dropping a request")
    async def restart() -> Workers:  # pyright: ignore[reportUnusedFunction]
        return await _changed(service, _restart(_engines(service)), "restart")

    return router


def _gate(service: Service) -> Any:
    async def check(request: Request) -> None:
        given = given_key(request.headers)
        service.admin_keys.refresh()
        if not service.admin_keys:
            message = "This server has no admin key: set server.admin_key_file to a file with one."
            raise HttpRefusal(403, "no_admin_key", message)
        owner = service.admin_keys.owner(given) if given is not None else None
        if owner is None:
            if given is not None:
                service.throttle.failed(address_of(request.scope))
            raise HttpRefusal(401, "invalid_admin_key", "Send the admin key: 'Authorization: Bearer <key>'.")
        ASKED.set(RequestContext(ASKED.get().id, owner))

    return check


async def _changed(service: Service, change: Awaitable[None], what: str) -> Workers:
    audit("admin.change", what=what)
    await change
    audit("admin.changed", what=what)
    return _workers(service)


async def _restart(engines: Sequence[Serving]) -> None:
    for engine in engines:
        await engine.restart()


def _workers(service: Service) -> Workers:
    return Workers(workers=[msgspec.to_builtins(replica) for replica in service.replicas()])


def _engines(service: Service) -> Sequence[Serving]:
    """Return the engines that run, even if a stage has no replicas. Raises HttpRefusal before the first has started."""
    engines = tuple(service.hosts.engines)
    if not engines:
        state = service.engine_host.state
        raise HttpRefusal(503, state, f"The server is {state}; try again later.")
    return engines
