"""Speech in the history without a transcript: a model that reads transcripts gets its words before it answers."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from engine import AudioPart, Message, Request, StageFailed
from tests.app.realtime.test_push_to_talk import by_hand, release
from tests.app.realtime.test_session import FakeEngine, Talk, talking
from tests.app.rig import eventually, tone

pytestmark = pytest.mark.usefixtures("reading")
TRANSCRIBED = {"transcription": {"model": "whisper-1"}}


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model reads transcripts, which its speech recogniser makes."""
    monkeypatch.setattr(FakeEngine, "model", msgspec.structs.replace(FakeEngine.model, reads_transcripts=True))


def speech(seconds: float = 0.3) -> dict[str, Any]:
    return {"type": "input_audio", "audio": base64.b64encode(tone(seconds).tobytes()).decode()}


def message(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content)}


def transcripts(request: Request) -> list[str | None]:
    return [part.transcript for one in request.messages for part in one.parts if isinstance(part, AudioPart)]


def answers(talk: Talk) -> list[Request]:
    return [request for request in talk.engine.requests if "text" in request.wants]


def unless_it_hears(open: Callable[..., Any]) -> Callable[..., Any]:
    """An engine whose speech recogniser is broken."""

    def opened(engine: FakeEngine, request: Request, inputs: Any = None) -> Any:
        if request.hears:
            raise StageFailed("the ears broke")
        return open(engine, request, inputs)

    return opened


async def cancelled_turn(talk: Talk) -> None:
    """A spoken turn whose answer is cancelled before it has transcribed the turn."""
    await talk.hear(tone(0.3))
    talk.mutter("input_audio_buffer.commit")
    talk.mutter("response.create")
    await talk.say("response.cancel")
    assert talk.statuses() == ["cancelled"]


async def test_a_turn_whose_answer_was_cancelled_is_transcribed_for_the_next_answer() -> None:
    async with talking() as talk:
        await by_hand(talk)
        await cancelled_turn(talk)
        await talk.typed("and now")
        assert talk.statuses() == ["cancelled", "completed"]
        assert transcripts(answers(talk)[-1]) == ["hello"]


async def test_a_client_that_wants_transcripts_gets_that_of_a_cancelled_turn() -> None:
    async with talking() as talk:
        await by_hand(talk, input=TRANSCRIBED)
        await cancelled_turn(talk)
        done = talk.of("conversation.item.input_audio_transcription.completed")
        assert [event["transcript"] for event in done] == ["hello"]
        assert not talk.of("conversation.item.input_audio_transcription.failed")


async def test_two_turns_in_a_row_each_have_their_own_words() -> None:
    async with talking() as talk:
        await by_hand(talk)
        await talk.hear(tone(0.3))
        talk.mutter("input_audio_buffer.commit")
        await talk.hear(tone(0.3))
        await release(talk)
        answer = answers(talk)[-1]
        assert answer.live
        assert not answer.recorded, "the earlier turn would be transcribed again, as part of this one"
        assert transcripts(answer) == ["hello"]


async def test_recordings_that_a_text_follows_are_transcribed() -> None:
    async with talking() as talk:
        await talk.say("conversation.item.create", item=message(speech()))
        await talk.say("conversation.item.create", item=message(speech(), speech()))
        await talk.typed("what did I say?")
        await eventually(lambda: talk.statuses() == ["completed"])
        assert transcripts(answers(talk)[-1]) == ["hello", "hello", ""]


async def test_recordings_outside_of_the_conversation_are_transcribed() -> None:
    async with talking() as talk:
        question = message({"type": "input_text", "text": "what did I say?"})
        await talk.say("response.create", response={"conversation": "none", "input": [message(speech()), question]})
        await eventually(lambda: talk.statuses() == ["completed"])
        assert transcripts(answers(talk)[-1]) == ["hello"]


async def test_speech_that_cannot_be_transcribed_has_no_words_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeEngine, "open", unless_it_hears(FakeEngine.open))
    async with talking() as talk:
        await by_hand(talk, input=TRANSCRIBED)
        await talk.hear(tone(0.3))
        await release(talk)
        await talk.typed("and now")
        await talk.typed("and again")
        assert talk.statuses() == ["failed", "completed", "completed"]
        assert transcripts(answers(talk)[-1]) == [""]
        assert len(talk.of("conversation.item.input_audio_transcription.failed")) == 1


async def test_nothing_is_transcribed_for_a_client_that_has_left() -> None:
    async with talking() as talk:
        await by_hand(talk, input=TRANSCRIBED)
        await talk.hear(tone(0.3))
        talk.mutter("input_audio_buffer.commit")
        talk.mutter("response.create")
        talk.leave()
    assert talk.engine.requests == answers(talk)


async def test_a_model_that_hears_gets_the_speech_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "model", msgspec.structs.replace(FakeEngine.model, reads_transcripts=False))
    async with talking() as talk:
        await talk.say("conversation.item.create", item=message(speech()))
        await talk.typed("what did I say?")
        await eventually(lambda: talk.statuses() == ["completed"])
        assert talk.engine.requests == answers(talk)
        assert transcripts(answers(talk)[-1]) == [None]
        assert isinstance(answers(talk)[-1].messages[0], Message)
