"""When an answer has ended, nothing holds its pictures but the conversation, as far as that keeps them.

They are freed at once: the collector does not know how large they are, and would come too late. Only what is cancelled
waits for it: the frames that a cancellation went through hold each other. Engine and workers run in this very process,
so what they hold is seen, too.
"""

from __future__ import annotations

import base64
import gc
from collections.abc import Iterator
from typing import Any
from weakref import ReferenceType, ref

import httpx
import pytest

from app.media.images import Image
from app.realtime.output.response_task import ResponseTask
from tests.app.media.test_images import png
from tests.app.rig import Client, Running, eventually, silence, talking, tone

URL = "data:image/png;base64," + base64.b64encode(png(64, 48)).decode()
PICTURES = [{"type": "input_image", "image_url": URL}] * 3


class Shown:
    """The pictures that were decoded."""

    def __init__(self) -> None:
        self.refs: list[ReferenceType[Any]] = []

    @property
    def held(self) -> int:
        return sum(one() is not None for one in self.refs)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    """The collector does not run meanwhile."""
    seen, whole = Shown(), Image.decode

    def decode(self: Image) -> Any:
        pixels = whole(self)
        seen.refs.append(ref(pixels))
        return pixels

    monkeypatch.setattr(Image, "decode", decode)
    gc.disable()
    yield seen
    gc.enable()


def asking(text: str, id: str | None = None) -> dict[str, Any]:
    item = {"type": "message", "role": "user", "content": [*PICTURES, {"type": "input_text", "text": text}]}
    return item if id is None else {**item, "id": id}


@pytest.mark.parametrize("conversation", ["auto", "none"])
async def test_an_answer_s_own_pictures_are_let_go(conversation: str, client: Client, shown: Shown) -> None:
    response = {"conversation": conversation, "input": [asking("say: hello")]}
    await client.send("response.create", response=response)
    await client.until("response.done")
    assert len(shown.refs) == 3
    await eventually(lambda: not shown.held)


async def test_those_of_an_answer_that_is_cancelled_too(client: Client, shown: Shown) -> None:
    await client.send("response.create", response={"input": [asking("long 100")]})
    await client.until("response.output_audio.delta")
    assert shown.held == 3
    await client.send("response.cancel")
    assert (await client.until("response.done"))["response"]["status"] == "cancelled"
    await eventually(lambda: gc.collect() >= 0 and not shown.held)


async def test_those_of_the_conversation_are_held_by_it_alone(client: Client, shown: Shown) -> None:
    await client.send("conversation.item.create", item=asking("say: hello", "shown"))
    await client.send("response.create")
    await client.until("response.done")
    assert shown.held == 3
    await client.send("conversation.item.delete", item_id="shown")
    await client.until("conversation.item.deleted")
    await eventually(lambda: not shown.held)


async def seen_in_a_turn(client: Client) -> str:
    """A spoken turn that is answered, and a picture of the camera in it: its item's id."""
    await client.send("parley.camera.frame", image_url=URL)
    await client.append(tone(0.6))
    await client.append(silence(1.0))
    await client.until("response.done")
    return client.of("input_audio_buffer.committed")[-1]["item_id"]


async def test_what_the_camera_saw_is_held_by_the_conversation_alone(client: Client, shown: Shown) -> None:
    item_id = await seen_in_a_turn(client)
    assert shown.held == 1
    await client.send("conversation.item.delete", item_id=item_id)
    await client.until("conversation.item.deleted")
    await eventually(lambda: not shown.held)


async def test_where_the_last_answer_keeps_its_turn_it_is_held(
    client: Client, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(ResponseTask, "forget_turn", lambda self: None)
    item_id = await seen_in_a_turn(client)
    await client.send("conversation.item.delete", item_id=item_id)
    await client.until("conversation.item.deleted")
    assert shown.held == 1


async def test_a_session_that_ends_lets_all_of_them_go(server: Running, shown: Shown) -> None:
    async with talking(server) as client:
        await client.send("conversation.item.create", item=asking("say: hello", "shown"))
        await client.send("response.create", response={"input": [asking("long 100")]})
        await client.until("response.output_audio.delta")
        assert shown.held == 6
    await server.empty()
    await eventually(lambda: gc.collect() >= 0 and not shown.held)


async def test_over_http_they_are_let_go(server: Running, shown: Shown) -> None:
    content = [{"type": "image_url", "image_url": {"url": URL}}] * 3
    body = {"model": "x", "messages": [{"role": "user", "content": [*content, {"type": "text", "text": "say: hi"}]}]}
    async with httpx.AsyncClient(base_url=server.http) as http:
        for stream in (False, True):
            answer = await http.post("/v1/chat/completions", json={**body, "stream": stream})
            assert answer.status_code == 200
    assert len(shown.refs) == 6
    await eventually(lambda: not shown.held)
