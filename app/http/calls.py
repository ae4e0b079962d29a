"""WebRTC calls: ``POST /v1/realtime/calls`` answers an SDP offer; other routes end a call and list ICE servers.

Source: the Realtime GA protocol. An offer arrives as a form with the session's settings, or alone with a client secret.
"""

from __future__ import annotations

import time
from typing import Any, cast

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from starlette.datastructures import UploadFile

from app import strict_json
from app.access.auth import caller_of
from app.http.body import StrictRoute
from app.http_errors import HttpRefusal
from app.ids import elsewhere, new_id
from app.realtime.protocol import beta
from app.service import Service
from app.transports.open_calls import OpenCalls
from app.transports.opening import Opening
from app.transports.recorded_session import asks_for_recording
from app.transports.resumable_session import NoWayBack
from app.transports.webrtc.calls import WebRtcCalls
from app.transports.webrtc.turn_credentials import servers_for

PATH = "/v1/realtime/calls"
FORM, SDP = "multipart/form-data", "application/sdp"


class IceServerView(BaseModel):
    urls: list[str]
    username: str | None = None
    credential: str | None = Field(
        default=None, description="The password. If it is made from a TURN secret, it is valid for two hours."
    )


class IceServersView(BaseModel):
    """The servers, in the form that ``new RTCPeerConnection({iceServers: ice_servers})`` takes."""

    ice_servers: list[IceServerView]


class _OfferRoute(StrictRoute):
    max_bytes = 256 * 1024  # an offer, and instructions and tools


def calls_routes(service: Service, calls: WebRtcCalls, open_calls: OpenCalls) -> APIRouter:
    """Return the routes of one server."""
    router = APIRouter(route_class=_OfferRoute, tags=["Realtime"])

    @router.post(PATH, status_code=201, response_class=Response, summary="Start a WebRTC call with an SDP offer")
    async def begin(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        if beta.asked_for(request.headers.get("openai-beta", ""), ()):
            raise beta.refusal()
        offer, start = await _offer_of(request)
        caller = caller_of(request.scope)
        asked, token = request.query_params, request.query_params.get("resume")
        try:
            if token is None:
                record = asks_for_recording(request, service)
                opening = Opening(caller, asked.get("model", "")[:200], start, record=record)
                id, answer = await calls.begin(offer, opening, new_id("rtc", calls.server))
            else:
                id, answer = await calls.resume(offer, token, asked.get("after", ""), caller)
        except NoWayBack as lost:
            raise HttpRefusal(lost.status, lost.code, str(lost)) from None
        return Response(answer, 201, {"location": f"{PATH}/{id}"}, SDP)

    @router.post(PATH + "/{call_id}/hangup", response_class=Response, summary="End a call")
    async def hang_up(call_id: str, request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        call = open_calls.find(call_id, caller_of(request.scope))
        if call is None:
            message = f"No active call {call_id[:64]!r}.{elsewhere(call_id, calls.server)}"
            raise HttpRefusal(404, "call_not_found", message, "call_id")
        call.connection.hang_up("it was hung up")
        return Response(status_code=200)

    @router.get("/v1/realtime/ice-servers", summary="List the STUN and TURN servers for clients")
    async def ice_servers(request: Request) -> IceServersView:  # pyright: ignore[reportUnusedFunction]
        servers = servers_for(caller_of(request.scope).owner, service.settings.ice_servers, time.time())
        views = [IceServerView(urls=list(o.urls), username=o.username, credential=o.credential) for o in servers]
        return IceServersView(ice_servers=views)

    return router


async def _offer_of(request: Request) -> tuple[str, dict[str, Any] | None]:
    """Return the offer and the session's initial settings. Raises HttpRefusal."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    secret = caller_of(request.scope).secret
    start = secret.session if secret is not None else None
    if kind == SDP:
        return _text(await request.body()), start
    if kind != FORM:
        message = f"Send the offer as {SDP}, or as {FORM} with the parts 'sdp' and 'session' (got {kind[:60]!r})."
        raise HttpRefusal(415, "unsupported_media_type", message)
    async with request.form(max_files=4, max_fields=4) as form:
        offer, session = [await _part(form.get(name)) for name in ("sdp", "session")]
    if offer is None:
        raise HttpRefusal(400, "missing_required_parameter", "The form has no part 'sdp'.", "sdp")
    return _text(offer), start if session is None else strict_json.merged(start or {}, _session(session))


async def _part(part: UploadFile | str | None) -> bytes | None:
    return await part.read() if isinstance(part, UploadFile) else None if part is None else part.encode()


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise HttpRefusal(400, "invalid_offer", "The SDP offer is not UTF-8.", "sdp") from None


def _session(body: bytes) -> dict[str, Any]:
    try:
        session = strict_json.decode(body)
    except strict_json.BadJson as error:
        raise HttpRefusal(400, "invalid_json", f"The part 'session' is not valid JSON: {error}.", "session") from None
    if not isinstance(session, dict):
        raise HttpRefusal(400, "invalid_type", "The part 'session' must be an object.", "session")
    return cast("dict[str, Any]", session)
