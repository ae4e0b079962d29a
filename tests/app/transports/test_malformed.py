"""Requests that are none: one clear refusal each, and no traceback. `make attacks` sends ten times more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator

import pytest

from app.transports.tcp_connections import DEADLINES_S, State
from tests.app.rig import Running
from tests.app.transports.malformed import HEAD, UPGRADE, answer_to, requests

MANY, AT_ONCE = 300, 60
CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def said(server: Running) -> Generator[list[str]]:
    """Errors that uvicorn and asyncio log."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler, loggers = Lines(logging.ERROR), [logging.getLogger(name) for name in ("uvicorn", "asyncio", "websockets")]
    for logger in loggers:
        logger.addHandler(handler)
    yield lines
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request is waited for no longer than a test may take."""
    for state in (State.HEAD, State.BODY, State.REST, State.IDLE):
        monkeypatch.setitem(DEADLINES_S, state, 0.3)


@pytest.mark.fault("N4.3")
async def test_no_request_is_an_error_of_ours(server: Running, said: list[str]) -> None:
    asyncio.get_running_loop().set_debug(False)  # it makes a request five times slower
    all_requests = list(requests(seed=4, count=MANY))
    for at in range(0, MANY, AT_ONCE):
        some = all_requests[at : at + AT_ONCE]
        answers = await asyncio.gather(*(answer_to(server.port, one) for one in some))
        for request, answer in zip(some, answers, strict=True):
            assert not answer.startswith(b"HTTP/1.1 5"), request
            assert b"Traceback" not in answer, request
    assert not said


REFUSED = {
    "a key above 127": UPGRADE.replace(b"dGhlIH", b"dGhl\xff"),
    "a protocol above 127": UPGRADE.replace(b": realtime", b": \xe9, realtime"),
    "an extension above 127": UPGRADE.replace(b"\r\n\r\n", b"\r\nSec-WebSocket-Extensions: \xe9\r\n\r\n"),
    "a version above 127": UPGRADE.replace(b": 13", b": \xb9\xb3"),
    "a line too long": UPGRADE.replace(b"\r\n\r\n", b"\r\nX: " + b"a" * 9000 + b"\r\n\r\n"),
    "too many lines": UPGRADE.replace(b"\r\n\r\n", b"\r\n" + b"A: b\r\n" * 150 + b"\r\n"),
    "another method": UPGRADE.replace(b"GET", b"POST"),
    "a body": UPGRADE.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n"),
    "chunks": UPGRADE.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a target above 127": b"GET /\xff HTTP/1.1\r\n" + HEAD + b"\r\n",
    "a name above 127": b"GET /livez HTTP/1.1\r\n" + HEAD + b"\xe9: b\r\n\r\n",
    "no chunk": CHUNKED + b"zz\r\n",
    "a body that breaks off in nonsense": CHUNKED + b"1\r\n{\r\nzz\r\n",
    "a body that nobody reads": CHUNKED.replace(b"/v1/chat/completions", b"/nothing") + b"zz\r\n",
    "a head without an end": b"GET /livez HTTP/1.1\r\n" + HEAD + b"A: b\r\n" * 20_000,
}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_understood_is_refused_at_once(request_: bytes, server: Running, said: list[str]) -> None:
    statuses = [b"HTTP/1.1 400 "]
    if request_ is REFUSED["another method"]:
        statuses += [b"HTTP/1.1 405 "]  # since websockets 17
    assert (await answer_to(server.port, request_)).startswith(tuple(statuses))
    assert not said


async def test_a_cookie_above_127_is_nobodys_business(server: Running, said: list[str]) -> None:
    """Browsers send what a page of the same host has set, in whatever encoding."""
    cookie = UPGRADE.replace(b"\r\n\r\n", b"\r\nCookie: name=\xe9\r\n\r\n")
    assert (await answer_to(server.port, cookie)).startswith(b"HTTP/1.1 101 ")
    assert not said
