"""Answers that go on: their errors, and the clients that leave."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import defaultdict
from typing import Any

import httpx
import pytest
from openai import APIError, AsyncOpenAI
from starlette.types import Message

from app.http.live import COMMENT, ClientGone, Live, Write, while_there
from app.http.sound import encoded
from app.http_errors import HttpRefusal
from tests.app.http.test_sound import WAVE
from tests.app.rig import Running


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


class Quiet(Peer):
    """A client that notes when a comment came."""

    def __init__(self) -> None:
        super().__init__()
        self.commented = asyncio.Event()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message.get("body") == COMMENT:
            self.commented.set()


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> Quiet:
    monkeypatch.setattr("app.http.live.QUIET_S", 0.001)
    return Quiet()


async def test_a_stream_of_events_that_is_silent_is_kept_alive_by_comments(quiet: Quiet) -> None:
    """Before its first event and behind it; the head leaves once, and first."""

    async def produce(write: Write) -> None:
        for event in (b"data: 1\n\n", b"data: 2\n\n"):
            quiet.commented.clear()
            await asyncio.wait_for(quiet.commented.wait(), 10)
            await write(event)

    await quiet.take(Live(produce, "text/event-stream"))
    assert [one["type"] for one in quiet.sent].index("http.response.start") == 0
    assert [one["type"] for one in quiet.sent].count("http.response.start") == 1
    bodies = [one["body"] for one in quiet.sent[1:]]
    assert [one for one in bodies if one != COMMENT] == [b"data: 1\n\n", b"data: 2\n\n", b""]
    first = bodies.index(b"data: 1\n\n")
    assert COMMENT in bodies[:first]
    assert COMMENT in bodies[first : bodies.index(b"data: 2\n\n")]


async def test_a_file_that_is_silent_gets_no_comment(quiet: Quiet) -> None:
    async def produce(write: Write) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(quiet.commented.wait(), 0.05)
        await write(b"one")

    await quiet.take(Live(produce, "audio/wav"))
    assert [one["body"] for one in quiet.sent[1:]] == [b"one", b""]


async def test_an_error_behind_nothing_but_comments_is_an_event(quiet: Quiet) -> None:
    async def produce(write: Write) -> None:
        await asyncio.wait_for(quiet.commented.wait(), 10)
        raise HttpRefusal(503, "server_full", "Full.")

    await quiet.take(Live(produce, "text/event-stream"))
    told = [one["body"] for one in quiet.sent[1:] if one["body"] != COMMENT]
    assert told[1:] == [b""]
    event = json.loads(told[0].removeprefix(b"data: "))
    assert (event["type"], event["error"]["code"], event["error"]["message"]) == ("error", "server_full", "Full.")


CHAT: dict[str, Any] = {"model": "script", "messages": [{"role": "user", "content": "slow"}], "stream": True}
SAID = {"model": "script", "voice": "tone", "input": "word " * 200, "stream_format": "sse"}
ANSWERED = {"model": "script", "input": "slow", "stream": True, "store": False}
RECORDING = {"file": ("a.wav", encoded(WAVE, "wav"))}
STREAMS: dict[str, dict[str, Any]] = {
    "chat/completions": {"json": CHAT},
    "responses": {"json": ANSWERED},
    "audio/speech": {"json": SAID},
    "audio/transcriptions": {"data": {"model": "script", "stream": "true"}, "files": RECORDING},
}


@pytest.mark.parametrize("route", STREAMS)
async def test_the_official_client_reads_such_a_stream_as_one_without(
    route: str, openai: AsyncOpenAI, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the route: comments are no events to its parser, and none is lost."""
    told: list[dict[str, str]] = []
    for quiet_s in (60.0, 0.001):
        monkeypatch.setattr("app.http.live.QUIET_S", quiet_s)
        async with httpx.AsyncClient() as http:
            raw = (await http.post(f"{server.http}/v1/{route}", **STREAMS[route])).content
        assert (COMMENT in raw) is (quiet_s < 1)
        events = openai._make_sse_decoder().iter_bytes(iter([raw]))
        told.append(_told([json.loads(event.data) for event in events if event.data != "[DONE]"]))
    assert told[0] == told[1]
    assert told[0]


def _told(events: list[dict[str, Any]]) -> dict[str, str]:
    """The words and the sound of each kind of event, in whatever pieces they came."""
    told: defaultdict[str, str] = defaultdict(str)
    for event in events:
        choice = (event.get("choices") or [{}])[0]
        piece = event.get("delta") or event.get("text") or choice.get("delta", {}).get("content") or ""
        told[event.get("type", "chunk")] += piece if isinstance(piece, str) else ""
        told["sound"] += base64.b64decode(event.get("audio", "")).hex()
    return dict(told)


async def test_the_official_client_raises_an_error_behind_comments(
    openai: AsyncOpenAI, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.http.live.QUIET_S", 0.001)

    async def broken(*_: Any) -> None:
        await asyncio.sleep(0.05)
        raise HttpRefusal(504, "stalled", "It hangs.")

    monkeypatch.setattr("app.http.question._once", broken)
    with pytest.raises(APIError, match="It hangs") as caught:
        async for _ in await openai.chat.completions.create(**CHAT):
            pass
    assert caught.value.code == "stalled"
