"""Headers of every response: the request id, and restrictions for browsers.

Source: RFC 6797 (HSTS), CSP Level 3, Permissions Policy, and the HTML standard (COOP).
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.tls import AUTO
from app.ids import new_id
from app.settings import Settings
from app.telemetry import ASKED, RequestContext

REQUEST_ID = "x-request-id"
TRACE = ("traceparent", "tracestate")
"""The headers of W3C Trace Context."""

POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; object-src 'none'; frame-ancestors 'none'"
"""Allows only this server as a source. ``frame-ancestors`` works only in a header: no other site may embed the page and
trick users into clicking its microphone button.
"""

SAFE = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "permissions-policy": (
        "microphone=(self), camera=(self), display-capture=(self), geolocation=(), payment=(), usb=()"
    ),
    "cross-origin-opener-policy": "same-origin",
}
"""Default headers. A route may set other values."""

HSTS = {"strict-transport-security": "max-age=15552000"}
"""Half a year, for a host with a certificate from an authority.

A self-signed certificate gets no HSTS: a browser that trusts it would then refuse plain HTTP from every other server on
localhost.
"""


class SecurityHeadersMiddleware:
    """ASGI middleware that sets the headers and the request id. Only ``Peers`` runs before it."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._own_certificate = settings.https == AUTO

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(raw=[*scope.get("headers", ())])
        trace = {name: headers[name] for name in TRACE if name in headers}
        asked = RequestContext(new_id("req"), trace=trace)
        ASKED.set(asked)
        secure = scope.get("scheme") in ("https", "wss") and not self._own_certificate
        heads = {**SAFE, **(HSTS if secure else {}), REQUEST_ID: asked.id}

        async def with_heads(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start", "websocket.accept"):
                headers = MutableHeaders(scope=message)
                for name, value in (heads if message["type"] != "websocket.accept" else {REQUEST_ID: asked.id}).items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_heads)
