"""The server's access check: Host and Origin on every request, API keys where they are required, and quotas.

It runs before any route and before a WebSocket upgrade. Keys never appear in logs or messages.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.access.api_keys import ApiKeys
from app.access.client_secrets import PREFIX, ClientSecrets
from app.ids import elsewhere
from app.limits.auth_throttle import EVERY_S, AuthThrottle
from app.limits.bandwidth import BandwidthLimits
from app.limits.log_rate_limiter import NOBODY
from app.limits.principal import Principal, Secret
from app.limits.quotas import QuotaExceeded, Quotas
from app.settings import Settings
from app.telemetry import ASKED, audit

METRICS, DOCS = "/metrics", "/docs"

OPEN_PATHS = frozenset({"/livez", "/health", DOCS, "/openapi.json"})
"""Paths that need no key: probes have none, and a browser can't send one with a typed address."""

ADMIN = "/admin"
"""Every request below this path needs a key of its own: see app/http/admin.py."""

TWILIO = "/v1/telephone/twilio"
"""Requests below this path are signed instead: see app/transports/telephone/twilio.py."""

KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""A WebSocket subprotocol that carries a key, since browsers can't set headers on a WebSocket.

Source: openai-node, ``realtime/websocket.ts``.
"""


SECRET_ROUTES = frozenset(
    {("websocket", "/v1/realtime"), ("POST", "/v1/realtime/calls"), ("GET", "/v1/realtime/ice-servers")}
)
"""Routes that a client secret opens: starting a session, and the ICE servers that a browser requests before that."""

ANSWER_ROUTES = frozenset(
    ("POST", f"/v1/{path}") for path in ("chat/completions", "responses", "audio/speech", "audio/transcriptions")
)
"""Routes that count towards the quota of HTTP answers, from before their body is read."""

PACE = "parley.pace"
"""The ASGI extension with the connection's rate limiter (``pace``), whose bytes are charged to the caller.

A WebSocket's extension also has ``loop_time``, which belongs to one caller only.
"""

CALLER = "parley.caller"
"""The key of the ASGI scope that holds the caller (``Principal``)."""


LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine in an origin. They are not interchangeable: browsers tell them apart, and a port may belong to
different programs at 127.0.0.1 and at ::1.
"""


class Gate:
    """ASGI middleware: 403 for a foreign Host or Origin, 401 without a valid key, 429 over quota.

    On ``SECRET_ROUTES`` a client secret is accepted like a key. An expired one is refused there even if the server
    requires no keys. An address that has sent many wrong keys is refused with 429 for a while, even with a valid key.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        keys: ApiKeys,
        metrics_keys: ApiKeys,
        secrets: ClientSecrets,
        throttle: AuthThrottle,
        quotas: Quotas,
        budgets: BandwidthLimits,
        open_paths: frozenset[str],
    ) -> None:
        self._files = open_paths - OPEN_PATHS
        self._app = app
        self._open_paths = open_paths
        self._secrets = secrets
        self._throttle = throttle
        self._shares = quotas
        self._budgets = budgets
        self._hosts = {name.lower() for name in ("localhost", settings.host, *settings.allowed_hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}
        self._keys = keys
        self._metrics_keys = metrics_keys
        self._server = settings.name
        if (twilio := settings.telephone.twilio_url) is not None:
            self._hosts.add(_host_name(urlsplit(twilio).netloc))
        if settings.metrics == "open":
            self._open_paths |= {METRICS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        ASKED.set(replace(ASKED.get(), key=owner_of(scope) or NOBODY, address=address_of(scope)))
        if (pace := scope.get("extensions", {}).get(PACE)) is not None:
            self._budgets.charge(pace["pace"], caller_of(scope))
            if (loop_time := caller_of(scope).loop_time) is not None:
                loop_time.belong(caller_of(scope).address)
        if refusal is None:
            refusal = await self._pass(scope, receive, send)
        if refusal is not None:
            client = address_of(scope) or NOBODY
            page = {"origin": Headers(scope=scope)["origin"]} if refusal[1] == "origin_not_allowed" else {}
            audit("request.refused", client=client, path=scope["path"], status=refusal[0], code=refusal[1], **page)
            await refuse(scope, send, *refusal)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, str, str] | None:
        """Pass a request on, and count it towards its caller's quota if its route runs the engine."""
        with ExitStack() as places:
            if _route(scope) in ANSWER_ROUTES:
                try:
                    places.enter_context(self._shares.hold("answers", caller_of(scope)))
                except QuotaExceeded as taken:
                    return taken.status, taken.code, str(taken)
            await self._app(scope, receive, send)
        return None

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        headers = Headers(scope=scope)
        hosts, origin = headers.getlist("host"), headers.get("origin")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self._knows_host(host):
            return 403, "host_not_allowed", "The Host header does not name this server: see server.allowed_hosts."
        if origin is not None and not self._is_file(scope) and not self._knows_origin(origin, host):
            return 403, "origin_not_allowed", self._foreign(origin)
        given, address = given_key(headers), address_of(scope)
        if given is not None and (wait_s := self._throttle.wait_s(address)):
            return 429, "too_many_wrong_keys", f"Too many wrong keys from {address}: retry in {math.ceil(wait_s)} s."
        refusal = self._key_refusal(scope, given)
        if given is not None and refusal is not None:
            self._throttle.failed(address)
        return refusal

    def _key_refusal(self, scope: Scope, given: str | None) -> tuple[int, str, str] | None:
        keys = self._keys_of(scope["path"])
        owner = keys.owner(given) if given is not None else None
        if owner is not None:
            scope[CALLER] = _caller(scope, owner)
            return None
        if given is not None and given.startswith(PREFIX) and _route(scope) in SECRET_ROUTES:
            secret = self._secrets.find(given)
            if secret is None:
                return 401, "invalid_api_key", f"{_EXPIRED}{elsewhere(given, self._server)}"
            scope[CALLER] = _caller(scope, secret.maker.owner, secret)
            return None
        if keys and not self._is_open(scope):
            return (
                401,
                "invalid_api_key",
                "This server requires an API key: send 'Authorization: Bearer <key>', or 'api-key: <key>'.",
            )
        return None

    def _keys_of(self, path: str) -> ApiKeys:
        """Return the keys that open this path."""
        self._keys.refresh()  # on every path, so that withdrawing a key ends its open sessions
        if path != METRICS or not self._metrics_keys:
            return self._keys
        self._metrics_keys.refresh()
        return self._metrics_keys

    def _knows_host(self, host: str) -> bool:
        """Return whether a Host header is allowed: a configured name, or any IP address.

        DNS rebinding needs a name, so an address is safe.
        """
        name = _host_name(host)
        return name in self._hosts or _is_address(name)

    def _is_file(self, scope: Scope) -> bool:
        """Return whether the request is for a file of the web page, which everybody may read.

        Behind a proxy that replaces the Host header, the page seems to come from another origin. Without its script,
        the page could not show the error.
        """
        return scope["type"] == "http" and scope["method"] == "GET" and scope["path"] in self._files

    def _knows_origin(self, origin: str, host: str) -> bool:
        """Return whether the page came from this server, or from an origin in the settings."""
        origin = origin.lower().rstrip("/")
        if origin in self._origins:
            return True
        scheme, _, rest = origin.partition("://")
        return scheme in ("http", "https") and rest == host.lower()

    def _foreign(self, origin: str) -> str:
        """Return the message of a refused origin."""
        differs = "Browsers treat localhost, 127.0.0.1 and [::1] as different origins. "
        return (
            f"Pages of {origin:.100} may not connect: add this origin to server.allowed_origins. "
            f"{differs if _loopback_twins(origin) & self._origins else ''}"
            "If this is the server's own page, the proxy in front of the server must forward the Host header."
        )

    def _is_open(self, scope: Scope) -> bool:
        """Return whether the path needs no key here: probes, the page's files and the API documentation.

        Routes below ADMIN check their own key, and Twilio's requests are signed.
        """
        path: str = scope["path"]
        if path == TWILIO or path.startswith(f"{TWILIO}/"):
            return True
        return scope["type"] == "http" and (path in self._open_paths or path.startswith((f"{ADMIN}/", f"{DOCS}/")))


_EXPIRED = "The client secret is unknown or has expired: create a new one with POST /v1/realtime/client_secrets."


def caller_of(scope: Scope) -> Principal:
    """Return the sender of a request, who owns everything made with it. Has no name if the server requires no keys."""
    if (caller := scope.get(CALLER)) is None:
        caller = scope[CALLER] = _caller(scope)
    return caller


def _caller(scope: Scope, owner: str = "", secret: Secret | None = None) -> Principal:
    extension = scope.get("extensions", {}).get(PACE) or {}
    return Principal(owner, secret, address_of(scope), extension.get("loop_time"))


def owner_of(scope: Scope) -> str:
    """Return the name of the request's key, or of the key that made its client secret; empty without keys."""
    return caller_of(scope).owner


def address_of(scope: Scope) -> str:
    """Return the client's address, as resolved by ``app/client_address.py``."""
    client = scope.get("client")
    return client[0] if client else ""


def given_key(headers: Headers) -> str | None:
    """Return the key that a client sent: as a bearer token, as Azure's ``api-key``, or as a WebSocket subprotocol."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if key := headers.get("api-key", "").strip():
        return key
    for line in headers.getlist("sec-websocket-protocol"):
        for word in line.split(","):
            if word.strip().startswith(KEY_SUBPROTOCOL):
                return word.strip().removeprefix(KEY_SUBPROTOCOL)
    return None


async def refuse(scope: Scope, send: Send, status: int, code: str, message: str) -> None:
    """Refuse a request or a WebSocket handshake with an error in the protocol's JSON shape."""
    body = json.dumps(error_body(status, code, message)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 429:
        headers.append((b"retry-after", str(math.ceil(EVERY_S)).encode()))
    prefix = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{prefix}.start", "status": status, "headers": headers})
    await send({"type": f"{prefix}.body", "body": body})


def error_body(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """Return an error as the protocol's HTTP endpoints format it, with the request id that the log shows."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"type": kind, "code": code, "message": message, "param": param}
    return {"error": error, "request_id": ASKED.get().id}


_HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:/?#@\[\]\\]+))(:[0-9]{0,5})?")


def _route(scope: Scope) -> tuple[str, str]:
    return scope.get("method", "websocket"), scope["path"]


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port and IPv6 brackets; empty if malformed.

    Source: RFC 9110, 7.2, and RFC 3986, 3.2.2.
    """
    known = _HOST.fullmatch(host)
    return (known["address"] or known["name"]).lower() if known else ""


def _loopback_twins(origin: str) -> set[str]:
    """Return the origins that differ from this one only in the name of this machine."""
    scheme, _, host = origin.lower().rstrip("/").partition("://")
    for name in LOOPBACK:
        if host == name or host.startswith(f"{name}:"):
            return {f"{scheme}://{other}{host.removeprefix(name)}" for other in LOOPBACK}
    return set()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
