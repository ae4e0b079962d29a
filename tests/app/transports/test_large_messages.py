"""Messages of megabytes are read in a thread, in their order; those of a microphone in the event loop."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from app.limits.fair_scheduler import LONG_BYTES, FairScheduler, LoopTimeBudget
from app.media import images
from app.realtime.conversation import raw_items
from app.realtime.protocol import from_wire
from app.settings import Limits
from app.transports.channel import Channel
from app.transports.disconnect import Disconnect
from app.transports.outbox import FRAGMENT_CHARS
from app.transports.socket_protocol import SocketProtocol
from tests.app.media.test_images import png
from tests.app.rig import Client, Running, eventually, silence

Threads = list[tuple[int, bool]]
"""For each message, or data URI, that was read: its size, and whether the event loop's thread read it."""


def recorded(read: Any, threads: Threads, loop: int) -> Any:
    def reading(text: str) -> Any:
        threads.append((len(text), threading.get_ident() == loop))
        return read(text)

    return reading


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads: Threads = []
    monkeypatch.setattr(from_wire, "decode", recorded(from_wire.decode, threads, threading.get_ident()))
    return threads


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads: Threads = []
    monkeypatch.setattr(raw_items, "image_of_url", recorded(images.image_of_url, threads, threading.get_ident()))
    monkeypatch.setattr("app.realtime.input.camera_buffer.image_of_url", raw_items.image_of_url)
    return threads


async def test_large_messages_are_read_in_a_thread_and_obeyed_in_their_order(client: Client, messages: Threads) -> None:
    await client.configure(audio={"input": {"turn_detection": None}})
    messages.clear()
    for seconds in (0.02, 30.0, 0.02):
        await client.append(silence(seconds))
    await client.send("input_audio_buffer.commit", event_id="last")
    item_id = (await client.until("input_audio_buffer.committed"))["item_id"]
    assert [here for _, here in messages] == [size <= LONG_BYTES for size, _ in messages] == [True, False, True, True]
    await client.send("conversation.item.retrieve", item_id=item_id)
    (part,) = (await client.until("conversation.item.retrieved"))["item"]["content"]
    assert len(base64.b64decode(part["audio"])) == pytest.approx(30.04 * 48_000, abs=200)


async def test_a_large_message_that_is_wrong_is_refused_by_its_id(client: Client, messages: Threads) -> None:
    for audio in ("!" * 400_000, "A" * 16_000_000):
        await client.send("input_audio_buffer.append", event_id="long", audio=audio)
        error = await client.error()
        assert (error["code"], error["event_id"]) == ("invalid_value", "long")
    await client.socket.send(b"a" * 400_000)
    assert (await client.error())["code"] == "invalid_event"
    assert not any(here for _, here in messages)
    await client.alive()


async def test_one_who_leaves_while_a_message_is_read_leaves_nothing(server: Running, talk: Any) -> None:
    for _ in range(3):
        async with talk(server) as client:
            await client.append(silence(60.0))
            client.socket.transport.abort()
    await server.empty()
    async with talk(server) as client:
        await client.alive()


@pytest.fixture
async def asked(client: Client) -> Client:
    """One who has been sent nothing yet of a recording of four minutes that it asked for: 15 MB in base64."""
    await client.configure(audio={"input": {"turn_detection": None}})
    for _ in range(4):
        await client.append(silence(60.0))
    await client.send("input_audio_buffer.commit")
    item_id = (await client.until("input_audio_buffer.committed"))["item_id"]
    await client.until("conversation.item.done")
    await client.send("conversation.item.retrieve", item_id=item_id)
    return client


def samples(fragments: list[Any]) -> int:
    """How many there are in the item that came so."""
    (part,) = json.loads("".join(fragments))["item"]["content"]
    return len(base64.b64decode(part["audio"])) // 2


@pytest.mark.slow
async def test_a_large_event_comes_in_fragments(asked: Client) -> None:
    """Between them others have their turn."""
    fragments = [fragment async for fragment in asked.socket.recv_streaming()]
    assert max(map(len, fragments)) <= 300_000
    assert samples(fragments) == pytest.approx(240 * 24_000, abs=400)
    await asked.alive()


class Sent(list[bytes]):
    """What a protocol writes: its client takes one piece each time that ``writable`` is set."""

    def __init__(self, timeout_s: float | None = None) -> None:
        super().__init__()
        self.protocol: Any = SocketProtocol.__new__(SocketProtocol)
        self.protocol.writable, self.protocol._loop_time = asyncio.Event(), LoopTimeBudget(FairScheduler())
        self.protocol.close_sent = self.protocol.disconnected = False
        self.protocol._send_timeout_s = timeout_s
        self.protocol.conn = ServerProtocol(state=State.OPEN)
        self.protocol.transport = SimpleNamespace(write=self.take, is_closing=lambda: False)
        self.protocol.writable.set()

    def take(self, data: bytes) -> None:
        self.append(data)
        self.protocol.writable.clear()

    async def send(self, text: str) -> None:
        await self.protocol.send({"type": "websocket.send", "text": text})


async def test_one_that_is_given_up_leaves_no_half_of_an_event() -> None:
    """Its client took one fragment and no more: what follows the event is then still understood."""
    text, sent = "é" * FRAGMENT_CHARS + "!", Sent()
    sending = asyncio.create_task(sent.send(text))
    await eventually(lambda: len(sent) == 1)
    sending.cancel()
    await asyncio.wait([sending])
    client = ClientProtocol(parse_uri("ws://localhost"), state=State.OPEN)
    client.receive_data(b"".join(sent))
    frames: list[Any] = client.events_received()
    assert [(frame.opcode, frame.fin) for frame in frames] == [(Opcode.TEXT, False), (Opcode.CONT, True)]
    assert b"".join(frame.data for frame in frames).decode() == text


async def test_who_takes_a_large_event_piece_by_piece_is_waited_for_and_who_takes_none_is_not() -> None:
    sent = Sent(timeout_s=2.0)
    sending = asyncio.create_task(sent.send("x" * FRAGMENT_CHARS * 10))
    for number in range(1, 10):  # a line on which all of it takes longer than one piece may
        await eventually(lambda number=number: len(sent) == number)
        await asyncio.sleep(0.25)
        sent.protocol.writable.set()
    await sending
    with pytest.raises(TimeoutError):
        await Sent(timeout_s=0.1).send("x" * FRAGMENT_CHARS * 2)


class Slow:
    """A transport whose client takes ``seconds`` for each event."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.events = seconds, list[str]()

    async def send(self, text: str) -> None:
        await asyncio.sleep(self.seconds)
        self.events.append(text)


async def test_an_event_may_take_as_long_as_so_many_short_ones() -> None:
    for size, goes in ((FRAGMENT_CHARS * 40, True), (100, False)):
        transport: Any = Slow(0.4)
        channel = Channel(transport, Limits(send_timeout_s=0.1), LoopTimeBudget(FairScheduler()))
        channel.outbox.put("x" * size)
        if goes:
            await channel._send_all()
        else:
            with pytest.raises(Disconnect, match="does not read"):
                await channel._send_all()
        assert len(transport.events) == goes


async def test_large_pictures_are_weighed_in_a_thread(client: Client, pictures: Threads) -> None:
    """A JPEG's header may be as long as the file."""
    for size in (0, 400_000):
        noise = base64.b64encode(png() + bytes(size)).decode()
        url = f"data:image/png;base64,{noise}"
        content = [{"type": "input_image", "image_url": url}]
        item = {"type": "message", "role": "user", "content": content}
        await client.socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await client.until("conversation.item.done")
    assert [here for _, here in pictures] == [True, False]


async def test_large_pictures_of_a_camera_are_weighed_in_a_thread(
    serve_with: Any, talk: Any, pictures: Threads
) -> None:
    url = "data:image/png;base64," + base64.b64encode(png() + bytes(400_000)).decode()
    async with serve_with() as server, talk(server) as client:
        await client.send("parley.camera.frame", image_url=url)
        await client.alive()
    assert [here for _, here in pictures] == [False]
