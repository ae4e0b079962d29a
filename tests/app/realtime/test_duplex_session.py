"""A session with a duplex model, which the tests play by hand: what clients see of its speech, and what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.realtime.duplex import RETRY_S
from app.realtime.duplex_session import session_of
from app.realtime.ports import CALL, PlayoutProfile
from app.realtime.protocol.client_events import CloseSession, MuteInput, Received
from app.realtime.protocol.server_events import BackgroundAudioEvent
from app.settings import Limits
from engine import Audio, Duplex, ModelInfo, Request, StageFailed, Text, TextPart, Voice
from tests.app.realtime.test_session import FakeEngine, Talk, check_order
from tests.app.rig import tone

FRAME = 1920
QUIET = np.full(FRAME, 0.0005, np.float32)
LOUD = np.full(FRAME, 0.1, np.float32)
CD = {"type": "audio/pcm", "rate": 44_100}
PAUSE = 10
"""Frames of silence that end a response."""


class Model:
    """One request of a duplex model: the test decides what it says."""

    def __init__(self, request: Request, inputs: Any) -> None:
        self.request = request
        self.heard: list[Any] = []
        self._inputs = inputs
        self._said: asyncio.Queue[Any] = asyncio.Queue()

    def __aiter__(self) -> Model:
        return self

    async def __anext__(self) -> Any:
        one = await self._said.get()
        if isinstance(one, Exception):
            raise one
        if one is None:
            raise StopAsyncIteration
        return one

    def say(self, *chunks: Any) -> None:
        for chunk in chunks:
            self._said.put_nowait(chunk)

    async def listen(self) -> None:
        async for speech in self._inputs:
            self.heard.append(speech.pcm)


class DuplexEngine(FakeEngine):
    model = ModelInfo(
        name="both",
        voices=(Voice("ann", "Ann"), Voice("bob", "Bob")),
        abilities=frozenset({"audio", "speech"}),
        duplex=Duplex(),
    )

    def __init__(self) -> None:
        super().__init__()
        self.models: list[Model] = []
        self.closes: asyncio.Event | None = None
        """What the end of a request waits for; None: nothing."""
        self.most_open = 0

    @asynccontextmanager
    async def open(self, request: Request, inputs: Any = None) -> AsyncGenerator[Any]:
        if self.refuses is not None:
            raise self.refuses
        model = Model(request, inputs)
        self.models.append(model)
        self.open_now += 1
        self.most_open = max(self.most_open, self.open_now)
        listening = asyncio.create_task(model.listen(), name="listen")
        try:
            yield model
        finally:
            if self.closes is not None:
                await self.closes.wait()
            self.open_now -= 1
            listening.cancel()
            await asyncio.wait((listening,))


class Call(Talk):
    """A session with a duplex model, and the model."""

    engine: DuplexEngine

    def __init__(self, profile: PlayoutProfile | None = None, **options: Any) -> None:
        super().__init__(DuplexEngine(), **options)
        if profile is not None:
            self.session = session_of(self.context, self._tell, profile=profile)

    @property
    def model(self) -> Model:
        return self.engine.models[-1]

    async def begin(self) -> None:
        await self.hear(tone(0.02))

    async def spoken(self, *chunks: Any) -> None:
        """The model's next frames, at their times."""
        for chunk in chunks:
            if isinstance(chunk, np.ndarray):
                self.now_s += 0.08
                chunk = Audio(chunk)
            self.model.say(chunk)
            for _ in range(6):
                await asyncio.sleep(0)

    def background(self) -> int:
        return len([one for one in self.notices if isinstance(one, BackgroundAudioEvent)])

    def samples(self) -> int:
        """Samples of the responses' audio."""
        return sum(len(one.pcm) // 2 for one in self.notices if type(one).__name__ == "AudioDeltaEvent")

    def dropped_s(self, what: str) -> float:
        value = self.metrics.registry.get_sample_value
        return value("parley_duplex_dropped_seconds_total", {"what": what}) or 0.0

    def words(self) -> str:
        return "".join(one["delta"] for one in self.of("response.output_audio_transcript.delta"))


@asynccontextmanager
async def calling(**options: Any) -> AsyncGenerator[Call]:
    call = Call(**options)
    try:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(call.run())
            await asyncio.sleep(0)
            yield call
            call.leave()
    finally:
        await call.decoding.close()
    assert call.engine.open_now == 0
    check_order([event for event in call.events if not event["type"].startswith("output_audio_buffer")])


async def test_what_the_model_says_becomes_a_response() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, QUIET, Text(" Hello", 0), LOUD, Text(" there.", 6), LOUD, *[QUIET] * PAUSE)
    assert [event["type"] for event in call.events if "delta" not in event["type"]] == [
        "session.created",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    (done,) = call.of("response.done")
    assert done["response"]["status"] == "completed"
    assert done["response"]["output"][0]["content"][0]["transcript"] == "Hello there."
    assert call.words() == "Hello there."
    usage = done["response"]["usage"]
    assert usage["output_token_details"]["text_tokens"] == 2
    assert usage["input_token_details"]["audio_tokens"] == 2 + 2 + PAUSE
    assert call.ended("completed") == 1


async def test_a_response_begins_with_the_frame_before_the_first_word() -> None:
    """A client's player gets 80 ms of reserve, and no soft onset is cut off."""
    async with calling() as call:
        await call.begin()
        await call.spoken(*[QUIET] * 5, Text("a", 0))
        assert call.samples() == 2 * FRAME


async def test_sound_without_a_word_is_a_response_from_its_first_frame() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(*[QUIET] * 5, LOUD)
        assert not call.of("response.created")
        await call.spoken(LOUD)
        assert call.samples() == 3 * FRAME


async def test_each_word_has_its_place_in_the_sound() -> None:
    async with calling() as call:
        await call.say("session.update", session={"parley": {"alignment": True}})
        await call.begin()
        await call.spoken(QUIET, QUIET, Text("one ", 0), LOUD, Text("two", 4), LOUD, *[QUIET] * PAUSE)
        marks = [mark for event in call.of("parley.output_audio.alignment") for mark in event["marks"]]
        assert marks == [[240.0, 4], [320.0, 7]]


async def test_after_a_pause_the_model_begins_another_response() -> None:
    async with calling() as call:
        await call.begin()
        for word in ("one", "two"):
            await call.spoken(QUIET, Text(word, 0), LOUD, *[QUIET] * PAUSE)
        assert call.statuses() == ["completed", "completed"]
        assert len({event["response"]["id"] for event in call.of("response.created")}) == 2


async def test_the_request_lasts_the_session_and_has_its_settings() -> None:
    async with calling() as call:
        await call.say("session.update", session={"instructions": "Be kind.", "audio": {"output": {"voice": "bob"}}})
        assert not call.engine.models
        for _ in range(3):
            await call.begin()
        (model,) = call.engine.models
        assert model.request.live
        assert model.request.voice == "bob"
        assert [message.role for message in model.request.messages] == ["system"]
        assert np.array_equal(np.concatenate(model.heard), np.concatenate([tone(0.02)] * 3))


async def test_no_turns_are_detected_whatever_a_client_sets() -> None:
    async with calling() as call:
        audio = {"input": {"turn_detection": {"type": "server_vad"}, "transcription": {"model": "whisper-1"}}}
        await call.say("session.update", session={"audio": audio})
        for kind in ("session.created", "session.updated"):
            (event,) = call.of(kind)
            assert event["session"]["audio"]["input"]["turn_detection"] is None
            assert event["session"]["audio"]["input"]["transcription"] is None
            assert event["session"]["parley"]["duplex"] is True
        await call.hear(np.concatenate([tone(1.0), np.zeros(48_000, np.int16)]))
        assert not [event for event in call.events if event["type"].startswith("input_audio_buffer")]


@pytest.mark.parametrize(
    ("type", "fields", "code"),
    [
        ("input_audio_buffer.commit", {}, "input_audio_buffer_commit_empty"),
        ("response.create", {}, "conversation_already_has_active_response"),
        ("response.cancel", {}, "response_cancel_not_active"),
        ("output_audio_buffer.clear", {}, "invalid_event_for_transport"),
        (
            "conversation.item.create",
            {"item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}},
            "not_supported",
        ),
        (
            "session.update",
            {"session": {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 44_100}}}}},
            "invalid_value",
        ),
    ],
)
async def test_events_that_need_turns_get_one_clear_error(type: str, fields: dict[str, Any], code: str) -> None:
    async with calling() as call:
        await call.begin()
        await call.say(type, event_id="mine", **fields)
        (error,) = call.of("error")
        assert (error["error"]["code"], error["error"]["event_id"]) == (code, "mine")
        await call.spoken(QUIET, Text("still here", 0), *[QUIET] * PAUSE)
        assert call.statuses() == ["completed"]


async def test_a_cancelled_model_is_silent_until_it_pauses() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one ", 0), LOUD)
        await call.say("response.cancel")
        await call.spoken(LOUD, Text("two", 4), LOUD)
        assert call.statuses() == ["cancelled"]
        assert call.words() == "one "
        await call.spoken(*[QUIET] * PAUSE, Text("three", 7), LOUD, *[QUIET] * PAUSE)
        assert call.statuses() == ["cancelled", "completed"]
        assert call.words() == "one three"


async def test_an_item_is_truncated_where_the_client_stopped_its_player() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD, *[QUIET] * PAUSE)
        item = call.of("response.done")[0]["response"]["output"][0]["id"]
        await call.say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=100)
        assert call.of("conversation.item.truncated")


async def test_other_instructions_start_the_model_anew() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD)
        await call.say("session.update", session={"instructions": "Be brief.", "tools": []})
        assert call.statuses() == ["completed"]
        await call.begin()
        first, second = call.engine.models
        assert not first.request.messages
        assert second.request.messages
        assert call.engine.open_now == 1
        await call.say("session.update", session={"max_output_tokens": 7})
        assert len(call.engine.models) == 2


async def test_settings_that_change_twice_never_hold_two_slots() -> None:
    """The first request has not ended when the third one is made."""
    async with calling() as call:
        await call.begin()
        call.engine.closes = asyncio.Event()
        await call.say("session.update", session={"instructions": "Be brief."})
        await call.say("session.update", session={"instructions": "Be kind."})
        call.engine.closes.set()
        await call.quiet_down()
        (message,) = call.model.request.messages
        assert message.parts == (TextPart("Be kind."),)
    assert call.engine.most_open == 1


async def test_a_model_that_starts_after_a_failure_hears_nothing_of_before() -> None:
    """Otherwise it would hear the user as many seconds late as the pause was long."""
    async with calling() as call:
        await call.begin()
        await call.spoken(StageFailed("broke"))
        for _ in range(10):
            await call.hear(tone(0.1))
        call.now_s += RETRY_S
        await call.hear(tone(0.02))
        assert len(np.concatenate(call.model.heard)) == len(tone(0.02))


async def test_a_lost_model_is_one_error_and_the_next_audio_finds_another() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD, StageFailed("broke"))
        assert call.statuses() == ["failed"]
        assert [event["error"]["code"] for event in call.of("error")] == ["stage_failed"]
        await call.begin()
        assert len(call.engine.models) == 1
        call.now_s += RETRY_S
        await call.begin()
        await call.spoken(QUIET, Text("two", 0), *[QUIET] * PAUSE)
        assert call.statuses() == ["failed", "completed"]
        assert len(call.of("error")) == 1


async def test_a_refused_request_is_told_once_in_a_while() -> None:
    async with calling() as call:
        call.engine.refuses = StageFailed("none")
        for _ in range(50):
            await call.begin()
        assert len(call.of("error")) == 1


async def test_a_client_that_does_not_read_loses_audio_and_nothing_grows() -> None:
    waits_s = 0.0
    async with calling(profile=PlayoutProfile(unsent_s=lambda: waits_s)) as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD)
        before = call.samples()
        waits_s = 5.0
        await call.spoken(*[LOUD] * 50)
        assert call.samples() == before
        assert call.dropped_s("unread") == pytest.approx(50 * 0.08)
        waits_s = 0.0
        await call.spoken(LOUD)
        assert call.samples() == before + FRAME


async def test_a_burst_of_late_frames_is_cut_and_counted() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0))
        call.model.say(*[Audio(LOUD)] * 50)
        await call.quiet_down()
        await asyncio.sleep(0)
        assert call.samples() < 0.8 * 24_000
        assert call.dropped_s("late") > 3


async def test_a_full_conversation_fails_its_responses_and_the_session_goes_on() -> None:
    async with calling(limits=Limits(items=1)) as call:
        await call.begin()
        for word in ("one", "two", "three"):
            await call.spoken(QUIET, Text(word, 0), LOUD, *[QUIET] * PAUSE)
        assert call.statuses() == ["completed", "failed", "failed"]
        assert call.of("response.done")[1]["response"]["status_details"]["error"]["code"] == "conversation_full"


async def test_a_client_that_is_away_misses_the_sound_and_hears_on_when_it_is_back() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one ", 0), LOUD)
        before = call.samples()
        call.session.away()
        await call.spoken(LOUD, Text("two ", 4), LOUD)
        assert call.samples() == before
        call.session.back()
        await call.spoken(LOUD, *[QUIET] * PAUSE)
        assert call.samples() > before
        assert call.words() == "one two "
        assert call.statuses() == ["completed"]


async def test_system_messages_before_the_first_audio_are_part_of_the_prompt() -> None:
    item = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "You are a pirate."}]}
    async with calling() as call:
        await call.say("conversation.item.create", item=item)
        await call.begin()
        assert [message.parts for message in call.model.request.messages] == [(TextPart("You are a pirate."),)]
        await call.say("conversation.item.create", item=item)
        assert [event["error"]["code"] for event in call.of("error")] == ["not_supported"]


async def test_a_long_speech_is_cut_into_responses() -> None:
    async with calling(limits=Limits(answer_s=1.0)) as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), *[LOUD] * 20, *[QUIET] * PAUSE)
        assert call.statuses()[0] == "incomplete"
        assert call.statuses()[-1] == "completed"


async def test_a_call_hears_the_model_all_the_time() -> None:
    async with calling(profile=replace(CALL, streams_input=False)) as call:
        await call.begin()
        await call.spoken(*[QUIET] * 4, Text("one", 0), LOUD, *[QUIET] * PAUSE, QUIET)
        heard = call.background() * FRAME + call.samples()
        assert heard == (4 + 1 + PAUSE + 1) * FRAME
        kinds = [event["type"] for event in call.events if event["type"].startswith("output_audio_buffer")]
        assert kinds == ["output_audio_buffer.started", "output_audio_buffer.stopped"]


async def test_a_call_is_silenced_at_once() -> None:
    async with calling(profile=replace(CALL, streams_input=False)) as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD)
        await call.say("output_audio_buffer.clear")
        before = call.background()
        await call.spoken(LOUD, LOUD, QUIET)
        assert call.of("output_audio_buffer.cleared")
        assert call.background() == before


async def test_a_muted_microphone_is_not_heard() -> None:
    async with calling() as call:
        await call.begin()
        call.hears(Received(MuteInput(True)))
        await call.hear(tone(0.5))
        assert len(np.concatenate(call.model.heard)) == len(tone(0.02))


async def test_text_only_clients_get_the_words() -> None:
    async with calling() as call:
        await call.say("session.update", session={"output_modalities": ["text"]})
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD, *[QUIET] * PAUSE)
        assert [event["delta"] for event in call.of("response.output_text.delta")] == ["one"]
        assert not call.samples()


async def test_the_end_of_a_session_fails_the_response_and_nothing_follows() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD)
        call.session.end("session_expired", "Over.")
        await call.spoken(LOUD, Text("two", 3))
        assert call.statuses() == ["failed"]
        assert [event["type"] for event in call.events][-1] == "error"


async def test_a_client_that_closes_the_session_gets_the_end_of_the_response() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD)
        call.hears(Received(CloseSession()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert call.statuses() == ["cancelled"]


async def test_a_drain_waits_for_the_models_sentence() -> None:
    async with calling() as call:
        await call.begin()
        await call.spoken(QUIET, Text("one", 0), LOUD)
        quiet = asyncio.create_task(call.session.quiet())
        await call.spoken(LOUD)
        assert not quiet.done()
        await call.spoken(*[QUIET] * PAUSE)
        await quiet
