"""The thinker that asks a server, between nano's ears and voice, and alone: what it writes, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineSpec, ReplicaLost, Request, StageFailed, StageSpec, WorkerSpec
from engine.chunk import Audio, Output, Speech, Text, ToolCall, Transcript, Usage, VoiceText
from engine.core import IN_WRITING, Pcm
from engine.stream import of
from engine.training.nano.eval_ears import SPOKEN
from engine.training.nano.eval_ears import read as recordings
from engine.worker.llm.thinker import NOT_UNDERSTOOD
from engine.worker.stage import StageConfig
from engine.worker.stages.llm.openai import Thinker
from tests.engine.fakes import lose, only, request, until
from tests.engine.worker.llm.scripted import (
    Reply,
    Scripted,
    answer,
    call,
    delta,
    scripted,
    stalled,
    stream,
    text,
    words,
)

SAID = "**Good** day to you, [friend](http://x.example/)."
ALOUD = "Good day to you, friend."


def thinker(server: Scripted) -> Thinker:
    return Thinker(StageConfig(options={"url": server.url, "model": "m"}))


def spec(server: Scripted, copies: int = 1) -> EngineSpec:
    """Nano's ears, the server's words, nano's voice; each copy on a worker of its own."""
    stages = (
        StageSpec(use="nano.ears", name="ears"),
        StageSpec(use="llm.openai", name="thinker", options={"url": server.url, "model": "m"}),
        StageSpec(use="nano.talker", name="talker"),
        StageSpec(use="nano.code2wav", name="code2wav"),
    )
    worker = WorkerSpec(stages=tuple(stage.name for stage in stages), replicas=copies, max_batch=2)
    return EngineSpec(stages=stages, workers=(worker,), launcher="inline")


def asking(*replies: Reply) -> AbstractAsyncContextManager[Scripted]:
    """A server that lists its models, and answers so."""
    return scripted(*replies, models=answer(200, {"data": [{"id": "m"}]}))


def talking(server: Scripted, copies: int = 1) -> Engine:
    return Engine(spec(server, copies))


async def read(rig: Engine, asked: Request, inputs: Any = None) -> list[Output]:
    async with rig.open(asked, inputs) as chunks:
        return [chunk async for chunk in chunks]


def written(chunks: list[Output]) -> str:
    return "".join(chunk.text for chunk in only(Text, chunks))


@pytest.fixture(scope="module")
def request_spoken() -> Pcm:
    return next(one.pcm for one in recordings(SPOKEN) if one.text == "say the word garlic")


async def test_a_typed_question_is_answered_by_the_server_and_spoken_by_nano() -> None:
    async with asking(stream(*words(*SAID.partition("day")))) as server, talking(server) as rig:
        chunks = await read(rig, request("How do you do?"))
    assert written(chunks) == SAID, "the transcript is the model's own text"
    sounds = only(Audio, chunks)
    assert sum(len(sound.wave) for sound in sounds) > 24_000, "some seconds of speech"
    reached = [characters for sound in sounds for _, characters in sound.marks]
    assert reached == sorted(reached)
    assert reached[-1] >= SAID.index("friend") + len("friend"), "marks are places in the model's own text"
    assert only(Usage, chunks)[-1].finish == "stop"
    assert server.asked[0].body["messages"][-1] == {"role": "user", "content": "How do you do?"}


async def test_what_is_spoken_is_heard_by_nano_and_asked_of_the_server(request_spoken: Pcm) -> None:
    async def inputs() -> AsyncGenerator[Speech]:
        for at in range(0, len(request_spoken), 640):
            yield Speech(request_spoken[at : at + 640])

    async with asking(stream(*words("Garlic."))) as server, talking(server) as rig:
        chunks = await read(rig, Request(id="r", session="s", messages=(), live=True), inputs())
    assert only(Transcript, chunks)[-1].text == "say the word garlic"
    assert server.asked[0].body["messages"][-1]["content"] == "say the word garlic"
    assert written(chunks) == "Garlic."
    assert only(Audio, chunks)


async def test_what_the_ears_did_not_understand_is_not_asked_of_the_server() -> None:
    async def inputs() -> AsyncGenerator[Speech]:
        yield Speech(np.zeros(16_000, np.int16))

    async with asking(stream(*words("never"))) as server, talking(server) as rig:
        chunks = await read(rig, Request(id="r", session="s", messages=(), live=True), inputs())
    assert (written(chunks), server.asked) == (NOT_UNDERSTOOD, [])


async def test_a_text_that_stands_is_spoken_and_not_asked_of_the_server() -> None:
    async with asking(stream(*words("never"))) as server, talking(server) as rig:
        chunks = await read(rig, Request(id="r", session="s", messages=(), say="Good morning."))
    assert (written(chunks), server.asked) == ("Good morning.", [])
    assert only(Audio, chunks)


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_an_answer_whose_worker_is_lost_is_never_spliced_with_another(lost: int) -> None:
    """A server says something else each time: of what has begun, nothing follows but one error."""
    first = stalled(*[delta(role="assistant"), *(text(f"first{n} ") for n in range(lost))])
    async with asking(first, stream(*words("second ", "answer"))) as server, talking(server, copies=2) as rig:
        got: list[Output] = []

        async def follow() -> None:
            async with rig.open(request(wants=IN_WRITING)) as chunks:
                while len(got) < lost:
                    got.append(await anext(chunks))
                await until(lambda: bool(server.asked))
                assert lose(rig, "thinker")
                async for chunk in chunks:
                    got.append(chunk)  # noqa: PERF401 - kept when it raises

        if lost:
            with pytest.raises(ReplicaLost, match="what was still to come of the answer is lost with it"):
                await follow()
        else:
            await follow()
    assert written(got) == ("second answer" if not lost else "".join(f"first{n} " for n in range(lost)))
    assert len(server.asked) == (1 if lost else 2)


async def test_leaving_an_answer_closes_the_servers_stream() -> None:
    async with asking(stalled(text("Once "))) as server, talking(server) as rig:
        async with rig.open(request(wants=IN_WRITING)) as chunks:
            await anext(chunks)
        await asyncio.wait_for(server.aborted.wait(), 20)


async def test_a_server_that_refuses_ends_one_request_and_the_next_is_answered() -> None:
    async with asking(answer(500, {}), stream(*words("yes"))) as server, talking(server) as rig:
        with pytest.raises(StageFailed, match=r"failed \(500\)"):
            await read(rig, request(wants=IN_WRITING))
        assert written(await read(rig, request(wants=IN_WRITING))) == "yes"


async def test_calls_and_thoughts_are_not_spoken() -> None:
    calling = call("{}", index=0, id="c", name="look")
    asked = stream(delta(reasoning_content="hmm"), text("Look: "), calling, delta("tool_calls"))
    async with asking(asked) as server:
        stage = thinker(server)
        chunks = [chunk async for chunk in stage.answer(request("what?"), of(()))]
        await stage.aclose()
    assert "".join(chunk.text for chunk in only(VoiceText, chunks)) == "Look: "
    assert only(ToolCall, chunks) == [ToolCall("c", "look", "{}")]
    assert only(Usage, chunks) == [Usage(finish="tool")]
