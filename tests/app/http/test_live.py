"""Answers that go on: their errors, and the clients that leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from app.http.live import ClientGone, Live, Write, while_there
from app.http.trouble import HttpRefusal


class Peer:
    """A client's end of a request whose body has been read."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def take(self, response: Live) -> None:
        await response({"type": "http", "path": "/"}, self.receive, self.send)


async def test_pieces_leave_one_by_one_and_the_body_ends() -> None:
    async def produce(write: Write) -> None:
        await write(b"one")
        assert len(peer.sent) == 2
        await write(b"two")

    peer = Peer()
    await peer.take(Live(produce, "audio/wav"))
    assert peer.sent[0]["status"] == 200
    assert (b"content-type", b"audio/wav") in peer.sent[0]["headers"]
    assert [one["body"] for one in peer.sent[1:]] == [b"one", b"two", b""]
    assert [one["more_body"] for one in peer.sent[1:]] == [True, True, False]


async def test_an_error_before_the_first_piece_is_a_refusal() -> None:
    async def produce(write: Write) -> None:
        raise HttpRefusal(503, "server_full", "Full.")

    peer = Peer()
    with pytest.raises(HttpRefusal):
        await peer.take(Live(produce, "audio/wav"))
    assert not peer.sent


async def test_an_error_after_it_breaks_off() -> None:
    """No last piece: the server closes the connection, and the client sees that something is missing."""

    async def produce(write: Write) -> None:
        await write(b"one")
        raise HttpRefusal(503, "server_full", "Full.")

    peer = Peer()
    await peer.take(Live(produce, "audio/wav"))
    assert [one.get("more_body") for one in peer.sent] == [None, True]


@pytest.mark.fault("N4.1")
async def test_a_client_that_leaves_ends_the_work() -> None:
    ended = asyncio.Event()

    async def produce(write: Write) -> None:
        try:
            await write(b"one")
            peer.gone.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    peer = Peer()
    await peer.take(Live(produce, "audio/wav"))
    assert ended.is_set()
    assert len(peer.sent) == 2


@pytest.mark.fault("N1.3", "N2.3")
async def test_a_client_that_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.live.SLOW_S", 0.01)

    class Stuck(Peer):
        async def send(self, message: Any) -> None:
            await asyncio.Event().wait()

    async def produce(write: Write) -> None:
        await write(b"one")
        raise AssertionError("nobody took it")

    await Stuck().take(Live(produce, "audio/wav"))


async def test_the_result_or_the_error_of_work_comes_out_as_it_is() -> None:
    async def right() -> int:
        return 5

    async def wrong() -> int:
        raise KeyError("x")

    peer = Peer()
    assert await while_there(peer.receive, right()) == 5
    with pytest.raises(KeyError):
        await while_there(peer.receive, wrong())
    peer.gone.set()
    with pytest.raises(ClientGone):
        await while_there(peer.receive, asyncio.Event().wait())
