"""The words of whatever ears a pipeline has decide when a turn is over: here sherpa-onnx's.

Its networks of a few nodes hear one word again and again, which is chosen by the names of their tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.realtime.conversation.utterance import Utterance
from engine import Engine, EngineSpec, StageSpec
from tests.app.realtime.test_session import Talk
from tests.app.rig import eventually, silence

pytest.importorskip("sherpa_onnx")
pytest.importorskip("onnx")

from tests.engine.worker.stages.asr import tiny_ears
from tests.engine.worker.stages.asr.tiny_ears import speech

EARS: dict[str, Callable[[Path], Path]] = {"asr.sherpa": tiny_ears.ctc, "asr.sherpa_offline": tiny_ears.nemo_ctc}
STEP_S = 0.032


def hearing(use: str, folder: Path, word: str) -> EngineSpec:
    """Ears that hear nothing but this word, before a thinker of the script's."""
    folder = EARS[use](folder)
    tokens = [line.split() for line in (folder / "tokens.txt").read_text("utf-8").splitlines()]
    lines = [f"{token if token == '<blk>' else f'▁{word}'} {number}\n" for token, number in tokens]
    (folder / "tokens.txt").write_text("".join(lines), encoding="utf-8")
    stages = (StageSpec(use=use, name="ears", weights=str(folder)), StageSpec(use="script.thinker", name="thinker"))
    return EngineSpec(stages=stages, launcher="inline")


@asynccontextmanager
async def talking(spec: EngineSpec, eagerness: str) -> AsyncGenerator[Talk]:
    async with Engine(spec) as engine, asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        talk = Talk(engine)  # pyright: ignore[reportArgumentType]
        tasks.create_task(talk.run())
        detection = {"type": "semantic_vad", "eagerness": eagerness}
        await talk.say("session.update", session={"audio": {"input": {"turn_detection": detection}}})
        yield talk
        talk.leave()


def turn_of(talk: Talk) -> Utterance:
    turn = talk.session._input._turn.utterance
    assert turn is not None
    return turn


async def waited_s(talk: Talk) -> float:
    """How long a silence ends the turn from here on."""
    for n in range(1, 300):
        await talk.hear(silence(STEP_S))
        if talk.of("input_audio_buffer.speech_stopped"):
            return n * STEP_S
    raise AssertionError("it never ended")


@pytest.mark.parametrize("use", EARS)
async def test_a_sentence_that_is_open_is_waited_for_longer_than_one_that_is_closed(use: str, tmp_path: Path) -> None:
    waits_s: dict[str, float] = {}
    for word in ("and", "done."):
        async with talking(hearing(use, tmp_path / word, word), "medium") as talk:
            await talk.hear(speech(1.5, 3))
            await talk.hear(silence(0.3))
            turn = turn_of(talk)
            await eventually(lambda turn=turn: bool(turn.words))
            assert set(turn.words.split()) == {word}, "all of it is known in the pause"
            waits_s[word] = 0.3 + await waited_s(talk)
    assert waits_s["done."] < 0.6 < 2 < waits_s["and"], "600 ms are waited for where words say nothing"


@pytest.mark.parametrize("use", EARS)
async def test_an_open_sentence_is_waited_for_although_the_ears_are_not_done_with_it(use: str, tmp_path: Path) -> None:
    """Ears that are late have told some words only, when the silence without any would end the turn."""
    async with talking(hearing(use, tmp_path, "and"), "high") as talk:
        pcm = speech(2, 3)
        for at in range(0, len(pcm), 1600):
            await talk.hear(pcm[at : at + 1600])
        turn = turn_of(talk)
        await eventually(lambda: turn.listening)
        turn.understand = lambda *_: None  # pyright: ignore[reportAttributeAccessIssue]
        assert not turn.words
        assert (await waited_s(talk)) > 1.0, "and not the 400 ms after words that say nothing"
