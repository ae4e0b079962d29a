"""Live sessions over WebRTC: ``POST /v1/live/sessions`` starts one, and another route ends it.

Source: openai-python ``resources/live``. The settings, the offer and the answer are JSON.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app.access.auth import caller_of
from app.http.body import StrictRoute
from app.http_errors import HttpRefusal
from app.ids import elsewhere, new_id
from app.live import started
from app.service import Service
from app.transports.live_calls import opening_of
from app.transports.open_calls import OpenCalls
from app.transports.recorded_session import asks_for_recording
from app.transports.webrtc.calls import WebRtcCalls

PATH = "/v1/live/sessions"


class LiveSessionOffer(BaseModel):
    type: str = Field(description="The transport; only `webrtc` is supported.")
    sdp: str


class LiveSession(BaseModel):
    """A request for a Live session over WebRTC."""

    model_config = ConfigDict(extra="ignore")

    session: dict[str, Any] = Field(description="As in `session.start` over a WebSocket, without `audio.format`.")
    transport: LiveSessionOffer


class _LiveRoute(StrictRoute):
    max_bytes = 256 * 1024  # an offer, and instructions and tools


def live_routes(service: Service, calls: WebRtcCalls, open_calls: OpenCalls) -> APIRouter:
    """Return the routes of one server."""
    router = APIRouter(route_class=_LiveRoute, tags=["Live"])

    @router.post(PATH, status_code=201, summary="Start a Live session over WebRTC with an SDP offer")
    async def begin(asked: LiveSession, request: Request, response: Response) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        if asked.transport.type != "webrtc":
            message = f"The transport {asked.transport.type!r:.60} is not supported: use webrtc, or a WebSocket."
            raise HttpRefusal(400, "not_supported", message, "transport.type")
        config, id = started(asked.session, media=True), new_id("live", calls.server)
        record = asks_for_recording(request, service)
        opening = replace(opening_of(caller_of(request.scope), config, id), record=record, live=asked.session)
        _, answer = await calls.begin(asked.transport.sdp, opening, id)
        response.headers["location"] = f"{PATH}/{id}"
        return {"session": {"id": id}, "transport": {"type": "webrtc", "sdp": answer}}

    @router.post(PATH + "/{session_id}/hangup", summary="End a Live session over WebRTC")
    async def hang_up(session_id: str, request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        call = open_calls.find(session_id, caller_of(request.scope))
        if call is None:
            gone = elsewhere(session_id, calls.server)
            message = f"No active session {session_id[:64]!r}.{gone}"
            raise HttpRefusal(404, "session_not_found", message, "session_id")
        call.connection.hang_up("it was hung up")
        return Response(status_code=200)

    @router.post(PATH + "/{session_id}/{what}", summary="Forks, recordings and telephone calls: not supported")
    @router.get(PATH + "/{session_id}/{what}", include_in_schema=False)
    async def not_served(session_id: str, what: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        message = f"{what[:40]!r} is not supported: Live sessions are not stored, forked or transferred."
        raise HttpRefusal(404, "not_supported", message)

    return router
