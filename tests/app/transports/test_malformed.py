"""Requests that are none: one clear refusal each, and no traceback. `make attacks` sends ten times more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator

import h11
import pytest

from app.transports.http_protocol import _Parser  # pyright: ignore[reportPrivateUsage]
from app.transports.tcp_connections import DEADLINES_S, State
from tests.app.rig import Running
from tests.app.transports.malformed import HEAD, UPGRADE, answer_to, requests

MANY, AT_ONCE = 300, 60
CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LIVEZ = b"GET /livez HTTP/1.1\r\n" + HEAD


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
    "a line feed within a header": LIVEZ + b"X: a\nContent-Length: 5\r\n\r\n",
    "a line feed after a method": LIVEZ.replace(b"1.1\r\n", b"1.1\n") + b"\r\n",
    "a line feed as the empty line": LIVEZ + b"\n",
    "only line feeds": LIVEZ.replace(b"\r", b"") + b"\n",
    "a folded header": LIVEZ + b"Transfer-Encoding:\r\n chunked\r\n\r\n",
    "two lengths": CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n") + b"0\r\n\r\n",
    "two lengths in turn": CHUNKED.replace(b"Transfer", b"Content-Length: 5\r\nTransfer") + b"0\r\n\r\n",
    "an unknown coding": CHUNKED.replace(b": chunked", b": gzip, chunked"),
    "a coding twice": CHUNKED.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "lengths that differ": LIVEZ + b"Content-Length: 5, 6\r\n\r\n",
    "a length with a sign": LIVEZ + b"Content-Length: +5\r\n\r\n",
    "a space before the colon": LIVEZ + b"Content-Length : 5\r\n\r\n",
    "a carriage return within a header": LIVEZ + b"X: a\rContent-Length: 5\r\n\r\n",
    "a head without an end": b"GET /livez HTTP/1.1\r\n" + HEAD + b"A: b\r\n" * 20_000,
}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED.keys())
async def test_what_cannot_be_understood_is_refused_at_once(request_: bytes, server: Running, said: list[str]) -> None:
    statuses = [b"HTTP/1.1 400 "]
    if request_ is REFUSED["another method"]:
        statuses += [b"HTTP/1.1 405 "]  # since websockets 17
    assert (await answer_to(server.port, request_)).startswith(tuple(statuses))
    assert not said


TRAILERS = {
    "a line feed as the end": b"0\r\n\n",
    "a line feed within a trailer": b"0\r\nX: a\nY: b\r\n\r\n",
    "a line feed after a chunk": b"2\r\n{}\n0\r\n\r\n",
    "a line feed after its size": b"2\n{}\r\n0\r\n\r\n",
    "a line feed in its extension": b"2;a\nb\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("body", TRAILERS.values(), ids=TRAILERS.keys())
async def test_the_next_request_is_not_read_out_of_an_ambiguous_body(body: bytes, server: Running) -> None:
    answer = await answer_to(server.port, CHUNKED + body + LIVEZ + b"\r\n")
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert b" 200 OK" not in answer


@pytest.mark.parametrize("ending", [b"\r\n", b"\n"])
def test_a_request_in_any_two_pieces_is_read_as_one(ending: bytes) -> None:
    """The search for ambiguous lines goes on where the last piece ended."""
    request = LIVEZ + b"X: a" + ending + b"\r\n"
    for at in range(1, len(request)):
        parser = _Parser(h11.SERVER)
        try:
            parser.receive_data(request[:at])
            parser.next_event()
            parser.receive_data(request[at:])
            assert isinstance(parser.next_event(), h11.Request)
            assert ending == b"\r\n"
        except h11.RemoteProtocolError:
            assert ending == b"\n"


async def test_a_cookie_above_127_is_nobodys_business(server: Running, said: list[str]) -> None:
    """Browsers send what a page of the same host has set, in whatever encoding."""
    cookie = UPGRADE.replace(b"\r\n\r\n", b"\r\nCookie: name=\xe9\r\n\r\n")
    assert (await answer_to(server.port, cookie)).startswith(b"HTTP/1.1 101 ")
    assert not said
