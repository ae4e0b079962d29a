"""Whole conversations with real models, as clients have them: by voice and in writing, over every transport."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import yaml

from app.bench.subject import running
from app.client import Client, Response, Tool, TranscriptionCompleted, connect
from benchmarks.spoken_questions import speech, voice_alone
from engine import SPEAKER_RATE_HZ, Engine
from engine.core import Pcm
from tests.real.conftest import WeightsOf
from tests.web.browser import Chromium, browsing, written

pytestmark = [pytest.mark.real, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

STARTER = Path(__file__).parents[2] / "configs" / "starter.yaml"
QUESTION = "What is the capital of France?"
STORY = "Tell me a long story about a river."
ASR = {
    "moonshine-tiny-en": "asr.sherpa_offline",
    "whisper-base": "asr.faster_whisper",
    "whisper-tiny-en": "asr.faster_whisper",
}
VOICES = ("nano", "piper-joe", "kokoro-int8")
ANSWER_S = 60.0
TALK = (
    "Hello!", "My name is Anna.", "Tell me about cats.", "What do they eat?", "What is 12 times 12?",
    "Who wrote Romeo and Juliet?", "Tell me a joke.", "Why is the sky blue?", "What time is it?", "Where is Paris?",
    "Answer with emoji only: 😀😀😀", "Расскажи сказку.", "What is a volcano?", "How do I boil an egg?",
    "Which months are in a year?", "Give me one tip for better sleep.", "Spell the word banana.", "What is gravity?",
    "Tell me a story about the sea.", "Thank you. Goodbye.",
)  # fmt: skip
"""Twenty turns of one conversation: some for nano, some for the language model, some that cost many tokens."""


@pytest.fixture(scope="module")
def starter(weights_of: WeightsOf, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a server that runs the starter."""
    tree = yaml.safe_load(STARTER.read_text(encoding="utf-8"))
    for part in (tree["stages"][0], tree["stages"][1]["models"][1]):
        part["weights"] = str(weights_of(part["weights"]))
    with running(_config(tmp_path_factory.mktemp("starter"), tree)) as server:
        yield server.url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def question(weights_of: WeightsOf) -> Pcm:
    """The question as Kokoro says it, always alike: int16 [samples] at SPEAKER_RATE_HZ. (Piper draws noise.)"""
    async with Engine(voice_alone(weights_of("kokoro-int8"))) as engine:
        return (await speech(engine, QUESTION) * 32767).astype(np.int16)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(question: Pcm, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chromium]:
    """A browser whose microphone plays the question, and then a quiet room."""
    wave = np.concatenate([np.zeros(SPEAKER_RATE_HZ, np.int16), question, np.zeros(10 * SPEAKER_RATE_HZ, np.int16)])
    path = written(tmp_path_factory.mktemp("microphone") / "question.wav", wave / 32768, SPEAKER_RATE_HZ)
    async with browsing(path) as chromium:
        yield chromium


@pytest.mark.parametrize("voice", VOICES)
@pytest.mark.parametrize("asr", ASR)
async def test_every_recognizer_works_with_every_voice(
    asr: str, voice: str, weights_of: WeightsOf, question: Pcm, tmp_path: Path
) -> None:
    """A spoken question is heard and answered aloud, over the WebSocket."""
    thinker = {"name": "thinker", "use": "llm.llamacpp", "weights": str(weights_of("smollm2-135m"))}
    thinker["options"] = {"context": 2048, "temperature": 0}  # type: ignore[assignment]
    ears = {"name": "ears", "use": ASR[asr], "weights": str(weights_of(asr))}
    with running(_config(tmp_path, {"stages": [ears, thinker, *_voice_stages(voice, weights_of)]})) as server:
        async with connect(server.url) as client:
            heard, answer = await _asked_aloud(client, question)
    assert "capital of france" in heard.lower()
    assert "Paris" in answer.text
    assert _is_loud(answer)


async def test_a_call_is_heard_and_answered(starter: str, question: Pcm) -> None:
    async with connect(starter.replace("ws", "http", 1), transport="webrtc") as client:
        _, answer = await _asked_aloud(client, question)
    assert "Paris" in answer.text
    assert _is_loud(answer)


@pytest.mark.chromium
@pytest.mark.node
async def test_the_page_answers_a_spoken_and_a_typed_question(starter: str, browser: Chromium) -> None:
    async with browser.page() as page:
        await page.open(starter.replace("ws", "http", 1), microphone="", transport="webrtc")
        await page.start()
        await page.shows("#captions .user", "France")
        await page.listen()
        await page.shows("#captions .answer", "Paris")
        await page.sound()
        await page.ask("What is 20 plus 22?")
        await page.shows("#captions > :last-child", "20 plus 22 is 42.")
        assert await page.errors() == []


async def test_speaking_over_an_answer_stops_it(starter: str, question: Pcm) -> None:
    async with connect(starter) as client, asyncio.TaskGroup() as tasks:
        story = tasks.create_task(client.ask(STORY))
        async with asyncio.timeout(ANSWER_S):
            while not client.audible:  # noqa: ASYNC110 - the client has no event for it
                await asyncio.sleep(0.05)
        _, answer = await _asked_aloud(client, question)
        cut = await story
    assert cut.status == "cancelled"
    assert "Paris" in answer.text


async def test_a_tool_is_called_and_its_result_is_told(starter: str) -> None:
    minutes: list[Any] = []

    async def set_timer(**arguments: Any) -> str:
        minutes.append(arguments)
        return "The timer is set."

    number = {"type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}
    async with connect(starter, tools=[Tool("set_timer", "Set a timer.", set_timer, number)]) as client:
        answer = await client.ask("Set a timer for ten minutes.")
    assert minutes == [{"minutes": 10}]
    assert answer.text


async def test_a_talk_of_twenty_turns_stays_answered(starter: str) -> None:
    async with connect(starter) as client:
        answers = [await client.ask(text, max_output_tokens=25) for text in TALK]
    assert [answer.status for answer in answers if answer.status not in {"completed", "incomplete"}] == []
    assert "144" in answers[4].text
    assert all(answer.text for answer in answers)


async def test_eight_users_at_once_are_all_answered(starter: str) -> None:
    async def talk(n: int) -> list[Response]:
        async with connect(starter) as client:
            return [await client.ask(TALK[(n + turn) % len(TALK)]) for turn in range(2)]

    answers = await asyncio.gather(*(talk(n) for n in range(8)))
    statuses = [answer.status for found in answers for answer in found]
    assert set(statuses) <= {"completed", "incomplete"}, statuses


def _config(folder: Path, tree: dict[str, Any]) -> str:
    path = folder / "deployment.yaml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
    return str(path)


def _voice_stages(name: str, weights_of: WeightsOf) -> list[dict[str, Any]]:
    if name == "nano":
        return [{"name": "talker", "use": "nano.talker"}, {"name": "code2wav", "use": "nano.code2wav"}]
    return [{"name": "talker", "use": "tts.sherpa", "weights": str(weights_of(name))}]


async def _asked_aloud(client: Client, pcm: Pcm) -> tuple[str, Response]:
    """Ask by voice. Return the transcript, and the answer."""
    await client.configure(audio={"input": {"transcription": {"model": "default"}}})
    events = client.events()
    await client.speak(pcm)
    client.speech_ended()
    async with asyncio.timeout(ANSWER_S):
        answer = await client.answer()
        async for event in events:
            if isinstance(event, TranscriptionCompleted) and re.search(r"\w", event.transcript):
                return event.transcript, answer
    raise AssertionError("no transcript")


def _is_loud(answer: Response) -> bool:
    return len(answer.pcm) > SPEAKER_RATE_HZ // 4 and int(np.abs(answer.pcm.astype(int)).max()) > 1000
