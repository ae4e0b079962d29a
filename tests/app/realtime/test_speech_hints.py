"""A session's hints for the ASR model: what reaches the engine, and what the client is shown."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest

from app.realtime.conversation import Utterance
from engine.chunk import Transcript
from engine.core import NO_HINTS, Hint, SpeechHints
from tests.app.realtime import test_session
from tests.app.realtime.test_session import FakeEngine, Talk, talking
from tests.app.rig import silence, tone

WANTED = {
    "model": "whisper-1",
    "language": "de",
    "languages": ["en", "de"],
    "prompt": "About Norway.",
    "keywords": ["Oslo", " "],
}
USED: frozenset[Hint] = frozenset({"language", "prompt", "keywords"})


async def set_hints(talk: Talk, wanted: dict[str, Any], hints: frozenset[Hint]) -> dict[str, Any]:
    """Update a session of an ASR model that uses ``hints``; return the echoed ``transcription``."""
    talk.engine.model = msgspec.structs.replace(FakeEngine.model, hints=hints)
    await talk.say("session.update", session={"type": "realtime", "audio": {"input": {"transcription": wanted}}})
    return talk.of("session.updated")[-1]["session"]["audio"]["input"]["transcription"]


@pytest.mark.parametrize(
    ("hints", "heard", "languages"),
    [
        ({}, (), ("en",)),
        ({}, ("de", "fr"), ("de", "fr")),
        ({"language": "de"}, ("de", "fr"), ("de",)),
    ],
)
async def test_the_end_of_turn_model_knows_which_languages_the_user_may_speak(
    hints: dict[str, Any], heard: tuple[str, ...], languages: tuple[str, ...]
) -> None:
    async with talking() as talk:
        talk.engine.model = msgspec.structs.replace(FakeEngine.model, heard_languages=heard)
        await talk.say("session.update", session={"type": "realtime", "audio": {"input": {"transcription": hints}}})
        assert talk.session._input.voice._moment(Utterance(16_000)).languages == languages


async def spoken(talk: Talk) -> SpeechHints:
    await talk.hear(tone(0.4))
    await talk.hear(silence(0.8))
    return talk.engine.asked[-1].request.hints


@pytest.mark.parametrize("create_response", [True, False])
async def test_hints_reach_the_request_that_recognizes_speech(create_response: bool) -> None:
    detection = {"type": "server_vad", "create_response": create_response}
    async with talking() as talk:
        assert await set_hints(talk, WANTED, USED) == WANTED
        await talk.say(
            "session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
        )
        hints = await spoken(talk)
    assert hints == SpeechHints(languages=("de", "en"), prompt="About Norway.", keywords=("Oslo",))


async def test_without_hints_the_request_has_none() -> None:
    async with talking() as talk:
        assert await set_hints(talk, {"model": "whisper-1"}, USED) == {"model": "whisper-1"}
        assert await spoken(talk) == NO_HINTS


@pytest.mark.parametrize(
    ("hints", "languages"),
    [({}, ("de",)), ({"languages": ["en", "fr"]}, ("de", "en", "fr")), ({"language": "en"}, ("en",))],
)
async def test_a_typed_message_is_in_the_language_of_the_last_turn_unless_the_session_sets_one(
    hints: dict[str, Any], languages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_session, "Transcript", functools.partial(Transcript, language="de"))
    async with talking() as talk:
        await set_hints(talk, hints, USED)
        assert (await spoken(talk)).languages == tuple(hints.get("languages", hints.values())), "speech may be in any"
        await talk.say("response.cancel")
        await talk.typed("hello")
        assert talk.engine.asked[-1].request.hints.languages == languages


async def test_new_hints_replace_those_of_a_request_that_listens_already() -> None:
    async with talking() as talk:
        await set_hints(talk, WANTED, USED)
        await talk.hear(tone(0.4))
        await set_hints(talk, {"language": None, "languages": ["fr"]}, USED)
        assert talk.engine.asked[-1].request.hints.languages == ("fr",)
        await talk.hear(silence(0.8))


async def test_hints_that_the_asr_model_does_not_use_are_not_echoed_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "parley")
    async with talking() as talk:
        shown = await set_hints(talk, WANTED, frozenset({"keywords"}))
    assert shown == {"model": "whisper-1", "keywords": ["Oslo", " "]}
    [line] = [record.getMessage() for record in caplog.records if "session.hints_ignored" in record.getMessage()]
    assert "fields=language,languages,prompt" in line


async def test_hints_that_are_too_long_are_refused() -> None:
    async with talking() as talk:
        wanted = {"prompt": "x" * 4001}
        await talk.say("session.update", session={"type": "realtime", "audio": {"input": {"transcription": wanted}}})
        [error] = talk.of("error")
    assert error["error"]["param"] == "session.audio.input.transcription.prompt"
