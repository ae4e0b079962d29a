"""The camera of a turn: its frames go into the open request as they come, at a bounded rate, with their times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from app.media.images import fitted, scaled
from app.realtime.conversation import Utterance
from app.realtime.conversation.conversation import Conversation, prompt
from app.realtime.conversation.sizes import size_of
from app.realtime.protocol import CameraFrame, MessageImage, MessageItem, MessageVideo, UserAudio
from app.realtime.protocol.client_events import InputSamples
from engine import MIC_RATE_HZ, PICTURES, AudioPart, CameraFeed, ImagePart, Speech, VideoFrame, VideoPart
from tests.app.realtime.test_playout_profile import Call
from tests.app.realtime.test_session import FakeEngine

FEED = CameraFeed(fps=2.0, side=64, most=32)
URL = "data:image/jpeg;base64,/9j/2Q=="
LOUD, QUIET = (np.full(MIC_RATE_HZ // 10, level, np.int16) for level in (8_000, 0))


class Watching(FakeEngine):
    """A model that takes a film of the turn, two frames a second."""

    model = replace(FakeEngine.model, abilities=FakeEngine.model.abilities | {"image", "video"}, camera=FEED)


def frame(level: int, height: int = 2, width: int = 2) -> CameraFrame:
    return CameraFrame(np.full((height, width, 3), level, np.uint8), URL)


@asynccontextmanager
async def calling(engine: FakeEngine | None = None) -> AsyncGenerator[Call]:
    call = Call(engine or Watching())
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(call.run())
        await asyncio.sleep(0)
        yield call
        call.leave()


async def say(call: Call, seconds: float, level: np.ndarray = LOUD) -> None:
    for _ in range(round(seconds * 10)):
        await call.word(InputSamples(level))


async def end(call: Call) -> None:
    await say(call, 1.0, QUIET)
    await call.later(0.3)


def shown(call: Call, number: int = -1) -> list[tuple[int, float]]:
    """What a request was shown: the level of each frame, and its time."""
    return [(int(one.pixels.max()), round(one.at_s, 2)) for one in call.engine.asked[number].frames]


def item_of(call: Call, number: int = 0) -> MessageItem:
    items = [one for one in call.session._conversation.items if isinstance(one, MessageItem) and one.role == "user"]
    return items[number]


async def test_frames_reach_the_open_request_as_they_come() -> None:
    async with calling() as call:
        await call.word(frame(1))
        await say(call, 0.5)
        assert shown(call) == [(1, 0.0)], "the turn begins with what was seen just before"
        assert call.engine.requests[-1].camera
        await call.word(frame(2))
        await say(call, 0.5)
        assert shown(call) == [(1, 0.0), (2, 0.5)], "and goes on while it is spoken"
        await end(call)
        assert len(call.engine.requests) == 1, "what was shown with it answers"
        assert call.statuses() == ["completed"]


async def test_the_turn_s_item_is_one_video_with_its_sound_to_the_model_and_a_still_to_clients() -> None:
    async with calling() as call:
        await call.word(frame(1))
        await say(call, 0.6)
        await call.word(frame(2))
        await say(call, 0.4)
        await end(call)
        message = prompt("", (item_of(call),))[0]
        (part,) = message.parts
        assert isinstance(part, VideoPart)
        assert [int(one.max()) for one in part.frames] == [1, 2]
        assert (part.fps, part.times_s) == (2.0, (0.0, 0.6))
        assert len(part.pcm) == call.engine.asked[-1].played_samples
        content = call.of("conversation.item.added")[0]["item"]["content"]
        assert [(one["type"], one.get("image_url")) for one in content] == [("input_image", URL), ("input_audio", None)]


async def test_a_model_that_sees_pictures_gets_the_newest() -> None:
    async with calling(FakeEngine()) as call:
        for level in range(1, 6):
            await call.word(frame(level))
            await say(call, 1.0)
        await end(call)
        assert [level for level, _ in shown(call)] == [1, 2, 3, 4, 5], "whoever looks along saw all"
        pictures = [part for part in item_of(call).content if isinstance(part, MessageImage)]
        assert [int(one.pixels.max()) for one in pictures] == [3, 4, 5]
        assert [one.shown for one in pictures] == [False, False, True]


async def test_a_camera_that_is_switched_on_in_mid_turn_begins_the_request_anew_once() -> None:
    """The prompt of a film is laid out otherwise than that of speech alone."""
    async with calling() as call:
        await say(call, 0.5)
        assert not call.engine.requests[-1].camera
        for level in (1, 2, 3):
            await call.word(frame(level))
            await say(call, 0.6)
        await end(call)
        assert [one.camera for one in call.engine.requests] == [False, True]
        assert shown(call) == [(1, 0.5), (2, 1.1), (3, 1.7)]


async def test_in_a_pause_nothing_is_added_and_who_goes_on_shows_it_too() -> None:
    async with calling() as call:
        await call.word(frame(1))
        await say(call, 0.5)
        await say(call, 0.3, QUIET)
        await call.word(frame(2))
        assert shown(call) == [(1, 0.0)]
        await say(call, 0.5)
        await end(call)
        assert len(call.engine.requests) == 2, "the answer that was begun in the pause was forgotten"
        assert shown(call) == [(1, 0.0), (2, 0.8)]


async def test_pictures_of_the_last_turn_are_not_shown_again() -> None:
    async with calling() as call:
        await call.word(frame(1))
        for _ in range(2):
            await say(call, 0.5)
            await end(call)
        assert [bool(one.frames) for one in call.engine.asked] == [True, False]
        assert [type(part) for part in item_of(call, 1).content] == [UserAudio]


async def test_a_cleared_turn_takes_what_it_was_shown_with_it() -> None:
    async with calling() as call:
        await call.word(frame(1))
        await say(call, 0.5)
        await call.say("input_audio_buffer.clear")
        await say(call, 0.5)
        await end(call)
        assert shown(call) == []


async def test_a_turn_that_the_client_ends_is_a_film_as_well() -> None:
    async with calling() as call:
        await call.say("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        await call.word(frame(1))
        await say(call, 0.5)
        await call.word(frame(2))
        await say(call, 0.5)
        await call.say("input_audio_buffer.commit")
        await call.say("response.create")
        await call.later(0.1)
        assert shown(call) == [(1, 0.0), (2, 0.5)]
        assert len(call.engine.requests) == 1


# How much a turn holds


def turn(most: int = 32, film: bool = True, fps: float = 2.0) -> Utterance:
    return Utterance(400 * MIC_RATE_HZ, CameraFeed(fps=fps, most=most), film)


def play(utterance: Utterance, frames_s: float, seconds: float, frame_of: Any = frame) -> list[float]:
    """Speak for so long, with so many frames in a second; the times of those that the turn took."""
    tick, due = MIC_RATE_HZ // 100, 0.0
    for at in range(0, int(seconds * MIC_RATE_HZ), tick):
        if at >= due * MIC_RATE_HZ:
            utterance.add_frame(frame_of(int(due) % 200), at)
            due += 1 / frames_s
        utterance.push(np.zeros(tick, np.int16))
    return list(times(utterance))


def times(utterance: Utterance) -> Sequence[float]:
    return next((one.times_s for one in utterance.content if isinstance(one, MessageVideo)), ())


def test_sixty_frames_a_second_become_two() -> None:
    taken = play(turn(), 60, 5)
    assert 10 <= len(taken) <= 12
    assert min(np.diff(taken)) > 0.44


def test_one_frame_a_minute_is_taken_when_it_comes() -> None:
    assert play(turn(), 1 / 60, 130) == [0.0, 60.0, 120.0]


def test_a_long_turn_has_frames_of_all_of_its_time_and_never_more_than_it_may() -> None:
    taken = play(turn(most=32), 10, 300)
    assert len(taken) <= 32
    apart = np.diff(taken)
    assert max(apart[:15]) < 0.6
    assert taken[-1] > 120


def test_of_pictures_the_newest_are_kept_and_no_others_held() -> None:
    utterance = turn(most=PICTURES, film=False)
    play(utterance, 10, 5)
    assert sum(not isinstance(block, Speech) for block in utterance._blocks) == PICTURES
    assert [type(one) for one in utterance.content] == [MessageImage] * PICTURES + [UserAudio]


def test_frames_that_change_their_size_are_fitted_into_the_first() -> None:
    sizes = iter([(4, 6), (6, 4), (8, 12), (1, 1)])
    utterance = turn()
    play(utterance, 2, 2, lambda level: frame(100 + level, *next(sizes)))
    video = next(one for one in utterance.content if isinstance(one, MessageVideo))
    assert {one.shape for one in video.frames} == {(4, 6, 3)}
    upright = video.frames[1]
    assert not upright[:, 0].any(), "a picture in the middle of black"
    assert upright[:, 3].all()


@pytest.mark.parametrize("jump", [3600 * MIC_RATE_HZ, -3600 * MIC_RATE_HZ])
def test_a_clock_that_jumps_moves_no_frame_out_of_the_turn(jump: int) -> None:
    utterance = turn()
    utterance.push(np.zeros(MIC_RATE_HZ, np.int16))
    utterance.add_frame(frame(1), jump)
    utterance.push(np.zeros(MIC_RATE_HZ, np.int16))
    utterance.add_frame(frame(2), 2 * MIC_RATE_HZ)
    assert times(utterance) == ((1.0, 2.0) if jump > 0 else (0.0, 2.0))


async def test_readers_get_frames_and_speech_in_the_order_of_their_times() -> None:
    utterance = turn()
    play(utterance, 2, 1.2)
    utterance.close()
    heard, at_s = 0, list[tuple[float, float]]()
    async for chunk in utterance.follow():
        if isinstance(chunk, VideoFrame):
            at_s.append((chunk.at_s, heard / MIC_RATE_HZ))
        else:
            heard += len(chunk.pcm)
    assert [said for said, _ in at_s] == [lies for _, lies in at_s] == [0.0, 0.5, 1.0]


# What is kept of it


def filmed(id: str, pixels: int = 3000) -> MessageItem:
    frames = tuple(np.full((1, pixels // 3, 3), level, np.uint8) for level in range(3))
    film = MessageVideo(frames, 2.0, URL, times_s=(0.0, 0.5, 1.0))
    return MessageItem(id=id, role="user", content=(film, UserAudio(np.zeros(100, np.int16))))


def test_where_room_is_short_the_oldest_films_become_their_newest_frame() -> None:
    conversation = Conversation("conv_1", limit=10, limit_bytes=3 * size_of(filmed("a")))
    for number in range(5):
        conversation.add(filmed(f"turn_{number}"))
    kinds = [type(one.content[0]) for one in conversation.items if isinstance(one, MessageItem)]
    assert kinds[0] is MessageImage
    assert kinds[-1] is MessageVideo
    oldest = prompt("", conversation.items)[0].parts
    assert [type(part) for part in oldest] == [ImagePart, AudioPart]
    assert int(oldest[0].pixels.max()) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(("size", "small"), [((720, 1280), (36, 64)), ((48, 20), (48, 20)), ((1, 640), (1, 64))])
def test_a_picture_is_made_no_larger_than_the_model_wants(size: tuple[int, int], small: tuple[int, int]) -> None:
    assert scaled(np.zeros((*size, 3), np.uint8), 64).shape == (*small, 3)


def test_a_black_frame_stays_black() -> None:
    assert not fitted(np.zeros((9, 5, 3), np.uint8), 4, 6).any()
