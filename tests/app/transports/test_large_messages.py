"""Messages of megabytes are read in a thread, in their order; those of a microphone in the event loop."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest

from app import images
from app.realtime.conversation import raw_items
from app.realtime.protocol import from_wire
from app.slices import LONG_BYTES
from tests.app.rig import Client, Running, silence
from tests.app.test_images import png

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
    monkeypatch.setattr("app.realtime.input.audio_buffer.image_of_url", raw_items.image_of_url)
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
