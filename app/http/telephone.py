"""HTTP routes for telephone exchanges: where a call's audio goes, and the step after the conversation.

Twilio sends forms signed with its account's token and receives TwiML. Other exchanges use an API key and receive a line
of text.
"""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from fastapi import APIRouter, Request, Response, WebSocket
from fastapi.responses import PlainTextResponse

from app.http.body import StrictRoute
from app.http_errors import HttpRefusal
from app.settings import Telephone
from app.transports.telephone.call_control import HANG_UP
from app.transports.telephone.telephones import Telephones
from app.transports.telephone.twilio import PATH, SIGNATURE, Twilio, serve_stream


class _FormRoute(StrictRoute):
    max_bytes = 64 * 1024  # about twenty fields


def telephone_routes(settings: Telephone, telephones: Telephones) -> list[APIRouter]:
    """Return the routes of the configured exchanges. Raises ConfigError."""
    twilio = [_twilio_routes(Twilio(settings), telephones)] if settings.twilio_url is not None else []
    return [*twilio, *([_next_route(telephones)] if settings.audiosocket is not None else [])]


def _next_route(telephones: Telephones) -> APIRouter:
    router = APIRouter(tags=["Telephone"])

    @router.get("/v1/telephone/next/{name}", summary="Get the next step of an ended call", response_class=Response)
    async def next_step(name: str) -> PlainTextResponse:  # pyright: ignore[reportUnusedFunction]
        """Return ``hang_up``, or the number to transfer the call to. ``name`` is the exchange's name for the call."""
        return PlainTextResponse(telephones.next_step(name))

    return router


def _twilio_routes(twilio: Twilio, telephones: Telephones) -> APIRouter:
    router = APIRouter(route_class=_FormRoute, tags=["Telephone"])

    @router.websocket(f"{PATH}/stream")
    async def carry(socket: WebSocket) -> None:  # pyright: ignore[reportUnusedFunction]
        await serve_stream(socket, twilio, telephones)

    @router.post(PATH, summary="Twilio webhook: incoming call", response_class=Response)
    async def begin(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        await _signed(request, twilio, PATH)
        action, url = quoteattr(f"{twilio.url}{PATH}/next"), quoteattr(twilio.stream_url)
        return _twiml(f"<Connect action={action}><Stream url={url}/></Connect>")

    @router.post(f"{PATH}/next", summary="Twilio webhook: the media stream ended", response_class=Response)
    async def go_on(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        form = await _signed(request, twilio, f"{PATH}/next")
        step = telephones.next_step(form.get("CallSid", ""))
        to = f"<Sip>{escape(step)}</Sip>" if step.startswith(("sip:", "sips:")) else escape(step)
        return _twiml("<Hangup/>" if step == HANG_UP else f"<Dial>{to}</Dial>")

    return router


async def _signed(request: Request, twilio: Twilio, path: str) -> dict[str, str]:
    """Return the fields of a form after checking its signature. Raises HttpRefusal."""
    async with request.form(max_files=0, max_fields=200) as fields:
        form = {name: value for name, value in fields.items() if isinstance(value, str)}
    if not twilio.signed(request.headers.get(SIGNATURE, ""), twilio.url + path, form):
        raise HttpRefusal(403, "invalid_signature", "The request is not signed with the Twilio account's auth token.")
    return form


def _twiml(verbs: str) -> Response:
    return Response(f'<?xml version="1.0" encoding="UTF-8"?><Response>{verbs}</Response>', media_type="text/xml")
