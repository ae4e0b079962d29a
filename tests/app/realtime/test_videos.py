"""A video as an item of the conversation: decoded as over HTTP, told without its data, and given to the model."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.media import decode_jobs
from app.media.videos import decode_video
from app.realtime.conversation.token_counts import TokenCounts
from app.realtime.protocol import MessageItem, MessageVideo
from app.settings import Limits
from engine import AudioPart, CameraFeed, ImagePart, TextPart, TokenCost, VideoPart
from tests.app.media.test_videos import recording, url, video
from tests.app.realtime.test_session import FakeEngine, Talk, talking

SHOWN = video(2.0)
SIZE = 4 * 43 * 64 * 3 + 2 * 2 * 16_000  # of what is decoded of it


def part(data: bytes = SHOWN) -> dict[str, str]:
    return {"type": "input_video", "video_url": url(data)}


def message(*content: dict[str, str], id: str = "seen") -> dict[str, Any]:
    return {"id": id, "type": "message", "role": "user", "content": content}


@asynccontextmanager
async def shown(sees: str, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> AsyncGenerator[Talk]:
    """A session with a model that hears, and sees so."""
    abilities = FakeEngine.model.abilities | {"image", sees}
    feed = CameraFeed(fps=2.0, side=64, most=4)
    model = replace_struct(FakeEngine.model, abilities=abilities, camera=feed)
    monkeypatch.setattr(FakeEngine, "model", model)
    async with talking(limits=replace(Limits(), **limits)) as talk:
        yield talk


def replace_struct(struct: Any, **changes: Any) -> Any:
    return type(struct)(**{name: getattr(struct, name) for name in struct.__struct_fields__} | changes)


async def create(talk: Talk, *content: dict[str, str], id: str = "seen") -> None:
    await talk.say("conversation.item.create", item=message(*content, id=id))
    await talk.quiet_down()


async def test_a_model_of_video_gets_its_frames_and_its_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shown("video", monkeypatch) as talk:
        await create(talk, part(), {"type": "input_text", "text": "What happens?"})
        await talk.say("response.create")
        await talk.quiet_down()
        seen, asked = talk.engine.requests[-1].messages[-1].parts
    assert asked == TextPart("What happens?")
    assert isinstance(seen, VideoPart)
    assert np.shape(seen.frames) == (4, 43, 64, 3)
    assert (seen.fps, seen.times_s) == (2.0, ())
    assert abs(len(seen.pcm) / 16_000 - 2.0) < 0.1


async def test_it_is_told_as_a_video_without_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shown("video", monkeypatch) as talk:
        await create(talk, part())
        await talk.say("conversation.item.retrieve", item_id="seen")
        await talk.quiet_down()
        told = [talk.of(f"conversation.item.{kind}")[0]["item"]["content"] for kind in ("added", "done", "retrieved")]
        assert told == [[{"type": "input_video"}]] * 3
        await talk.say("conversation.item.delete", item_id="seen")
        assert talk.of("conversation.item.deleted")


@pytest.mark.parametrize(("text", "heard"), [("What happens?", False), ("", True)])
async def test_a_model_of_pictures_gets_some_and_the_sound_where_nothing_is_written(
    text: str, heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [{"type": "input_text", "text": text}] if text else []
    async with shown("image", monkeypatch) as talk:
        await create(talk, part(), *written)
        assert talk.of("conversation.item.added")[0]["item"]["content"][0] == {"type": "input_video"}
        await talk.say("response.create")
        await talk.quiet_down()
        parts = talk.engine.requests[-1].messages[-1].parts
    assert [type(one) for one in parts] == [*[ImagePart] * 4, AudioPart if heard else TextPart]
    levels = [one.pixels.mean() for one in parts if isinstance(one, ImagePart)]
    np.testing.assert_allclose(levels, [20, 70, 120, 170], atol=12)


async def test_an_answer_may_be_about_a_video_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shown("video", monkeypatch) as talk:
        await talk.say("response.create", response={"input": [message(part())]})
        await talk.quiet_down()
        assert talk.statuses() == ["completed"]
        assert isinstance(talk.engine.requests[-1].messages[-1].parts[0], VideoPart)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (recording(), "the file contains no video"),
        (SHOWN[:900], "damaged or cut off"),
        (video(4.0, sound=False), "longer than 3 s"),
        (b"RIFF0000WAVEfmt ", "unknown video format"),
    ],
    ids=["no frames", "half", "too long", "no video"],
)
async def test_what_cannot_be_read_is_one_error_and_the_session_goes_on(
    data: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shown("video", monkeypatch, audio_s=3.0) as talk:
        await create(talk, part(data))
        (error,) = talk.of("error")
        assert told in error["error"]["message"]
        assert error["error"]["code"] == "invalid_value"
        await create(talk, part(video(1.0, sound=False)), id="silent")
        assert [event["item"]["id"] for event in talk.of("conversation.item.added")] == ["silent"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"type": "input_video"}, "video_url is missing"),
        ({"type": "input_video", "video_url": "https://example.com/a.mp4"}, "URLs are not fetched"),
    ],
)
async def test_what_is_no_video_is_one_error(
    content: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shown("video", monkeypatch) as talk:
        await create(talk, content)
        (error,) = talk.of("error")
        assert told in error["error"]["message"]


async def test_videos_are_weighed_one_by_one_and_no_more_are_decoded_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[str]()

    def noted(*given: Any) -> Any:
        made.append(threading.current_thread().name)
        return decode_video(*given)

    monkeypatch.setattr(decode_jobs, "decode_video", noted)
    room_mb = (2 * SIZE + 3 * len(url(SHOWN)) + 20_000) / 1e6
    async with shown("video", monkeypatch, conversation_mb=room_mb) as talk:
        await create(talk, *[part()] * 5)
        assert [error["error"]["code"] for error in talk.of("error")] == ["conversation_full"]
        assert len(made) == 3, "the third is one too many, and the fourth is not begun"
        assert all(name.startswith("decoding") for name in made), "off the event loop"
        await create(talk, part(), part(), id="two")
        await create(talk, part(), part(), id="two more")
        assert [event["item"]["id"] for event in talk.of("conversation.item.added")] == ["two"]


def test_a_video_that_is_taken_apart_costs_as_many_pictures() -> None:
    model = replace_struct(FakeEngine.model, cost=TokenCost(image=100.0, frame=7.0, audio_s=1.0))
    pcm = np.zeros(16_000, np.int16)
    for apart, cost in ((False, 15.0), (True, 201.0)):
        seen = MessageVideo((np.zeros((2, 2, 3), np.uint8),) * 2, 1.0, pcm=pcm, apart=apart)
        item = MessageItem(id="seen", role="user", content=(seen,))
        assert TokenCounts(model).of(item) == cost + model.cost.message
