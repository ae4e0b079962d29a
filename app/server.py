"""The HTTP server: routes, API pages, and the life of the process from binding the port to draining after SIGTERM.

``create_app`` returns the ASGI application; ``serve`` runs it. Knows neither the session's internals nor tensors.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from importlib.metadata import version
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import Depends, FastAPI, Response, WebSocket
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST

from app.access.auth import OPEN_PATHS, Gate, error_body
from app.access.security_headers import REQUEST_ID, SecurityHeadersMiddleware
from app.access.tls import Certificate, ServerTls
from app.client_address import Peers, shared_by
from app.engine_host import MakeEngine
from app.http.admin import admin
from app.http.calls import calls_routes
from app.http.chat import chat
from app.http.client_secrets import client_secrets
from app.http.live_sessions import live_routes
from app.http.memory import memory
from app.http.models import models
from app.http.names import HEADERS
from app.http.pages import add_pages, page_paths
from app.http.phone import phone
from app.http.responses import responses
from app.http.speakers import speakers
from app.http.speech import speech
from app.http.telephone import telephone_routes
from app.http.transcriptions import transcriptions
from app.http.warm_up import warm_up
from app.http_errors import add_errors
from app.limits import file_descriptors
from app.live import LiveDialect
from app.realtime.protocol.dialect import Realtime
from app.realtime.protocol.from_wire import MAX_MESSAGE_BYTES
from app.service import Service
from app.telemetry import configure_logging, log
from app.transports import websocket
from app.transports.http_protocol import HttpProtocol
from app.transports.listener import SocketListener
from app.transports.live_socket import live
from app.transports.open_calls import OpenCalls
from app.transports.resumable_session import ResumableSessions
from app.transports.sideband import sideband
from app.transports.socket_protocol import SocketProtocol
from app.transports.tcp_connections import TcpConnection, TcpConnections
from app.transports.telephone.audiosocket import listening
from app.transports.telephone.sip import answering
from app.transports.telephone.telephones import Telephones
from app.transports.uvicorn_compat import STARTUP_FAILURE
from app.transports.webrtc.calls import WebRtcCalls
from engine import ConfigError, EngineSpec, ModelInfo, describe
from engine.aio import event_loop
from engine.deployment.installation import DISTRIBUTION

VERSION = version(DISTRIBUTION)

ROUTERS = (client_secrets, chat, responses, speech, transcriptions, speakers, models, memory, phone, admin)
"""Functions that create the routes of a service."""

Extend = Callable[[FastAPI, Service], None]
"""A function that adds routes to a server, before those of the web page."""

ABOUT = (
    "The OpenAI HTTP API, as far as it suits a voice server. Conversations use the Realtime API: "
    "`WS /v1/realtime`, or WebRTC with `POST /v1/realtime/calls`. The loaded models and voices serve every name; the "
    "headers `parley-model`, `parley-voice` and `parley-mapped` report which. Unsupported fields are refused "
    "if they would change an answer, and ignored otherwise."
)

NOT_UPGRADED = (
    "This path is a WebSocket, but the request is not an upgrade. A proxy in front of the server must "
    "use HTTP/1.1 and forward the headers Upgrade and Connection."
)

NO_TELEMETRY = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""Switches off FastAPI's own spans. They contain query strings, which may hold a resume token; ours are in
``app/tracing``."""

PING_S, PONG_S = 10.0, 15.0
"""A half-open connection is detected within 25 s."""


def no_more(app: FastAPI, service: Service) -> None:
    """Add no routes."""


def create_app(spec: EngineSpec, make_engine: MakeEngine | None = None) -> FastAPI:
    """Return the application for a deployment; its lifespan starts and stops the engine. Raises ConfigError."""
    return app_of(Service(spec, make_engine))


OnReady = Callable[[str, Sequence[ModelInfo], Certificate | None], None]


def serve(
    spec: EngineSpec,
    on_ready: OnReady = lambda *ready: None,
    extend: Extend = no_more,
    others: Sequence[EngineSpec] = (),
) -> None:
    """Serve until SIGTERM or SIGINT.

    ``others`` are further deployments, which may fail to start. ``on_ready`` receives the address, the loaded models
    and the TLS certificate once no deployment is starting any longer. The first signal drains: new connections are
    refused, and running answers may end within ``server.drain_s``. The second signal ends the process at once. Raises
    EngineError, such as for a bad configuration, a port in use, or if no deployment starts.
    """
    file_descriptors.raise_limit()
    with closing(configure_logging()):
        if spec.on_one_machine and not others:
            describe(spec)  # reports a wrong stage before anything listens
        _serve(Service(spec, others=others), on_ready, extend)


def _serve(service: Service, on_ready: OnReady, extend: Extend) -> None:
    listener = _bind(service.settings.host, service.settings.port)
    url = _url(service.certificate, service.settings.host, listener.getsockname()[1])
    hosts = service.hosts

    def ready() -> None:
        event_loop.settle()
        on_ready(url, [engine.model for engine in hosts.engines], service.certificate)

    hosts.on_ready = ready
    log("server.listening", url=url, keys=len(service.keys), state=hosts.default.state)
    if not service.keys and not is_loopback(service.settings.host):
        log("server.open_to_all", host=service.settings.host, hint="set server.keys_file")
    config = config_of(service, extend)
    warm_up(cast("FastAPI", config.app))
    Server(config, service).run(sockets=[listener])
    if hosts.failure is not None:
        raise hosts.failure


def config_of(service: Service, extend: Extend = no_more) -> uvicorn.Config:
    """Return uvicorn's configuration: explicit limits, no compression (100 µs per message), no access log."""
    return uvicorn.Config(
        app_of(service, extend),
        http=HttpProtocol,
        ws=_sockets_of(service),
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PONG_S,
        timeout_graceful_shutdown=3,
        log_config=None,
        log_level="error",  # its warnings repeat each request that is not HTTP
        access_log=False,
        proxy_headers=False,  # app/client_address.py handles these headers for the configured proxies
        server_header=False,
        date_header=False,
        ssl_certfile=service.certificate.path if service.certificate is not None else None,
        ssl_keyfile=service.certificate.key_path if service.certificate is not None else None,
    )


def _sockets_of(service: Service) -> Any:
    """Return a factory of WebSocket protocols for uvicorn, each with its client's rate limiter."""
    own, scheduler, timeout_s = service.own_address, service.scheduler, service.settings.limits.send_timeout_s
    return lambda *args, **kwargs: SocketProtocol(
        *args, pace=service.pace(), scheduler=scheduler, own=own, send_timeout_s=timeout_s, **kwargs
    )


class Server(uvicorn.Server):
    """uvicorn's server, extended to drain before it shuts down."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._leaving = asyncio.Event()
        limits = service.settings.limits
        self.connections = TcpConnections(
            file_descriptors.for_clients(),
            limits.idle_connections,
            limits.idle_per_address,
            shared_by(service.settings.trusted_proxies),
            service.metrics.connections_cut.inc,
        )
        service.metrics.connections.set_function(lambda: len(self.connections))
        service.metrics.idle.set_function(lambda: self.connections.idle)
        service.hosts.on_failure = self.leave

    def leave(self) -> None:
        """Start to drain. May be called twice."""
        self.should_exit = True
        self._leaving.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, but with our own listener."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.servers = [cast("Any", self._listener(one)) for one in sockets or ()]
        self.started = True

    def _listener(self, sock: socket.socket) -> SocketListener:
        def make(connection: TcpConnection) -> HttpProtocol:
            return HttpProtocol(
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                connection=connection,
                pace=self._service.pace(),
                shared=self._service.scheduler,
                own=self._service.own_address,
            )

        return SocketListener(sock, self._tls(), self.connections, make, self.config.backlog)

    def _tls(self) -> Callable[[], ssl.SSLContext | None]:
        certificate, context = self._service.certificate, self.config.ssl
        return ServerTls(certificate, context).context if certificate and context else lambda: context

    async def main_loop(self) -> None:
        await self.on_tick(0)  # the only necessary tick: it sets the default headers
        await self._leaving.wait()
        for server in self.servers:
            server.close()
        await self._service.drain()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal. Exit at the second one; the workers then see their channels close and exit."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True
        asyncio.get_running_loop().call_soon_threadsafe(self.leave)


def app_of(service: Service, extend: Extend = no_more) -> FastAPI:
    """Return the application of one service, with the routes that ``extend`` adds."""

    open_calls = OpenCalls()
    calls, telephones = WebRtcCalls(service, open_calls), Telephones(service, open_calls)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        service.start()
        async with listening(service, telephones), answering(service, telephones), calls.open():
            yield
        await service.stop()

    about: Any = {"title": "Parley", "version": VERSION, "description": ABOUT, "telemetry": NO_TELEMETRY}
    app = FastAPI(**about, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.service = service
    app.state.open_calls = open_calls
    app.add_middleware(
        Gate,
        settings=service.settings,
        keys=service.keys,
        metrics_keys=service.metrics_keys,
        secrets=service.secrets,
        throttle=service.throttle,
        quotas=service.admission.quotas,
        budgets=service.budgets,
        open_paths=OPEN_PATHS | page_paths(),
    )
    _add_cors(app, service.settings.allowed_origins)
    app.add_middleware(SecurityHeadersMiddleware, settings=service.settings)
    app.add_middleware(Peers, trusted=service.settings.trusted_proxies)
    add_errors(app)

    _add_realtime(app, service, open_calls)
    routers = [routes(service) for routes in ROUTERS]
    # the Gate requires them; this only documents it
    keys = [Depends(HTTPBearer(auto_error=False))] if service.keys else []
    for router in (*routers, calls_routes(service, calls, open_calls), live_routes(service, calls, open_calls)):
        app.include_router(router, dependencies=keys)
    for router in telephone_routes(service.settings.telephone, telephones):
        app.include_router(router)
    _add_operations(app, service)
    extend(app, service)
    add_pages(app)
    return app


def _add_realtime(app: FastAPI, service: Service, open_calls: OpenCalls) -> None:
    """Add the WebSocket routes for sessions, and for sideband connections to active calls."""
    sessions = ResumableSessions(service.settings.name)

    @app.websocket("/v1/realtime")
    async def realtime(socket: WebSocket) -> None:  # pyright: ignore[reportUnusedFunction]
        if "call_id" in socket.query_params:
            await sideband(socket, service, open_calls, socket.query_params["call_id"], Realtime)
        else:
            await websocket.realtime(socket, service, sessions)

    @app.websocket("/v1/live/sessions")
    async def live_session(socket: WebSocket) -> None:  # pyright: ignore[reportUnusedFunction]
        await live(socket, service, sessions)

    @app.websocket("/v1/live/sessions/{session_id}/attach")
    async def attached(socket: WebSocket, session_id: str) -> None:  # pyright: ignore[reportUnusedFunction]
        await sideband(socket, service, open_calls, session_id, LiveDialect)

    @app.get("/v1/live/sessions", include_in_schema=False)
    @app.get("/v1/realtime", include_in_schema=False)
    async def not_upgraded() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        """Answer clients whose WebSocket upgrade was forwarded by a proxy as a plain request."""
        body = error_body(426, "upgrade_required", NOT_UPGRADED)
        return JSONResponse(body, 426, {"upgrade": "websocket", "connection": "upgrade"})


def _add_cors(app: FastAPI, origins: tuple[str, ...]) -> None:
    """Allow pages of allowed origins to read responses. Outside the Gate, since a preflight request has no key."""
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[origin.lower().rstrip("/") for origin in origins],
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["*"],  # official clients send custom headers, and the API key is one too
            expose_headers=["Location", REQUEST_ID, *HEADERS],  # the call, the request, the model
        )


def _add_operations(app: FastAPI, service: Service) -> None:
    """Add the routes for supervisors and dashboards."""

    @app.get("/livez", summary="Check that the process responds")
    async def livez() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "alive"}

    @app.get("/health", summary="Check that every stage of a model is warm and has a replica", responses={503: {}})
    async def health() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        hosts = service.hosts
        best, engine = hosts.of(None), hosts.default.engine
        body: dict[str, Any] = {
            "status": best.state,
            "ready": all(host.usable for host in hosts.all),
            "model": engine.model.name if engine else hosts.default.name or None,
            "version": VERSION,
        }
        if len(hosts.all) == 1:
            body |= best.health()
        else:
            body["models"] = {host.name: {"status": host.state, **host.health()} for host in hosts.all}
        return JSONResponse(body, 200 if best.state == "ready" else 503)

    @app.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(service.metrics.page(), media_type=CONTENT_TYPE_LATEST)


def _bind(host: str, port: int) -> socket.socket:
    """Bind the listening socket, before anything slow starts. Raises ConfigError."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"server.host: {host!r} is not an address of this machine: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"server.port: {port} is in use on {host}; use another one (PORT=, --port)") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"server.host: {host!r} is not an address of this machine: {_other(family)}") from None
        raise ConfigError(f"server.port: cannot listen on {host}:{port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener


def _other(family: socket.AddressFamily) -> str:
    """Return the next step for an address that this machine lacks, for example without IPv4."""
    return (
        "without IPv4, use --host ::1, or :: for every address"
        if family == socket.AF_INET
        else "use another one (HOST=, --host)"
    )


def _url(certificate: Certificate | None, host: str, port: int) -> str:
    scheme = "http" if certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether this address can be reached only from this machine."""
    return host in ("localhost", "::1") or host.startswith("127.")
