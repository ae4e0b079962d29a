"""Turns that the client commits by hand: heard while they are held, answered by the request that listened."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from app.realtime.protocol.audio_formats import LONG_BYTES, MicrophoneDecoder
from app.settings import Limits
from engine import AudioPart, Preempted
from tests.app.realtime.test_session import FakeChunks, Talk, talking
from tests.app.rig import eventually, silence, tone


async def by_hand(talk: Talk, **session: Any) -> None:
    audio = {"input": {"turn_detection": None, **session.pop("input", {})}}
    await talk.say("session.update", session={"type": "realtime", "audio": audio, **session})


async def release(talk: Talk) -> None:
    """Both at once, as clients send it."""
    talk.mutter("input_audio_buffer.commit")
    await talk.say("response.create")


async def test_a_turn_is_heard_while_it_is_held_and_answered_by_the_request_that_listened() -> None:
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(silence(0.5))
        assert talk.engine.asked == [], "nobody has spoken"
        await talk.hear(tone(0.3))
        assert talk.engine.asked[0].request.preemptible
        assert talk.engine.asked[0].played_samples == pytest.approx(0.8 * 16_000, abs=100)
        assert not talk.of("response.created")
        await release(talk)
        assert talk.statuses() == ["completed"]
        assert talk.engine.asked[0].claimed
    assert len(talk.engine.asked) == 1
    assert [event["type"] for event in talk.events][2:5] == [
        "input_audio_buffer.committed", "conversation.item.added", "conversation.item.done",
    ]  # fmt: skip


async def test_what_the_client_notes_of_an_answer_costs_no_second_request() -> None:
    """Most clients tell their answers apart by metadata."""
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(tone(0.3))
        talk.mutter("input_audio_buffer.commit")
        await talk.say("response.create", response={"metadata": {"client_event_id": "mine"}})
        assert [event["response"]["metadata"] for event in talk.of("response.created")] == [{"client_event_id": "mine"}]
        assert talk.statuses() == ["completed"]
    assert len(talk.engine.asked) == 1


async def test_hosted_tools_of_an_answer_that_was_listened_for_are_told_as_ever() -> None:
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(tone(0.3))
        talk.mutter("input_audio_buffer.commit")
        server = {"type": "mcp", "server_label": "docs", "server_url": "https://mcp.example"}
        await talk.say("response.create", response={"tools": [server]})
        assert talk.of("mcp_list_tools.failed")
        assert talk.statuses() == ["completed"]


async def test_an_answer_is_begun_in_a_pause_and_given_once_the_key_is_released() -> None:
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(tone(0.3))
        await talk.hear(silence(3))
        await talk.quiet_down()
        assert talk.engine.asked[0].reports == ["held"]
        assert not talk.of("response.created")
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.6))
        await release(talk)
        assert talk.statuses() == ["completed"]
    assert [chunks.reports for chunks in talk.engine.asked] == [["held"], ["held", "due", "played"]]
    assert talk.guesses() == (1, 1)


async def test_a_buffer_that_is_cleared_is_forgotten() -> None:
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(tone(0.3))
        assert talk.engine.open_now == 1
        await talk.say("input_audio_buffer.clear")
        assert talk.engine.open_now == 0
        await talk.hear(tone(0.3))
        await release(talk)
        assert talk.statuses() == ["completed"]


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_commit_that_nobody_asks_about_gets_its_transcript_and_no_answer(wanted: bool) -> None:
    async with talking() as talk:
        await by_hand(talk, input={"transcription": {"model": "fake"}} if wanted else {})
        await talk.hear(tone(0.3))
        await talk.say("input_audio_buffer.commit")
        transcripts = talk.of("conversation.item.input_audio_transcription.completed")
        assert [event["transcript"] for event in transcripts] == ["hello"] * wanted
        assert len(talk.engine.asked) == 1
        await talk.hear(tone(0.3))  # the next turn
        await release(talk)
        assert talk.statuses() == ["completed"]
        assert talk.engine.open_now == 0


async def test_a_turn_is_transcribed_although_a_silence_is_committed_before_its_words_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    knows = asyncio.Event()
    make = FakeChunks._make

    async def slow(self: FakeChunks, inputs: Any) -> Any:
        await knows.wait()
        async for chunk in make(self, inputs):
            yield chunk

    monkeypatch.setattr(FakeChunks, "_make", slow)
    async with talking() as talk:
        await by_hand(talk, input={"transcription": {}})
        for pcm in (tone(0.3), silence(0.3)):
            await talk.hear(pcm)
            await talk.say("input_audio_buffer.commit")
        knows.set()
        await talk.quiet_down()
        committed = [event["item_id"] for event in talk.of("input_audio_buffer.committed")]
        completed = talk.of("conversation.item.input_audio_transcription.completed")
        assert sorted(event["item_id"] for event in completed) == sorted(committed)


async def test_an_answer_asked_for_before_the_commit_is_one_about_what_was_said_before() -> None:
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(tone(0.3))
        await talk.say("response.create")
        assert talk.statuses() == ["completed"]
        await talk.say("input_audio_buffer.commit")
        assert talk.statuses() == ["completed"]
        await talk.say("response.create")
        assert talk.statuses() == ["completed"] * 2
        assert isinstance(talk.engine.requests[-1].messages[-1].parts[0], AudioPart)


async def test_what_comes_between_the_commit_and_the_question_is_in_the_answer() -> None:
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(tone(0.3))
        await talk.say("input_audio_buffer.commit")
        await talk.typed("and this")
        assert talk.statuses() == ["completed"]
        assert [type(m.parts[0]).__name__ for m in talk.engine.asked[-1].request.messages] == ["AudioPart", "TextPart"]
        await talk.hear(tone(0.3))
        await talk.say("input_audio_buffer.commit")
        await talk.say("session.update", session={"type": "realtime", "instructions": "Be brief."})
        await talk.say("response.create")
        last = talk.engine.asked[-1].request
        assert last.messages[0].role == "system"
        assert isinstance(last.messages[-1].parts[0], AudioPart)
        await talk.hear(tone(0.3))
        await talk.say("input_audio_buffer.commit")
        await talk.say("response.create", response={"instructions": "Be long."})
        assert talk.engine.asked[-1].request.messages[0].parts[0].text == "Be long."  # type: ignore[union-attr]
        assert talk.statuses() == ["completed"] * 3


async def test_where_others_need_the_engine_the_buffer_is_heard_at_the_commit() -> None:
    async with talking() as talk:
        await by_hand(talk, input={"transcription": {"model": "fake"}})
        talk.engine.refuses = Preempted("others wait")
        await talk.hear(tone(0.3))
        await talk.hear(silence(0.5))
        talk.engine.refuses = None
        await release(talk)
        assert talk.statuses() == ["completed"]
        assert not talk.of("error")
        assert not talk.engine.asked[-1].request.preemptible
        transcripts = talk.of("conversation.item.input_audio_transcription.completed")
        assert [event["transcript"] for event in transcripts] == ["hello"]


async def test_an_answer_is_made_anew_that_was_preempted_as_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request was preempted, and the session does not know it yet."""
    ends = asyncio.Event()
    make = FakeChunks._make

    async def preempted(self: FakeChunks, inputs: Any) -> Any:
        if self.request.preemptible:
            await ends.wait()
            raise Preempted("another request needed a slot")
        async for chunk in make(self, inputs):
            yield chunk

    monkeypatch.setattr(FakeChunks, "_make", preempted)
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(tone(0.3))
        await release(talk)
        ends.set()
        await talk.quiet_down()
        assert talk.statuses() == ["completed"]
        assert talk.engine.asked[-1].played_samples == pytest.approx(0.3 * 16_000, abs=100)


async def test_too_little_and_too_much_are_one_error_and_nothing_is_lost() -> None:
    async with talking(limits=Limits(audio_s=3)) as talk:
        await by_hand(talk)
        await talk.say("input_audio_buffer.commit")
        await talk.hear(tone(0.01))
        await talk.say("input_audio_buffer.commit")
        codes = [event["error"]["code"] for event in talk.of("error")]
        assert codes == ["input_audio_buffer_commit_empty"] * 2
        await talk.hear(tone(0.29))
        for _ in range(4):
            await talk.hear(silence(1))
            await talk.quiet_down()
        assert [event["error"]["code"] for event in talk.of("error")][2:] == ["input_audio_buffer_full"]
        await release(talk)
        await talk.quiet_down()
        assert talk.statuses() == ["completed"]


async def test_an_open_line_whose_key_nobody_presses_fills_no_buffer() -> None:
    """A page sends silence between two turns, for hours."""
    async with talking(limits=Limits(audio_s=3)) as talk:
        await by_hand(talk)
        for _ in range(10):
            await talk.hear(silence(1))
            await talk.quiet_down()
        await talk.hear(tone(0.5))
        await release(talk)
        await talk.quiet_down()
        assert not talk.of("error")
        assert talk.statuses() == ["completed"]
        assert 1.4 * 16_000 < talk.engine.asked[-1].played_samples < 3.6 * 16_000


async def test_a_question_typed_while_somebody_speaks_is_answered_and_so_is_what_they_say() -> None:
    """The end of the turn interrupts the answer to what was typed; so far it was an error, and stayed unanswered."""
    async with talking() as talk:
        await talk.hear(tone(0.3))
        await talk.typed("wait")
        assert len(talk.of("response.created")) == 1
        await talk.hear(tone(0.2))
        await talk.hear(silence(0.7))
        assert not talk.of("error")
        assert talk.statuses() == ["cancelled", "completed"]
        details = talk.of("response.done")[0]["response"]["status_details"]
        assert details["reason"] == "turn_detected"
        messages = talk.engine.asked[-1].request.messages
        assert [type(message.parts[-1]).__name__ for message in messages] == ["TextPart", "AudioPart"]


async def test_where_speech_interrupts_nothing_it_is_answered_after_what_was_typed() -> None:
    async with talking() as talk:
        detection = {"type": "server_vad", "interrupt_response": False}
        await talk.say(
            "session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
        )
        await talk.hear(tone(0.3))
        await talk.typed("wait")
        await talk.hear(silence(0.7))
        assert not talk.of("error")
        assert len(talk.of("response.created")) == 1
        await talk.say("response.cancel")
        assert talk.statuses() == ["cancelled", "completed"]


async def test_twenty_questions_typed_in_the_middle_of_a_spoken_one() -> None:
    """Each is an item; who does not wait for an answer is told so by the protocol; the spoken one is answered."""
    async with talking() as talk:
        await talk.hear(tone(0.3))
        for n in range(20):
            content = [{"type": "input_text", "text": f"question {n}"}]
            talk.mutter("conversation.item.create", item={"type": "message", "role": "user", "content": content})
            talk.mutter("response.cancel")
            talk.mutter("response.create")
        await talk.quiet_down()
        await talk.hear(silence(0.7))
        assert len(talk.of("response.created")) == len(talk.of("response.done")) == 21
        assert talk.statuses()[-1] == "completed"
        assert {event["error"]["code"] for event in talk.of("error")} <= {"response_cancel_not_active"}
        asked = [message for message in talk.engine.requests[-1].messages if message.role == "user"]
        assert [type(message.parts[0]).__name__ for message in asked] == ["TextPart"] * 20 + ["AudioPart"]


async def test_a_long_piece_is_decoded_a_little_at_a_time_and_heard_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded at once, eleven megabytes of G.711 took 760 MB."""
    decoded, push = list[int](), MicrophoneDecoder.push

    def noted(decoder: MicrophoneDecoder, data: bytes) -> Any:
        decoded.append(len(data))
        return push(decoder, data)

    monkeypatch.setattr(MicrophoneDecoder, "push", noted)
    sound = base64.b64encode(bytes([0x20, 0xA0] * (15 * LONG_BYTES // 4))).decode()
    async with talking() as talk:
        await by_hand(talk, input={"format": {"type": "audio/pcmu"}})
        await talk.say("input_audio_buffer.append", audio=sound)
        await eventually(lambda: sum(decoded) == 15 * LONG_BYTES // 2)
        assert max(decoded) <= LONG_BYTES
        await release(talk)
        await talk.quiet_down()
        assert talk.statuses() == ["completed"]
        assert talk.engine.asked[-1].played_samples == pytest.approx(15 * LONG_BYTES, abs=100)


async def test_a_piece_that_is_too_long_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking(limits=Limits(audio_s=3)) as talk:
        await by_hand(talk, input={"format": {"type": "audio/pcmu"}})
        monkeypatch.setattr(MicrophoneDecoder, "push", lambda *_: pytest.fail("it was decoded"))
        await talk.say("input_audio_buffer.append", audio=base64.b64encode(bytes(8_000 * 20)).decode())
        await talk.quiet_down()
        assert [event["error"]["code"] for event in talk.of("error")] == ["input_audio_buffer_full"]


async def test_after_a_piece_that_is_too_long_others_are_taken() -> None:
    async with talking(limits=Limits(audio_s=3)) as talk:
        await by_hand(talk, input={"format": {"type": "audio/pcmu"}})
        for seconds in (20, 20, 1):
            sound = base64.b64encode(bytes(8_000 * seconds)).decode()
            await talk.say("input_audio_buffer.append", audio=sound)
        await release(talk)
        await talk.quiet_down()
        assert [event["error"]["code"] for event in talk.of("error")] == ["input_audio_buffer_full"]
        assert talk.engine.asked[-1].played_samples == pytest.approx(16_000, abs=100)
