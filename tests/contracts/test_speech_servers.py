"""Ears and voice that ask a server, over this project's own: what is heard and said there is heard and said here."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx2
import numpy as np
import pytest

from engine import Engine, EngineSpec, StageSpec
from engine.chunk import Audio, Output, Speech, Text, Transcript
from engine.core import ANSWER, Request
from engine.stream import of
from engine.worker.llm.thinker import NOT_UNDERSTOOD
from engine.worker.tts.clauses import Clauses
from tests.app.rig import LoudnessVad, Running, running, script_spec, silence, tone
from tests.engine.fakes import only, request

SAID = "one two three four five six seven eight nine ten, eleven twelve thirteen fourteen. And that was all of it."


@pytest.fixture
async def server() -> AsyncGenerator[Running]:
    async with running(script_spec(), vad=LoudnessVad) as one:
        yield one
        await one.empty()


def asking(server: Running, *stages: StageSpec) -> Engine:
    """A deployment all of whose own stages ask that server."""
    return Engine(EngineSpec(stages=stages, launcher="inline"))


def thinker(server: Running) -> StageSpec:
    options = {"url": f"{server.http}/v1", "model": "script", "instructions_suffix": ""}
    return StageSpec(use="llm.openai", name="thinker", options=options)


def voice(server: Running) -> StageSpec:
    return StageSpec(use="tts.openai", name="voice", options={"url": f"{server.http}/v1", "model": "script"})


async def answered(server: Running, asked: Request) -> list[Output]:
    async with asking(server, thinker(server), voice(server)) as engine, engine.open(asked) as chunks:
        return [chunk async for chunk in chunks]


def ears(server: Running) -> StageSpec:
    return StageSpec(use="asr.openai", name="ears", options={"url": f"{server.http}/v1", "model": "script"})


async def spoken(server: Running, text: str) -> np.ndarray:
    """A text, as the server says it to any client."""
    asked = {"model": "script", "input": text, "response_format": "pcm"}
    async with httpx2.AsyncClient() as http:
        response = await http.post(f"{server.http}/v1/audio/speech", json=asked)
    return np.frombuffer(response.content, "<i2") / np.float32(32768)


async def test_an_answer_sounds_as_the_server_says_its_clauses(server: Running) -> None:
    got = await answered(server, request(f"say: {SAID}", wants=ANSWER))
    assert "".join(chunk.text for chunk in only(Text, got)) == SAID
    cutter = Clauses()
    clauses = [*cutter.feed(SAID, 0), cutter.flush()]
    wanted = [await spoken(server, " ".join(clause.text.split())) for clause in clauses if clause is not None]
    assert len(wanted) == 3
    sounds = only(Audio, got)
    assert np.array_equal(np.concatenate([sound.wave for sound in sounds]), np.concatenate(wanted))
    marks = [mark for sound in sounds for mark in sound.marks]
    assert marks == sorted(marks)
    assert marks[-1] == (sum(map(len, wanted)), len(SAID))


async def test_to_leave_an_answer_leaves_nothing_of_it_at_the_server(server: Running) -> None:
    async with asking(server, thinker(server), voice(server)) as engine:
        async with engine.open(request("long 300", wants=ANSWER)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Audio):
                    break
        await server.empty()


async def test_a_text_that_stands_is_said_by_the_server(server: Running) -> None:
    got = await answered(server, Request(id="r", session="s", messages=(), say="Good morning."))
    assert np.array_equal(np.concatenate([one.wave for one in only(Audio, got)]), await spoken(server, "Good morning."))


async def test_what_is_spoken_is_heard_thought_about_and_answered_by_servers_alone(server: Running) -> None:
    """The scripted family's ears hear how long somebody spoke, and its thinker says what it was asked. (0.8 s of the
    rig's sound, at 24 kHz, are 1.2 s to ears.)"""
    asked = Request(id="r", session="s", messages=(), live=True)
    async with (
        asking(server, ears(server), thinker(server), voice(server)) as engine,
        engine.open(asked, of([Speech(tone(0.4)), Speech(tone(0.4))])) as chunks,
    ):
        got = [chunk async for chunk in chunks]
    assert only(Transcript, got) == [Transcript("1.2 seconds", final=True)]
    assert "".join(chunk.text for chunk in only(Text, got)) == "You said: 1.2 seconds"
    sound = np.concatenate([one.wave for one in only(Audio, got)])
    assert np.array_equal(sound, await spoken(server, "You said: 1.2 seconds"))


async def test_silence_reaches_no_thinker(server: Running) -> None:
    asked = Request(id="r", session="s", messages=(), live=True)
    async with (
        asking(server, ears(server), thinker(server), voice(server)) as engine,
        engine.open(asked, of([Speech(silence(1.0))])) as chunks,
    ):
        got = [chunk async for chunk in chunks]
    assert only(Transcript, got) == [Transcript("", final=True, understood=False)]
    assert "".join(chunk.text for chunk in only(Text, got)) == NOT_UNDERSTOOD
