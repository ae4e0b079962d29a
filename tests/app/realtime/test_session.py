"""The session core on an engine that does as it is told: what it asks and tells, and what always holds."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.mcp import ToolServers
from app.media.images import Image
from app.realtime.conversation.utterance import Utterance
from app.realtime.duplex_session import session_of
from app.realtime.input.endpointing import SentenceEndOfTurn
from app.realtime.ports import EndpointingContext
from app.realtime.protocol.audio_formats import sounds_of
from app.realtime.protocol.from_wire import decode
from app.realtime.protocol.items import MessageItem, UserAudio
from app.realtime.protocol.to_wire import encode
from app.realtime.session_context import SessionContext
from app.settings import Limits, TurnSettings
from app.telemetry import Metrics
from engine import (
    ANSWER,
    IN_WRITING,
    AudioPart,
    ContextOverflow,
    ModelInfo,
    Request,
    StageFailed,
    TextPart,
    TokenIds,
    Voice,
)
from engine.chunk import Audio, Output, Speech, Text, ToolCall, ToolCallDelta, Transcript, Usage, VideoFrame
from tests.app.media.test_images import png
from tests.app.rig import LoudnessVad, check_event, eventually, silence, tone

WORD = np.full(2_400, 0.1, np.float32)  # 100 ms


class FakeChunks:
    """Two words of text and sound, unless the user's text says ``call``, ``fail``, ``bug``, ``wait``, ``stay`` or
    ``length``. With ``stay`` the answer does not end.

    ``only call`` calls the function without a word.
    """

    ledger = None
    stage_times = tuple

    def __init__(self, request: Request, inputs: AsyncIterator[Speech | VideoFrame] | None) -> None:
        self.request = request
        self.reports: list[str] = []
        self.played_samples, self.claimed = 0, False
        self.frames: list[VideoFrame] = []
        self._chunks = self._make(inputs)

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._chunks

    async def _make(self, inputs: AsyncIterator[Speech | VideoFrame] | None) -> AsyncGenerator[Output]:
        if inputs is not None:
            async for chunk in inputs:
                if isinstance(chunk, VideoFrame):
                    self.frames.append(chunk)
                else:
                    self.played_samples += len(chunk.pcm)
        if self.request.hears:
            yield Transcript("hello", final=True)
        last = self.request.messages[-1].parts[-1] if self.request.messages else None
        word = last.text if isinstance(last, TextPart) else ""
        if word == "wait":
            await asyncio.Event().wait()
        if word in ("call", "only call"):
            for piece in ('{"at":', "1}"):
                yield ToolCallDelta(f"call_{self.request.id}", "look", piece)
                await asyncio.sleep(0)
            yield ToolCall(f"call_{self.request.id}", "look", '{"at":1}')
        if word == "only call":
            return
        for n, text in enumerate((Text("one ", 0, (0,)), Text("two", 4, (1,)))):
            yield text
            if self.request.speaks:
                yield Audio(WORD, (((n + 1) * len(WORD), text.end),))
            if word == "fail":
                raise StageFailed("the talker broke")
            if word == "bug":
                raise ZeroDivisionError
        if word == "stay":
            await asyncio.Event().wait()
        yield Usage(3, 2, finish="length" if word == "length" else "stop")

    def played(self, skipped_s: float = 0.0) -> None:
        self.reports.append("played")

    def claim(self) -> None:
        self.claimed = True

    def speculative(self) -> None:
        self.reports.append("held")

    def confirmed(self) -> None:
        self.reports.append("due")


class FakeEngine:
    """Keeps what it was asked; ``open_now`` are the requests whose block has not been left."""

    model = ModelInfo(
        name="fake",
        voices=(Voice("ann", "Ann"), Voice("bob", "Bob")),
        abilities=frozenset({"text", "audio", "speech"}),
        frame_s=0.1,
        tokenizer="fake",
        examples=("Say hello.",),
    )

    def __init__(self) -> None:
        self.asked: list[FakeChunks] = []
        self.open_now = 0
        self.refuses: Exception | None = None
        self.longest = 1000
        """The most messages that fit into the model's context."""
        self.refused = 0

    @asynccontextmanager
    async def open(self, request: Request, inputs: Any = None) -> AsyncGenerator[Any]:
        if self.refuses is not None:
            raise self.refuses
        if len(request.messages) > self.longest:
            self.refused += 1
            raise ContextOverflow("too long")
        chunks = FakeChunks(request, inputs)
        self.asked.append(chunks)
        self.open_now += 1
        try:
            yield chunks
        finally:
            self.open_now -= 1

    def prepare(self, request: Request) -> None:
        """Prepare nothing."""

    @property
    def requests(self) -> list[Request]:
        return [chunks.request for chunks in self.asked]


class Talk:
    """A session fed by hand; ``events`` are the wire's, checked one by one."""

    def __init__(
        self,
        engine: FakeEngine,
        limits: Limits | None = None,
        turns: TurnSettings | None = None,
        tool_servers: ToolServers | None = None,
    ) -> None:
        self.engine = engine
        self.events: list[dict[str, Any]] = []
        self.notices: list[Any] = []
        self.metrics = Metrics()
        self.now_s = 100.0
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self.work_s = 0.0
        self.context = context = SessionContext(
            engine,
            self.metrics,
            limits or Limits(),
            turns or TurnSettings(),
            LoudnessVad,
            SentenceEndOfTurn(),
            now=lambda: self.now_s,
            loop_time=LoopTimeBudget(FairScheduler(self._worked, self._worked)),
            tool_servers=tool_servers or ToolServers(),
        )
        self.decoding = context.decoding
        self.session = session_of(context, self._tell)

    def _worked(self) -> float:
        """The clock of the loop's slices: each look at it takes ``work_s``."""
        self.now_s += self.work_s
        return self.now_s

    def _tell(self, notice: Any) -> None:
        self.notices.append(notice)
        for text in encode(notice):
            event = json.loads(text)
            check_event(event)
            self.events.append(event)

    async def run(self) -> None:
        await self.session.run(self._told())

    async def _told(self) -> AsyncGenerator[Any]:
        while (one := await self._said.get()) is not None:
            yield one
            self._said.task_done()

    async def say(self, type: str, **fields: Any) -> None:
        """One event, and all that follows from it without waiting for a clock."""
        self.mutter(type, **fields)
        for _ in range(40):
            await asyncio.sleep(0)

    async def quiet_down(self) -> None:
        """Wait until all that was muttered is obeyed, however long that took, and what follows from it."""
        await self._said.join()
        for _ in range(40):
            await asyncio.sleep(0)

    def mutter(self, type: str, **fields: Any) -> None:
        """One event right behind the one before."""
        self.hears(decode(json.dumps({"type": type, **fields})))

    def hears(self, told: Any) -> None:
        self._said.put_nowait(told)

    async def typed(self, text: str, **response: Any) -> None:
        content = [{"type": "input_text", "text": text}]
        await self.say("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await self.say("response.create", response=response)

    async def hear(self, pcm: Any) -> None:
        await self.say("input_audio_buffer.append", audio=base64.b64encode(pcm.tobytes()).decode())

    def leave(self) -> None:
        self._said.put_nowait(None)

    def of(self, type: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == type]

    def ended(self, status: str) -> float:
        """Responses that the metrics have seen end so."""
        return self.metrics.registry.get_sample_value("parley_responses_total", {"status": status}) or 0.0

    def guesses(self) -> tuple[float, ...]:
        """Answers begun before the turn was over: used and forgotten ones."""
        value = self.metrics.registry.get_sample_value
        return tuple(value("parley_guesses_total", {"what": what}) or 0.0 for what in ("used", "forgotten"))

    def statuses(self) -> list[str]:
        return [event["response"]["status"] for event in self.of("response.done")]


@asynccontextmanager
async def talking(**options: Any) -> AsyncGenerator[Talk]:
    talk = Talk(FakeEngine(), **options)
    try:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(talk.run())
            await asyncio.sleep(0)
            yield talk
            talk.leave()
    finally:
        await talk.decoding.close()
    assert talk.engine.open_now == 0
    check_order(talk.events)


def check_order(events: list[dict[str, Any]]) -> None:
    """What holds for every session, whatever was said."""
    assert events[0]["type"] == "session.created"
    opened: dict[str, list[str]] = {}
    closed: set[str] = set()
    items: list[str] = []
    for event in events:
        kind: str = event["type"]
        response: str = event.get("response_id") or event.get("response", {}).get("id", "")
        if kind == "response.created":
            assert response not in opened
            opened[response] = []
        elif response:
            assert response in opened, f"{kind} before response.created"
            assert response not in closed, f"{kind} after response.done"
            _check_within(opened[response], event)
        if kind == "response.done":
            closed.add(response)
            assert not opened[response], f"left open: {opened[response]}"
        if kind == "conversation.item.added":
            assert event["item"]["id"] not in items
            assert event["previous_item_id"] in [None, *items]
            items.append(event["item"]["id"])


def _check_within(open_now: list[str], event: dict[str, Any]) -> None:
    """Items and parts are opened and closed like brackets; a delta lies within its part."""
    noun, _, moment = event["type"].removeprefix("response.").rpartition(".")
    name = f"{noun}:{event.get('output_index')}"
    if noun in ("output_item", "content_part"):
        if moment == "added":
            open_now.append(name)
        else:
            assert open_now[-1] == name
            open_now.pop()
    elif noun.startswith("output_"):
        assert f"content_part:{event['output_index']}" in open_now


@pytest.mark.parametrize("choice", ["required", "look", {"type": "function", "name": "look"}])
async def test_a_choice_of_a_tool_that_is_not_offered_is_refused(choice: Any) -> None:
    async with talking() as talk:
        await talk.typed("hi", tool_choice=choice)
        refusal = talk.of("error")[-1]["error"]
        assert (refusal["code"], refusal["param"]) == ("invalid_value", "tool_choice")
        await talk.typed("again", tool_choice=choice, tools=[{"type": "function", "name": "look"}])
        assert talk.statuses() == ["completed"]


async def test_a_request_carries_what_the_session_and_the_response_say() -> None:
    async with talking() as talk:
        tool = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}}
        audio = {"output": {"voice": "alloy", "speed": 1.25}}
        await talk.say("session.update", session={"instructions": "Be kind.", "tools": [tool], "audio": audio})
        await talk.typed("hi", tool_choice={"type": "function", "name": "look"}, max_output_tokens=7)
        await talk.typed(
            "again", audio={"output": {"voice": "bob"}}, instructions="Be quick.", output_modalities=["text"]
        )
    first, second = talk.engine.requests
    assert [message.role for message in first.messages] == ["system", "user"]
    assert (first.voice, first.speed, first.max_text_tokens, first.tool_choice) == ("ann", 1.25, 7, "look")
    assert first.tools[0].name == "look"
    assert first.wants == ANSWER
    assert first.session == second.session == talk.session.id
    assert second.messages[0].parts == (TextPart("Be quick."),)
    assert (second.voice, second.wants, second.max_text_tokens) == (
        "bob",
        IN_WRITING,
        Limits().answer_tokens,
    )


async def test_an_answer_goes_back_with_its_token_ids() -> None:
    async with talking() as talk:
        await talk.typed("hi")
        await talk.typed("more")
    answer = talk.engine.requests[1].messages[1]
    assert (answer.role, answer.parts, answer.token_ids) == (
        "assistant",
        (TextPart("one two"),),
        TokenIds("fake", (0, 1)),
    )
    assert talk.engine.asked[0].reports == ["played"]


async def test_speech_is_listened_to_while_it_is_spoken() -> None:
    async with talking() as talk:
        await talk.typed("hi")
        talk.now_s += 10
        await talk.hear(tone(0.3))
        live = talk.engine.asked[-1]
        assert live.request.live
        assert [message.role for message in live.request.messages] == ["user", "assistant"]
        assert live.played_samples > 0
        assert len(talk.of("response.created")) == 1
        await talk.hear(silence(0.7))
        assert len(talk.of("response.created")) == 2
        assert talk.statuses() == ["completed", "completed"]
        assert len(talk.engine.asked) == 2
    item = talk.of("conversation.item.done")[-2]["item"]
    assert (item["role"], item["content"][0]["type"]) == ("user", "input_audio")


async def test_an_answer_is_begun_in_a_pause_and_held_until_the_turn_is_over() -> None:
    async with talking() as talk:
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.35))
        assert talk.engine.asked[0].reports == ["held"]
        assert talk.engine.asked[0].played_samples / 16_000 == pytest.approx(0.3 + 0.17, abs=0.08)
        assert [event["type"] for event in talk.events][1:] == ["input_audio_buffer.speech_started"]
        talk.now_s += 0.25
        await talk.hear(silence(0.25))
        assert talk.statuses() == ["completed"]
        assert talk.engine.asked[0].reports == ["held", "due", "played"]
    assert len(talk.engine.asked) == 1
    assert talk.guesses() == (1, 0)


async def test_what_was_understood_decides_how_long_a_pause_is_waited_for() -> None:
    """Only once ears have heard all of it: "hello" is whole, and ends the turn sooner than silence alone would."""
    audio = {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}}}
    async with talking() as talk:
        await talk.say("session.update", session={"audio": audio})
        await talk.hear(tone(0.2))
        for _ in range(30):
            await talk.hear(silence(0.032))
        (stopped,) = talk.of("input_audio_buffer.speech_stopped")
        assert 0 <= stopped["parley"]["over_probability"] <= 1
        assert stopped["parley"]["turn_ms"] > 0
    waits = []
    for words in ("hello", "and"):
        turn = Utterance(16_000)
        turn.understand(words, True, None)
        waits.append(SentenceEndOfTurn().silence_ms(EndpointingContext(turn.words), "low"))
        turn.resume()
        assert turn.words == ""
    assert waits[0] < 900 < waits[1]


async def test_a_user_who_goes_on_gets_one_answer_to_all_he_said() -> None:
    async with talking() as talk:
        for _ in range(2):
            await talk.hear(tone(0.3))
            await talk.hear(silence(0.35))
        assert talk.engine.open_now == 1
        await talk.hear(silence(0.25))
        assert len(talk.of("response.created")) == len(talk.of("input_audio_buffer.speech_started")) == 1
    first, second = talk.engine.asked
    assert (first.reports, second.reports) == (["held"], ["held", "due", "played"])
    assert second.played_samples > 2 * first.played_samples
    assert talk.guesses() == (1, 1)


async def test_who_often_goes_on_is_answered_later() -> None:
    async with talking() as talk:
        pauses = []
        for _ in range(6):
            await talk.hear(tone(0.3))
            made, waited_s = len(talk.engine.asked), 0.0
            while talk.engine.asked[made - 1].reports != ["held"] and waited_s < 0.45:
                await talk.hear(silence(0.032))
                waited_s += 0.032
            pauses.append(waited_s)
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0] + 0.15


async def test_no_answer_is_begun_early_where_none_is_wanted_or_the_house_forbids_it() -> None:
    detection = {"type": "server_vad", "create_response": False}
    async with talking() as talk:
        await talk.say("session.update", session={"audio": {"input": {"turn_detection": detection}}})
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.35))
        assert not talk.engine.asked
    async with talking(turns=TurnSettings(guess_ms=0)) as talk:
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.35))
        assert talk.engine.asked[0].reports == []
        await talk.hear(silence(0.35))
        assert talk.statuses() == ["completed"]


async def test_where_nobody_listens_along_the_turn_is_asked_about_when_it_is_over() -> None:
    async with talking(turns=TurnSettings(ahead=False)) as talk:
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.35))
        assert not talk.engine.asked
        await talk.hear(silence(0.35))
        assert talk.statuses() == ["completed"]
    (asked,) = talk.engine.requests
    assert not asked.live
    assert isinstance(asked.messages[-1].parts[0], AudioPart)


async def test_a_truncate_in_a_pause_is_in_the_answer_that_was_begun() -> None:
    async with talking() as talk:
        await talk.typed("hi")
        talk.now_s += 10
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.35))
        item_id = talk.of("response.done")[0]["response"]["output"][0]["id"]
        await talk.say("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=100)
        await talk.hear(silence(0.25))
    assert talk.engine.asked[-1].request.messages[-1].parts == (TextPart("one"),)
    assert talk.engine.asked[-1].reports == ["held", "due", "played"]
    assert talk.statuses() == ["completed", "completed"]


async def test_the_words_that_were_heard_are_in_the_next_prompt() -> None:
    """And the sound is that which was answered, sample for sample: what was computed for it holds for the next turn."""
    async with talking() as talk:
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.7))
        answered = talk.engine.asked[-1].played_samples
        await talk.typed("and?")
    part = talk.engine.requests[-1].messages[0].parts[0]
    assert isinstance(part, AudioPart)
    assert part.transcript == "hello"
    assert len(part.pcm) == answered
    assert abs(answered / 16_000 - 0.5) < 0.1


async def test_a_barge_in_cuts_the_next_prompt_to_what_was_heard_even_without_a_truncate() -> None:
    async with talking() as talk:
        await talk.typed("hi")
        assert talk.statuses() == ["completed"]  # all of it was sent at once: 200 ms, of which 110 are played
        talk.now_s += 0.11
        await talk.hear(tone(0.3))
    assert talk.engine.requests[-1].messages[-1].parts == (TextPart("one"),)
    assert talk.engine.requests[-1].messages[-1].token_ids is None


async def test_a_truncate_before_the_answer_ends_is_in_the_next_prompt() -> None:
    """Clients that stop the playback themselves may truncate first and cancel then."""
    async with talking() as talk:
        await talk.typed("stay")
        item_id = talk.of("response.output_item.added")[0]["item"]["id"]
        await talk.say("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=100)
        assert talk.of("conversation.item.truncated")[0]["parley"] == {"heard_text": "one"}
        talk.now_s += 10
        await talk.say("response.cancel")
        await talk.typed("and?")
        assert talk.statuses() == ["cancelled", "completed"]
    assert talk.engine.requests[-1].messages[1].parts == (TextPart("one"),)


async def test_a_truncate_in_mid_speech_is_in_the_prompt_of_the_answer() -> None:
    async with talking() as talk:
        await talk.typed("hi")
        talk.now_s += 10
        await talk.hear(tone(0.3))
        item_id = talk.of("response.done")[0]["response"]["output"][0]["id"]
        await talk.say("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=100)
        await talk.hear(silence(0.7))
    assert len(talk.engine.asked) == 3
    last = talk.engine.asked[-1]
    assert last.request.messages[-1].parts == (TextPart("one"),)
    assert last.played_samples / 16_000 == pytest.approx(0.47, abs=0.08)  # from its beginning, up to the pause
    assert talk.statuses() == ["completed", "completed"]


@pytest.mark.parametrize(("word", "code"), [("fail", "stage_failed"), ("bug", "server_error")])
async def test_what_breaks_in_an_answer_ends_that_answer_only(word: str, code: str) -> None:
    async with talking() as talk:
        await talk.typed(word)
        await talk.typed("hi")
        assert talk.statuses() == ["failed", "completed"]
        error = talk.of("response.done")[0]["response"]["status_details"]["error"]
        assert error["code"] == code
        assert "ZeroDivision" not in error["message"]
        assert not talk.of("error")


async def test_an_engine_that_refuses_fails_the_response() -> None:
    async with talking() as talk:
        talk.engine.refuses = StageFailed("no replica")
        await talk.typed("hi")
        await talk.hear(tone(0.3))
        talk.engine.refuses = None
        await talk.hear(silence(0.7))  # the request that listened failed: the turn is asked again, whole
        assert talk.statuses() == ["failed", "completed"]


async def test_a_transcript_that_fails_is_told() -> None:
    async with talking() as talk:
        await talk.say("session.update", session={"audio": {"input": {"transcription": {}, "turn_detection": None}}})
        talk.engine.refuses = StageFailed("no ears")
        await talk.hear(silence(0.5))
        await talk.say("input_audio_buffer.commit")
        failed = talk.of("conversation.item.input_audio_transcription.failed")[0]
        assert failed["error"]["code"] == "stage_failed"


async def test_no_event_names_the_address_of_another_server() -> None:
    async with talking() as talk:
        await talk.say("session.update", session={"audio": {"input": {"transcription": {}, "turn_detection": None}}})
        talk.engine.refuses = StageFailed("The server at 10.0.0.5:8000 cannot be reached.")
        await talk.typed("hi")
        await talk.hear(silence(0.5))
        await talk.say("input_audio_buffer.commit")
        told = [
            talk.of("response.done")[0]["response"]["status_details"]["error"],
            talk.of("conversation.item.input_audio_transcription.failed")[0]["error"],
        ]
        assert [error["message"] for error in told] == ["The server cannot be reached."] * 2


async def test_a_stop_in_mid_answer_leaves_the_engine() -> None:
    async with talking() as talk:
        await talk.typed("wait")
        assert talk.engine.open_now == 1
        await talk.say("response.cancel")
        assert talk.engine.open_now == 0
        assert talk.statuses() == ["cancelled"]


async def test_leaving_in_any_state_frees_the_engine() -> None:
    async with talking() as talk:
        await talk.typed("wait", conversation="none")
        await talk.typed("wait")
        await talk.hear(tone(0.3))
        assert talk.engine.open_now == 2  # the barge-in took the second one's place
    assert talk.engine.open_now == 0
    assert talk.ended("abandoned") == talk.ended("cancelled") == 1


async def test_an_answer_that_is_cancelled_before_its_task_ran_is_over() -> None:
    """Both events lie there already: nothing runs between them."""
    async with talking() as talk:
        for _ in range(3):
            talk.mutter("response.create")
            await talk.say("response.cancel")
        assert talk.statuses() == ["cancelled"] * 3
        assert talk.engine.asked == []
        assert talk.ended("cancelled") == 3


async def test_an_answer_for_which_the_conversation_has_no_room_fails() -> None:
    async with talking(limits=Limits(items=1)) as talk:
        await talk.typed("hi")
        assert talk.statuses() == ["failed"]
        assert talk.of("response.done")[0]["response"]["status_details"]["error"]["code"] == "conversation_full"


async def test_speech_may_be_as_long_as_the_limit_says() -> None:
    async with talking(limits=Limits(answer_s=4)) as talk:
        await talk.typed("hi")
        request = talk.engine.asked[0].request
        assert request.max_audio_s == 4


@pytest.mark.parametrize(("asked", "gets"), [("inf", 50), (7, 7), (60, 50)])
async def test_text_may_be_as_long_as_the_client_and_the_limit_say(asked: int | str, gets: int) -> None:
    async with talking(limits=Limits(answer_tokens=50)) as talk:
        await talk.typed("hi", max_output_tokens=asked)
        assert talk.engine.asked[0].request.max_text_tokens == gets


async def test_so_many_responses_at_once_and_no_more() -> None:
    async with talking(limits=Limits(responses=2)) as talk:
        for _ in range(3):
            await talk.typed("wait", conversation="none")
        assert talk.of("error")[0]["error"]["code"] == "too_many_responses"
        assert talk.engine.open_now == 2


async def test_what_an_answer_was_about_is_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = list[weakref.ref[Any]]()
    decode = Image.decode

    def noted(image: Image) -> Any:
        pixels.append(weakref.ref(made := decode(image)))
        return made

    monkeypatch.setattr(Image, "decode", noted)
    url = "data:image/png;base64," + base64.b64encode(png(100, 100)).decode()
    content = [{"type": "input_image", "image_url": url}]
    async with talking() as talk:
        await talk.say("response.create", response={"input": [{"type": "message", "role": "user", "content": content}]})
        await talk.quiet_down()
        assert talk.statuses() == ["completed"]
        talk.engine.asked.clear()
        assert len(pixels) == 1
        await eventually(lambda: pixels[0]() is None)  # the thread that decoded it may be late to let go


async def test_a_bug_of_ours_is_one_error_and_the_session_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking() as talk:
        monkeypatch.setattr(talk.session, "_edit", lambda _: 1 / 0)
        await talk.say("conversation.item.delete", item_id="x", event_id="mine")
        error = talk.of("error")[0]["error"]
        assert (error["type"], error["code"], error["event_id"]) == ("server_error", "server_error", "mine")
        await talk.typed("hi")
        assert talk.statuses() == ["completed"]


async def test_a_bug_of_ours_in_a_transcript_fails_that_transcript_and_the_session_goes_on() -> None:
    async with talking() as talk:
        turns = {"type": "server_vad", "create_response": False}
        await talk.say("session.update", session={"audio": {"input": {"turn_detection": turns, "transcription": {}}}})
        talk.engine.refuses = ZeroDivisionError()
        await talk.hear(tone(0.3))
        talk.engine.refuses = None
        await talk.hear(silence(0.7))
        (failed,) = talk.of("conversation.item.input_audio_transcription.failed")
        assert failed["error"]["code"] == "server_error"
        await talk.typed("hi")
        assert talk.statuses() == ["completed"]


Step = Callable[[Talk], Any]
ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "wait"}]}
STEPS: dict[str, Step] = {
    "ask": lambda talk: talk.typed("hi"),
    "ask slowly": lambda talk: talk.typed("wait"),
    "ask in vain": lambda talk: talk.typed("fail"),
    "ask aside": lambda talk: talk.typed("wait", conversation="none"),
    "ask for text": lambda talk: talk.typed("hi", output_modalities=["text"]),
    "respond": lambda talk: talk.say("response.create"),
    "cancel": lambda talk: talk.say("response.cancel"),
    "speak": lambda talk: talk.hear(tone(0.2)),
    "pause": lambda talk: talk.hear(silence(0.7)),
    "commit": lambda talk: talk.say("input_audio_buffer.commit"),
    "clear": lambda talk: talk.say("input_audio_buffer.clear"),
    "by hand": lambda talk: talk.say("session.update", session={"audio": {"input": {"turn_detection": None}}}),
    "by ear": lambda talk: talk.say(
        "session.update", session={"audio": {"input": {"turn_detection": {"type": "server_vad"}, "transcription": {}}}}
    ),
    "let it talk": lambda talk: talk.say(
        "session.update", session={"audio": {"input": {"turn_detection": {"interrupt_response": False}}}}
    ),
    "delete": lambda talk: talk.say("conversation.item.delete", item_id=_last_item(talk)),
    "truncate": lambda talk: talk.say(
        "conversation.item.truncate", item_id=_last_item(talk), content_index=0, audio_end_ms=100
    ),
    "in front": lambda talk: talk.say("conversation.item.create", previous_item_id="root", item=ITEM),
    "nonsense": lambda talk: talk.say("response.explode"),
    "time passes": lambda talk: _pass(talk),
}


def _last_item(talk: Talk) -> str:
    added = talk.of("conversation.item.added")
    return added[-1]["item"]["id"] if added else "nobody"


async def _pass(talk: Talk) -> None:
    talk.now_s += 0.15


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=14))
@pytest.mark.fault("I2.5")
def test_any_sequence_keeps_the_order_and_leaves_nothing_open(steps: list[str]) -> None:
    """``talking`` checks the order of all events, and that the engine has every request back."""

    async def play() -> None:
        async with talking() as talk:
            for step in steps:
                await STEPS[step](talk)
            talk.session.end("server_shutting_down", "over")
        assert len(talk.of("response.created")) == len(talk.of("response.done"))

    asyncio.run(play())


def test_the_check_of_the_order_can_fail() -> None:
    created = {"type": "response.created", "response": {"id": "r"}}
    done = {"type": "response.done", "response": {"id": "r"}}
    greeting = [{"type": "session.created"}]
    added = {"type": "response.output_item.added", "response_id": "r", "output_index": 0}
    check_order([*greeting, created, done])
    for wrong in (
        [done, created],
        [created, done, done],
        [created, created],
        [created, added, done],
        [created, done, added],
    ):
        with pytest.raises(AssertionError):
            check_order([*greeting, *wrong])


async def test_a_client_learns_which_voices_there_are_and_what_may_be_said() -> None:
    async with talking() as talk:
        loaded = talk.events[0]["session"]["parley"]
    assert loaded["voices"] == ["ann", "bob"]
    assert loaded["voice_details"][0] == {"id": "ann", "name": "Ann", "language": ""}
    assert loaded["examples"] == ["Say hello."]
    assert loaded["understands_speech"]


async def test_others_have_their_turn_between_messages_that_lie_in_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand wrong ones, each of which takes a millisecond: a few of them between two turns of the loop."""
    monkeypatch.setattr("app.limits.fair_scheduler.EVERY_S", 0.0)  # the loop's own timers do not know this clock
    async with talking() as talk:
        talk.work_s = 0.001
        seen = [0]
        for _ in range(1000):
            talk.mutter("no.such.event")
        while seen[-1] < 1000:
            await asyncio.sleep(0)
            seen.append(len(talk.of("error")))
        talk.work_s = 0.0
    assert max(after - before for before, after in pairwise(seen)) <= 5


async def test_long_sound_is_heard_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds that come at once are heard step by step, and others have their turn in between."""
    monkeypatch.setattr("app.limits.fair_scheduler.EVERY_S", 0.0)
    async with talking() as talk:
        talk.work_s = 0.001
        turns, heard = 0, asyncio.create_task(talk.session._input.add_samples(np.zeros(160_000, np.int16)))
        while not heard.done():
            await asyncio.sleep(0)
            turns += 1
        talk.work_s = 0.0
    assert turns >= 160_000 / 512 / 5


@pytest.mark.parametrize(("seconds", "aside"), [(1, False), (300, True)])
async def test_long_sound_is_made_ready_off_the_loop(
    seconds: int, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()

    def seen(item: Any) -> tuple[bytes, ...]:
        threads.add(threading.get_ident())
        return sounds_of(item)

    monkeypatch.setattr("app.realtime.item_edits.sounds_of", seen)
    async with talking() as talk:
        sound = UserAudio(np.zeros(seconds * 16_000, np.int16))
        talk.session._conversation.add(MessageItem(id="mine", role="user", content=(sound,)))
        talk.mutter("conversation.item.retrieve", item_id="mine")
        await talk.quiet_down()
        (part,) = talk.of("conversation.item.retrieved")[0]["item"]["content"]
    assert len(part["audio"]) == pytest.approx(seconds * 64_000, abs=200)
    assert (threading.get_ident() not in threads) is aside


class TestTooLongPrompts:
    async def test_the_answer_is_asked_again_with_half_of_the_history_which_stays_away(self) -> None:
        async with talking() as talk:
            for text in ("one", "two", "three"):
                await talk.typed(text)
            talk.engine.longest = 4
            await talk.typed("four")
            assert talk.engine.refused == 1
            assert talk.engine.requests[-1].messages[0].parts == (TextPart("three"),)
            talk.engine.longest = 5
            await talk.typed("five")
            assert talk.engine.refused == 1
            assert talk.statuses() == ["completed"] * 5

    async def test_a_turn_that_no_model_can_read_does_not_spoil_the_next(self) -> None:
        async with talking() as talk:
            talk.engine.longest = 0
            await talk.typed("something endless")
            assert talk.statuses() == ["failed"]
            assert talk.of("response.done")[0]["response"]["status_details"]["error"]["code"] == "context_overflow"
            talk.engine.longest = 1
            await talk.typed("hello")
            assert talk.statuses() == ["failed", "completed"]
            assert talk.engine.requests[-1].messages[0].parts[-1] == TextPart("hello")

    async def test_a_spoken_turn_is_heard_again_without_the_history(self) -> None:
        async with talking() as talk:
            await talk.typed("hi")
            talk.engine.longest = 1
            talk.now_s += 10
            await talk.hear(tone(0.3))
            await talk.hear(silence(0.7))
            assert talk.engine.refused
            assert talk.statuses() == ["completed"] * 2

    async def test_prompts_about_something_else_leave_the_conversation_whole(self) -> None:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
        async with talking() as talk:
            await talk.typed("hi")
            talk.engine.longest = 0
            await talk.say("response.create", response={"conversation": "none", "input": [item, item]})
            talk.engine.longest = 1000
            await talk.typed("and now")
            assert talk.engine.refused == 2
            assert talk.engine.requests[-1].messages[0].parts == (TextPart("hi"),)

    async def test_the_conversation_s_items_are_counted_as_the_model_counted_them(self) -> None:
        async with talking() as talk:
            await talk.typed("hello and good day")
            counts = talk.session._responses._factory.truncation.counts
            [asked, answer] = talk.session._conversation.items
        assert counts.head(0) + counts.of(asked) == pytest.approx(3)
        assert counts.of(answer) == talk.engine.model.cost.message + 2
