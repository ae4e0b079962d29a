"""A transport on which the server plays: when it says so, what a barge-in cuts, what the client may not do there."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from app.realtime.ports import PlayoutProfile
from app.realtime.protocol import client_events
from app.realtime.protocol.client_events import Received
from app.realtime.protocol.items import AssistantAudio, MessageImage, MessageItem
from app.realtime.protocol.server_events import ResponseCreatedEvent
from app.realtime.session import Session
from app.settings import Limits
from tests.app.realtime.test_session import FakeEngine, Talk, check_order

PROFILE = PlayoutProfile(lead_s=0.04, packet_s=0.02, plays=True, streams_input=True, lag_s=lambda: 0.01)
SOUND = ("response.output_audio.delta",)
RED = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Call(Talk):
    """A session on such a transport, whose clock the test moves."""

    def __init__(self, engine: FakeEngine, profile: PlayoutProfile = PROFILE, limits: Limits | None = None) -> None:
        super().__init__(engine, limits)
        self.session = Session(self.session._context, self._tell, profile=profile)

    async def word(self, word: client_events.ClientEvent) -> None:
        self._said.put_nowait(Received(word))
        await self._said.join()

    async def shows(self, **frame: str) -> None:
        """A camera's picture, until it has been decoded, off the event loop."""
        self.mutter("parley.camera.frame", **frame)
        await self._said.join()

    async def later(self, seconds: float) -> None:
        """Let the clock go on, in steps of a packet, and what waits for it run."""
        for _ in range(round(seconds / PROFILE.packet_s)):
            self.now_s += PROFILE.packet_s
            await asyncio.sleep(0.025)

    def order(self, *kinds: str) -> list[str]:
        return [event["type"] for event in self.events if event["type"] in kinds]

    def sent_ms(self) -> int:
        return 20 * len(self.of(SOUND[0]))


@asynccontextmanager
async def calling(**options: Any) -> AsyncGenerator[Call]:
    call = Call(FakeEngine(), **options)
    try:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(call.run())
            await asyncio.sleep(0)
            yield call
            call.leave()
    finally:
        await call.decoding.close()
    check_order([event for event in call.events if not event["type"].startswith("output_audio_buffer")])


async def test_an_answer_is_started_after_its_part_and_stopped_after_its_end() -> None:
    async with calling() as call:
        await call.typed("go on")
        assert call.sent_ms() == 60, "one packet, and 40 ms ahead"
        await call.later(0.3)
    buffer = ("output_audio_buffer.started", "output_audio_buffer.stopped", "output_audio_buffer.cleared")
    order = call.order("response.content_part.added", "response.done", *buffer)
    assert order == ["response.content_part.added", buffer[0], "response.done", buffer[1]]
    first = next(i for i, event in enumerate(call.events) if event["type"] in SOUND)
    assert call.events[first - 1]["type"] == buffer[0]


async def test_an_answer_leaves_in_whole_packets_however_its_sound_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two words of five and a half packets each: a half that left by itself would be filled with silence, in a word."""
    monkeypatch.setattr("tests.app.realtime.test_session.WORD", np.full(2_640, 0.1, np.float32))
    async with calling() as call:
        await call.typed("go on")
        await call.later(0.4)
    sizes = [len(base64.b64decode(event["delta"])) for event in call.of(SOUND[0])]
    assert sizes == [2 * 480] * 11


async def test_a_barge_in_clears_truncates_and_then_ends_the_response() -> None:
    async with calling() as call:
        await call.typed("go on")
        await call.later(0.04)
        await call.word(client_events.InputSamples(np.full(24_000, 8_000, np.int16)))
        kinds = ("input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated")
        assert call.order(*kinds, "response.done") == [*kinds, "response.done"]
        done, cut = call.of("response.done")[0]["response"], call.of("conversation.item.truncated")[0]
        assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
        assert cut["audio_end_ms"] == 30, "40 ms have passed, the last 10 of them are still on their way"
        item = call.session._conversation.get(cut["item_id"])
        assert isinstance(item, MessageItem)
        spoken = item.content[0]
        assert isinstance(spoken, AssistantAudio)
        assert (spoken.played_samples, spoken.truncated) == (720, True)
        sent_ms = call.sent_ms()
        await call.later(0.1)
        assert call.sent_ms() == sent_ms
        await call.word(client_events.InputSamples(np.zeros(16_000, np.int16)))


async def test_the_end_of_an_answer_that_is_still_heard_is_cut_too() -> None:
    async with calling(profile=PlayoutProfile(0.04, 0.02, True, lambda: 5.0)) as call:
        await call.typed("go on")
        await call.later(0.3)
        assert call.of("response.done")
        assert not call.of("output_audio_buffer.stopped")
        await call.say("output_audio_buffer.clear")
        assert call.of("output_audio_buffer.cleared")[0]["response_id"] == call.of("response.done")[0]["response"]["id"]
        assert call.of("conversation.item.truncated")[0]["audio_end_ms"] == 0
        await call.say("output_audio_buffer.clear")
        assert len(call.of("output_audio_buffer.cleared")) == 1


async def test_clearing_stops_the_answer() -> None:
    async with calling() as call:
        await call.typed("go on")
        await call.say("output_audio_buffer.clear")
        assert call.statuses() == ["cancelled"]
        assert call.of("output_audio_buffer.cleared")
        assert not call.of("error")


async def test_a_broken_answer_is_cleared() -> None:
    async with calling() as call:
        await call.typed("fail")
        assert call.order("output_audio_buffer.started", "output_audio_buffer.cleared", "response.done") == [
            *("output_audio_buffer.started", "output_audio_buffer.cleared", "response.done")
        ]


async def test_audio_cannot_be_appended() -> None:
    async with calling() as call:
        await call.hear(np.zeros(100, np.int16))
        assert call.of("error")[0]["error"]["code"] == "invalid_event_for_transport"


async def test_one_voice_at_a_time() -> None:
    async with calling() as call:
        await call.typed("wait")
        await call.say("response.create", response={"conversation": "none"})
        assert call.of("error")[0]["error"]["code"] == "conversation_already_has_active_response"
        await call.say("response.create", response={"conversation": "none", "output_modalities": ["text"]})
        assert len(call.of("response.created")) == 2
        await call.say("response.cancel")


VOICE, SILENCE = np.full(8_000, 8_000, np.int16), np.zeros(16_000, np.int16)
ASIDE = {
    "conversation": "none",
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}],
}


async def test_a_turn_beside_a_voice_that_is_no_answer_is_answered_behind_it() -> None:
    """A greeting that the conversation does not keep: what its listener says meanwhile was refused, and lost."""
    async with calling() as call:
        audio: dict[str, Any] = {"input": {"transcription": {"model": "fake"}}}
        await call.say("session.update", session={"type": "realtime", "audio": audio})
        await call.say("response.create", response=ASIDE)
        await call.word(client_events.InputSamples(VOICE))
        await call.word(client_events.InputSamples(SILENCE))
        assert len(call.of("response.created")) == 1
        await call.later(0.6)
        assert not call.of("error")
        assert call.statuses() == ["completed", "completed"]
        assert len(call.of("conversation.item.input_audio_transcription.completed")) == 1


async def test_an_answer_that_is_refused_for_a_voice_beside_it_is_nobodys_and_its_turn_is_understood() -> None:
    async with calling() as call:
        audio: dict[str, Any] = {"input": {"turn_detection": None, "transcription": {"model": "fake"}}}
        await call.say("session.update", session={"type": "realtime", "audio": audio})
        await call.say("response.create", response=ASIDE)
        await call.word(client_events.InputSamples(VOICE))
        await call.say("input_audio_buffer.commit")
        await call.say("response.create")
        assert call.of("error")[0]["error"]["code"] == "conversation_already_has_active_response"
        await call.later(0.6)
        assert len(call.of("conversation.item.input_audio_transcription.completed")) == 1
        assert call.engine.open_now == 0
        await call.say("response.create")
        await call.later(0.6)
        assert call.statuses() == ["completed", "completed"]


async def test_clearing_stops_a_voice_that_is_no_answer_and_keeps_a_turn_that_waits_for_its_answer() -> None:
    async with calling() as call:
        content = [{"type": "input_text", "text": "wait"}]
        aside = {**ASIDE, "input": [{"type": "message", "role": "user", "content": content}]}
        await call.say("response.create", response=aside)
        await call.word(client_events.InputSamples(VOICE))
        await call.word(client_events.InputSamples(SILENCE))
        await call.later(0.1)
        assert len(call.of("response.created")) == 1, "the turn waits"
        await call.say("output_audio_buffer.clear")
        await call.later(0.6)
        assert call.statuses() == ["cancelled", "completed"]


async def test_an_answer_begins_behind_the_end_of_the_one_before_which_is_over_by_then() -> None:
    """Its listener is not told that two play, and what they have heard of the second one counts from its own sound."""
    async with calling(profile=dataclasses.replace(PROFILE, lag_s=lambda: 1.0)) as call:
        await call.typed("go on")
        await call.later(0.3)
        assert call.statuses() == ["completed"]
        before_s = call.session._responses.active.current.unplayed_s()  # pyright: ignore[reportOptionalMemberAccess]
        assert before_s > 0.5
        await call.typed("go on")
        started, stopped = "output_audio_buffer.started", "output_audio_buffer.stopped"
        assert call.order(started, stopped) == [started, stopped, started]
        assert call.order(stopped, "response.created")[-2:] == ["response.created", stopped], "else a call seems over"
        await call.later(1.6)
        assert call.order(started, stopped) == [started, stopped] * 2


async def test_an_answer_that_met_its_limit_is_played_again_like_any_other() -> None:
    async with calling() as call:
        await call.typed("length")
        await call.later(0.3)
        assert call.statuses() == ["incomplete"]
        sent_ms = call.sent_ms()
        call.session.away()
        call.session.back(last_seen_s=100.0)
        await call.later(0.3)
        assert call.sent_ms() > sent_ms
        call.events = [event for event in call.events if event["type"] not in SOUND]  # which a call has as sound


async def test_who_leaves_while_an_end_is_played_again_leaves_nothing() -> None:
    async with calling() as call:
        await call.typed("go on")
        await call.later(0.3)
        call.session.away()
        call.session.back(last_seen_s=100.0)
        call.session.away()


async def test_a_stream_that_finds_no_room_is_told_once() -> None:
    async with calling(limits=Limits(audio_s=2)) as call:
        audio = {"input": {"turn_detection": None}}
        await call.say("session.update", session={"type": "realtime", "audio": audio})
        for _ in range(2):
            for _ in range(10):
                await call.word(client_events.InputSamples(VOICE))
            await call.say("input_audio_buffer.clear")
        assert [event["error"]["code"] for event in call.of("error")] == ["input_audio_buffer_full"] * 2


@pytest.mark.parametrize("words", [["commentary", "response"], ["response", "commentary"], ["commentary"]])
async def test_an_answer_says_whether_the_client_asked_for_it(words: list[str]) -> None:
    async with calling() as call:
        await call.typed("wait")
        for purpose in words:
            await call.word(client_events.AddContext(None, answer=True, purpose=purpose))
        await call.say("response.cancel")
        views = [notice.response for notice in call.notices if isinstance(notice, ResponseCreatedEvent)]
        assert [view.asked for view in views] == [False, "response" in words]
        await call.say("response.cancel")


@pytest.mark.parametrize(("modality", "times"), [("text", 0), ("audio", 1)])
async def test_only_what_sounds_stops_the_guard_against_its_echo(
    modality: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []
    async with calling(profile=PlayoutProfile()) as call:
        monkeypatch.setattr(call.session._input.voice.playback, "stopped", lambda: stopped.append(True))
        content = [{"type": "input_text", "text": "wait"}]
        waiting = {**ASIDE, "input": [{"type": "message", "role": "user", "content": content}]}
        await call.say("response.create", response={**waiting, "output_modalities": [modality]})
        await call.say("response.cancel", response_id=call.of("response.created")[0]["response"]["id"])
        assert call.statuses() == ["cancelled"]
        assert len(stopped) == times


async def test_a_socket_is_told_nothing_of_playing() -> None:
    """The negative control: where the client plays, none of it is said."""
    async with calling(profile=PlayoutProfile()) as call:
        await call.typed("go on")
        await call.later(0.3)
        await call.say("output_audio_buffer.clear")
        assert call.of("error")[0]["error"]["code"] == "invalid_event_for_transport"
    assert not [event for event in call.events if event["type"].startswith("output_audio_buffer")]


async def test_a_clients_word_on_its_player_reaches_the_line() -> None:
    told: list[float] = []
    async with calling(profile=dataclasses.replace(PROFILE, set_delay=told.append)) as call:
        await call.say("parley.playout.delay", delay_ms=85.5)
        assert told == [0.0855]
        for wrong in (-1, 5000, "soon"):
            await call.say("parley.playout.delay", delay_ms=wrong)
        assert [event["error"]["param"] for event in call.of("error")] == ["delay_ms"] * 3
        assert told == [0.0855]


async def test_where_the_client_plays_its_player_is_its_own() -> None:
    async with calling(profile=PlayoutProfile()) as call:
        await call.say("parley.playout.delay", delay_ms=85.5)
        assert call.of("error")[0]["error"]["code"] == "invalid_event_for_transport"


async def test_what_is_heard_later_was_heard_less() -> None:
    """A barge-in cuts the answer by what the client said of its player."""
    cuts: list[int] = []
    for lag_s in (0.01, 0.07):
        async with calling(profile=dataclasses.replace(PROFILE, lag_s=lambda lag_s=lag_s: lag_s)) as call:
            await call.typed("go on")
            await call.later(0.1)
            await call.say("output_audio_buffer.clear")
            cuts.append(call.of("conversation.item.truncated")[0]["audio_end_ms"])
    assert cuts[0] - cuts[1] == pytest.approx(60, abs=25)


def frame(level: int) -> client_events.CameraFrame:
    return client_events.CameraFrame(np.full((2, 2, 3), level, np.uint8), "data:image/jpeg;base64,/9j/2Q==")


async def speak(call: Call, seconds: float = 0.5) -> None:
    await call.word(client_events.InputSamples(np.full(int(16_000 * seconds), 8_000, np.int16)))


def levels(call: Call, number: int) -> list[int]:
    """What a request was shown while its user spoke."""
    return [int(one.pixels[0, 0, 0]) for one in call.engine.asked[number].frames]


async def test_a_turn_has_the_newest_pictures_newest_last_once() -> None:
    async with calling() as call:
        for level in (1, 2, 3, 4):
            await call.word(frame(level))
            call.now_s += 1.0
        for _ in range(2):
            await speak(call)
            await call.word(client_events.InputSamples(np.zeros(16_000, np.int16)))
            await call.later(0.3)
        turns = [item for item in call.session._conversation.items if isinstance(item, MessageItem)]
        pictures = [
            [part for part in item.content if isinstance(part, MessageImage)] for item in turns if item.role == "user"
        ]
        assert [[one.pixels[0, 0, 0] for one in some] for some in pictures] == [[2, 3, 4], []]
        shown = call.of("conversation.item.added")[0]["item"]["content"]
        assert [part["type"] for part in shown] == ["input_image"] * 3 + ["input_audio"]
        assert ["image_url" in part for part in shown[:3]] == [False, False, True]
        assert len(call.engine.requests) == 2  # what listened along had seen all, and answered
        assert levels(call, 0) == [2, 3, 4]
        assert call.engine.requests[0].live


async def test_what_is_seen_while_the_user_speaks_is_in_the_answer_that_is_begun_in_their_pause() -> None:
    async with calling() as call:
        await call.word(frame(1))
        await speak(call)
        call.now_s += 1.0
        await call.word(frame(2))
        await speak(call)
        await call.word(client_events.InputSamples(np.zeros(5_120, np.int16)))  # 320 ms: a pause, not the end
        assert levels(call, 0) == [1, 2]
        call.now_s += 1.0
        await call.word(frame(3))  # too late for this answer, and for its item
        await call.word(client_events.InputSamples(np.zeros(9_600, np.int16)))
        await call.later(0.3)
        assert len(call.engine.requests) == 1
        shown = call.of("conversation.item.added")[0]["item"]["content"]
        assert [part["type"] for part in shown] == ["input_image", "input_image", "input_audio"]
        retrieved = call.of("conversation.item.added")[0]["item"]["id"]
        await call.say("conversation.item.retrieve", item_id=retrieved)
        whole = call.of("conversation.item.retrieved")[0]["item"]["content"]
        assert all("image_url" in part for part in whole[:2])


async def test_a_turn_that_the_client_ends_has_what_was_seen_by_then() -> None:
    async with calling(profile=PlayoutProfile()) as call:
        await call.say("session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        await speak(call)
        await call.say("parley.camera.frame", image_url=RED)
        await call.say("input_audio_buffer.commit")
        await call.say("response.create")
        await call.later(0.04)
        (asked,) = call.engine.asked  # what listened along had seen it
        assert [(one.pixels.shape, one.at_s) for one in asked.frames] == [((1, 1, 3), 0.5)]
        shown = call.of("conversation.item.added")[0]["item"]["content"]
        assert [part["type"] for part in shown] == ["input_image", "input_audio"]


async def test_pictures_that_come_as_messages_are_taken_once_a_second_and_checked() -> None:
    async with calling(profile=PlayoutProfile()) as call:
        for pause_s in (0.3, 0.3, 0.5, 0.95, 0.0):
            await call.shows(image_url=RED)
            call.now_s += pause_s
        assert len(call.session._input._turn._camera.take(call.now_s)) == 3
        await call.shows(image_url=RED)
        call.now_s += 1.0
        await call.shows(image_url="data:image/png;base64,AAAA")
        await call.shows(image_url="https://example.org/a.png")
        await call.shows()
        codes = [event["error"]["code"] for event in call.of("error")]
        assert codes == ["invalid_value", "invalid_value", "missing_required_parameter"]
        call.now_s += 6.0
        assert call.session._input._turn._camera.take(call.now_s) == []
