"""uvicorn is inside as it was when its protocols were extended; else the test says what to read again."""

from __future__ import annotations

import pytest
from uvicorn import Server as UvicornServer

from app.server import Server
from app.transports import uvicorn_compat
from app.transports.http_protocol import HttpProtocol
from app.transports.socket_protocol import SocketProtocol
from app.transports.uvicorn_compat import FlowControl, H11Protocol, WebSocketsSansIOProtocol
from tests.app.transports.library import Part, check_parts, check_version

HTTP = Part(
    H11Protocol,
    {
        "connection_made": "transport",
        "data_received": "data",
        "on_response_complete": "",
        "pause_writing": "",
        "resume_writing": "",
        "eof_received": "",
        "connection_lost": "exc",
        "handle_events": "",
        "send_400_response": "msg",
        "handle_websocket_upgrade": "event",
    },
    frozenset({"app", "conn", "transport", "flow", "client", "scope", "cycle"}),
)
SOCKET = Part(
    WebSocketsSansIOProtocol,
    {
        "connection_made": "transport",
        "handle_connect": "event",
        "send": "async message",
        "data_received": "data",
        "receive": "async",
        "handle_events": "",
        "connection_lost": "exc",
        "handle_ping": "",
        "resume_writing": "",
        "handle_parser_exception": "",
        "eof_received": "",
        "keepalive_timeout": "",
    },
    frozenset(
        {
            "conn",
            "transport",
            "queue",
            "scope",
            "client",
            "loop",
            "writable",
            "read_paused",
            "close_sent",
            "close_timer",
        }
        | {"handshake_initiated", "handshake_complete", "pong_timer", "ping_timeout", "response"}
    ),
)
SERVER = Part(
    UvicornServer,
    {"startup": "async sockets", "main_loop": "async", "on_tick": "async counter", "handle_exit": "sig frame"},
    frozenset({"config", "server_state", "started", "should_exit", "lifespan", "servers"}),
)
FLOW = Part(FlowControl, {"__init__": "transport", "resume_reading": ""}, frozenset({"read_paused", "write_paused"}))


def test_the_version_is_the_one_that_was_read() -> None:
    check_version("uvicorn", *uvicorn_compat.READ)


def test_what_is_extended_is_as_it_was_read() -> None:
    check_parts(HTTP, SOCKET, SERVER, FLOW)


def test_what_another_library_patched_is_still_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        UvicornServer, "handle_exit", staticmethod(lambda *args, **kwargs: None)
    )  # as sse_starlette does
    check_parts(SERVER)


def test_a_method_with_other_parameters_is_a_change() -> None:
    with pytest.raises(AssertionError, match=r"handle_exit\(number\) is now \(sig frame\)"):
        check_parts(Part(UvicornServer, {"handle_exit": "number"}))


@pytest.mark.parametrize(("ours", "part"), [(HttpProtocol, HTTP), (SocketProtocol, SOCKET), (Server, SERVER)])
def test_every_method_that_is_overridden_was_read(ours: type, part: Part) -> None:
    overridden = {name for name in vars(ours) if callable(getattr(part.kind, name, None)) and not name.startswith("__")}
    assert overridden <= part.methods.keys()
