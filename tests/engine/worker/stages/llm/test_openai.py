"""The thinker that asks a server, between nano's ears and voice, and alone: what it writes, and what becomes of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from engine import Engine, EngineSpec, ReplicaLost, Request, StageFailed, StageSpec, WorkerSpec
from engine.chunk import Audio, Output, Speech, Text, ToolCall, Transcript, Usage, VoiceText
from engine.core import IN_WRITING, Message, Pcm, Sampling, TextPart, ToolDefinition
from engine.stream import of
from engine.training.nano.eval_ears import SPOKEN
from engine.training.nano.eval_ears import read as recordings
from engine.worker.llm.thinker import NOT_UNDERSTOOD
from engine.worker.pace import OneFrame
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.stages.llm import openai
from engine.worker.stages.llm.openai import OpenAiLlmStage
from tests.conformance import tiny_llm
from tests.engine.fakes import lose, only, request, turns, until
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


def thinker(server: Scripted) -> OpenAiLlmStage:
    return OpenAiLlmStage(StageConfig(options={"url": server.url, "model": "m"}))


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


async def test_an_answer_without_text_is_asked_for_once_more() -> None:
    blank = stream(text(" \n"), text("", "stop"))
    async with asking(blank, stream(*words("\n", "Yes."))) as server, talking(server) as rig:
        chunks = await read(rig, request(sampling=Sampling(greedy=True)))
    assert written(chunks) == "\nYes."
    assert len(only(Usage, chunks)) == 1
    assert [one.body["temperature"] for one in server.asked] == [0, 0.7]


async def test_a_model_that_has_no_text_twice_is_one_clear_error() -> None:
    async with asking(stream()) as server, talking(server) as rig:
        with pytest.raises(StageFailed, match="The language model m wrote no text, twice"):
            await read(rig, request())
    assert len(server.asked) == 2


@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_text_in_the_place_of_a_required_call_is_asked_for_again_and_never_said(finish: str) -> None:
    """Not every server obeys ``tool_choice``."""
    ignoring = stream(text("Sure!"), text("", finish))
    asked = request(tools=(ToolDefinition("timer"),), tool_choice="required")
    calling = stream(text("Sure! "), call("{}", index=0, id="a", name="timer"), delta("tool_calls"))
    async with asking(ignoring, calling) as server, talking(server) as rig:
        chunks = await read(rig, asked)
    assert written(chunks) == "Sure! "
    assert [one.name for one in only(ToolCall, chunks)] == ["timer"]
    async with asking(ignoring) as server, talking(server) as rig:
        with pytest.raises(StageFailed, match="made no call, which tool_choice requires"):
            await read(rig, asked)
        assert len(server.asked) == 2


async def test_an_answer_that_is_cut_before_its_first_word_is_not_asked_for_again() -> None:
    async with asking(stream(text("", "length"))) as server, talking(server) as rig:
        [usage] = await read(rig, request())
    assert usage == Usage(finish="length")
    assert len(server.asked) == 1


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
            with pytest.raises((ReplicaLost, StageFailed), match="rest of the answer is lost"):
                await follow()
        else:
            await follow()
    assert written(got) == ("second answer" if not lost else "".join(f"first{n} " for n in range(lost)))
    assert len(server.asked) == (1 if lost else 2)


def goes_on(*replies: Reply) -> AbstractAsyncContextManager[Scripted]:
    """llama.cpp's server, by its list of models; its prompts are among the replies."""
    return scripted(*replies, models=answer(200, {"data": [{"id": "m", "owned_by": "llamacpp"}]}))


async def broken_off(rig: Engine, after: int, asked: Request) -> list[Output]:
    """An answer of which the thinker's worker is lost behind so many chunks."""
    got: list[Output] = []
    async with rig.open(asked) as chunks:
        while len(got) < after:
            got.append(await anext(chunks))
        assert lose(rig, "thinker")
        got += [chunk async for chunk in chunks]
    return got


async def test_an_answer_goes_on_where_the_server_shows_that_it_would() -> None:
    """What was given is given once, to the client and to the voice; the server is asked for what is behind it."""
    first = stalled(delta(role="assistant"), text("**Good** "), text("day to"))
    prompt = answer(200, {"prompt": "<user>hello<assistant>**Good** day to"})
    replies = first, prompt, stream(*words(" you, ", "[friend](http://x.example/)."))
    async with goes_on(*replies) as server, talking(server, copies=2) as rig:
        chunks = await broken_off(rig, 2, request(wants=IN_WRITING))
    assert written(chunks) == SAID
    assert [(chunk.start, chunk.end) for chunk in only(Text, chunks)][2:] == [(15, 21), (21, len(SAID))]
    assert [one.path for one in server.asked] == ["/v1/chat/completions", "/apply-template", "/v1/chat/completions"]
    again = server.asked[2].body
    assert again["messages"] == [*server.asked[0].body["messages"], {"role": "assistant", "content": "**Good** day to"}]
    assert again["continue_final_message"]
    assert again == server.asked[1].body, "what was shown is what is asked"


async def test_the_voice_speaks_such_an_answer_as_if_it_had_not_been_broken_off() -> None:
    whole = stream(*words("**Good** ", "day to", " you, ", "[friend](http://x.example/)."))
    async with asking(whole) as server, talking(server) as rig:
        expected = await read(rig, request())
    first = stalled(delta(role="assistant"), text("**Good** "), text("day to"))
    prompt = answer(200, {"prompt": "<user>hello<assistant>**Good** day to"})
    replies = first, prompt, stream(*words(" you, ", "[friend](http://x.example/)."))
    async with goes_on(*replies) as server, talking(server, copies=2) as rig:
        chunks = await broken_off(rig, 2, request())
    sounds = [np.concatenate([chunk.wave for chunk in only(Audio, one)]) for one in (expected, chunks)]
    assert written(chunks) == written(expected) == SAID
    assert sounds[0].shape == sounds[1].shape
    assert np.abs(sounds[0] - sounds[1]).max() < 1e-5


async def test_a_server_whose_prompt_shows_another_answer_is_not_asked_for_it() -> None:
    first = stalled(delta(role="assistant"), text("Good "))
    prompt = answer(200, {"prompt": "<user>hello<assistant>Good<end><assistant>"})
    async with goes_on(first, prompt, stream(*words("Bye."))) as server, talking(server, copies=2) as rig:
        with pytest.raises(StageFailed, match="cannot continue an interrupted answer"):
            await broken_off(rig, 1, request(wants=IN_WRITING))
    assert [one.path for one in server.asked] == ["/v1/chat/completions", "/apply-template"]


async def test_a_call_that_is_under_way_is_never_gone_on_with() -> None:
    first = stalled(text("Look: "), call('{"at":', index=0, id="c", name="look"))
    async with goes_on(first, stream(*words("never"))) as server, talking(server, copies=2) as rig:
        with pytest.raises(ReplicaLost, match="the rest of the answer is lost; try again"):
            await broken_off(rig, 2, request(wants=IN_WRITING))
    assert len(server.asked) == 1


@pytest.mark.parametrize(("owner", "stored"), [("llamacpp", True), ("vllm", True), ("library", False), ("", False)])
async def test_what_a_server_would_not_go_on_with_is_not_stored(owner: str, stored: bool) -> None:
    """So that its answers end as soon as their worker is lost."""
    async with scripted(models=answer(200, {"data": [{"id": "m", "owned_by": owner}]})) as server:
        stage = thinker(server)
        req = StageRequest(request(), 0, OneFrame())
        stage.open(req)
        assert req.stored, "not known yet: it is asked once it matters"
        watching = asyncio.create_task(stage.watch())
        await until(lambda: server.probed > 0 and stage._owner is not None)
        stage.open(req)
        watching.cancel()
        await stage.aclose()
    assert req.stored is stored


def test_a_model_that_thinks_first_is_not_asked_again() -> None:
    options = {"url": "http://127.0.0.1:1/v1", "model": "m"}
    assert OpenAiLlmStage.describe(StageConfig(options=options)).replay == "continue"
    assert OpenAiLlmStage.describe(StageConfig(options=options | {"thinking": True})).replay == "never"


async def test_an_answer_that_was_whole_is_not_asked_for_again() -> None:
    """Its worker is lost while the voice is still to speak: the words come again from what was kept."""
    replies = stream(*words("Good ", "day ", "to you all.")), stream(*words("never"))
    got: list[Output] = []
    async with goes_on(*replies) as server, talking(server, copies=2) as rig, rig.open(request()) as chunks:
        async for chunk in chunks:
            got.append(chunk)
            if isinstance(chunk, Usage):
                assert lose(rig, "thinker")
    assert written(got) == "Good day to you all."
    assert only(Audio, got)
    assert len(server.asked) == 1


def conversation(*said: str, **fields: Any) -> Request:
    """A conversation of which the user says the first, the third, and so on."""
    messages = tuple(Message("assistant" if n % 2 else "user", (TextPart(one),)) for n, one in enumerate(said))
    return Request(id="r", session="s", messages=messages, **fields)


@pytest.fixture
async def preparing() -> AsyncGenerator[tuple[Scripted, OpenAiLlmStage, asyncio.Task[None]]]:
    """A thinker whose server still reads the prompt of a conversation, while its next turn is being spoken."""
    async with scripted(stalled(), stream(*words("yes")), models=answer(200, {"data": []})) as server:
        stage = thinker(server)
        task = asyncio.create_task(stage.prepare(conversation("Hello.", "Good day.", live=True)))
        await until(lambda: bool(server.asked))
        yield server, stage, task
        task.cancel()
        await asyncio.wait([task])
        await stage.aclose()


async def test_a_prompt_s_beginning_is_read_ahead_as_an_answer_of_one_token(preparing: Any) -> None:
    server, _, _ = preparing
    body = server.asked[0].body
    assert body["max_tokens"] == 1
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant"]


async def test_an_answer_waits_for_its_own_prompt_and_asks_behind_it(preparing: Any) -> None:
    """To have it computed twice at once would take longer."""
    server, stage, task = preparing
    answering = asyncio.ensure_future(anext(stage.answer(conversation("Hello.", "Good day.", "And?"), of(()))))
    await turns(50)
    assert len(server.asked) == 1
    task.cancel()
    assert await answering == Text("yes", 0)
    asked = [one.body["messages"] for one in server.asked]
    assert asked[1][: len(asked[0])] == asked[0], "a strict beginning of what is asked"


async def test_what_is_read_of_another_prompt_is_dropped(preparing: Any) -> None:
    server, stage, task = preparing
    chunks = stage.answer(conversation("Hello.", "Good day.", "And?", tools=(ToolDefinition("look"),)), of(()))
    assert await anext(chunks) == Text("yes", 0)
    await chunks.aclose()
    assert task.cancelled()
    assert len(server.asked) == 2


async def test_tools_that_the_model_is_not_offered_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "engine.worker.llm")
    async with scripted(*(stream(*words("yes")) for _ in range(3))) as server:
        stage = OpenAiLlmStage(StageConfig(options={"url": server.url, "model": "m", "tools": False}))
        for tools in ((), (ToolDefinition("look"),), (ToolDefinition("look"),)):
            assert [chunk async for chunk in stage.answer(conversation("Hello.", tools=tools), of(()))]
            assert len(caplog.records) == bool(tools)
        await stage.aclose()
    assert caplog.messages == ["m is not offered the session's tools (tools: false). This is logged once."]


async def test_a_failed_preparation_does_not_suppress_that_log_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "engine.worker.llm")
    async with scripted(answer(500, {}), stream(*words("yes"))) as server:
        stage = OpenAiLlmStage(StageConfig(options={"url": server.url, "model": "m", "tools": False}))
        await stage.prepare(conversation("Hello.", "Good day.", live=True))
        assert [chunk async for chunk in stage.answer(conversation("Hi.", tools=(ToolDefinition("look"),)), of(()))]
        await stage.aclose()
    assert "m is not offered the session's tools (tools: false). This is logged once." in caplog.messages


async def test_nothing_is_read_ahead_of_a_conversation_that_has_not_begun() -> None:
    async with scripted(stream(*words("never"))) as server:
        stage = thinker(server)
        await stage.prepare(conversation(live=True))
        await stage.prepare(conversation("Hello.", live=True))
        await stage.aclose()
    assert not server.asked


async def test_what_cannot_be_read_ahead_is_no_error() -> None:
    async with scripted(answer(500, {})) as server:
        stage = thinker(server)
        await stage.prepare(conversation("Hello.", "Good day.", live=True))
        await stage.aclose()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("url", "wanted", "prepares"),
    [
        ("http://127.0.0.1:8080", None, True),
        ("https://llm.example", None, False),
        ("https://llm.example", True, True),
        ("http://127.0.0.1:8080", False, False),
    ],
)
def test_only_servers_on_this_machine_read_ahead_unless_it_is_wanted(
    url: str, wanted: bool | None, prepares: bool
) -> None:
    options = {"url": url, "model": "m", "prepare": wanted}
    assert OpenAiLlmStage.describe(StageConfig(options=options)).prepares is prepares


@pytest.mark.conformance
@pytest.mark.timeout(tiny_llm.MAKE_S + 100)
async def test_llamacpp_has_read_what_was_prepared() -> None:
    said = conversation("hello", "Good day. " * 60, "tell me a joke", sampling=Sampling(greedy=True))
    with tiny_llm.served(tiny_llm.model_file()) as address:
        stage = OpenAiLlmStage(StageConfig(options={"url": address, "model": "tiny"}))
        await stage.prepare(replace(said, live=True))
        [usage] = only(Usage, [chunk async for chunk in stage.answer(said, of(()))])
        await stage.aclose()
    assert usage.cached_tokens > 0.8 * usage.input_tokens > 100


@pytest.mark.conformance
@pytest.mark.timeout(tiny_llm.MAKE_S + 100)
async def test_llamacpp_goes_on_with_every_beginning_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greedy answer that was broken off anywhere is the one that was not."""
    went_on = list[str]()
    continued = openai.continued

    def counting(body: Any, before: Any) -> Any:
        went_on.append("".join(one.text for one in before))
        return continued(body, before)

    monkeypatch.setattr(openai, "continued", counting)
    monkeypatch.setattr("engine.control.membership.FIRST_PENALTY_S", 0.01)
    asked = request("list the months", wants=IN_WRITING, sampling=Sampling(greedy=True))
    with tiny_llm.served(tiny_llm.model_file()) as address:
        stages = (StageSpec(use="llm.openai", name="thinker", options={"url": address, "model": "tiny"}),)
        workers = (WorkerSpec(stages=("thinker",), replicas=2),)
        async with Engine(EngineSpec(stages=stages, workers=workers, launcher="inline")) as rig:
            whole = await read(rig, asked)
            for after in range(1, len(only(Text, whole))):
                await until(lambda: len(rig.replicas()) == 2, 10_000)
                found = await broken_off(rig, after, asked)
                assert written(found) == written(whole)
                assert found[-1] == whole[-1] or only(Usage, found)[-1].finish == "stop"
    assert len(set(went_on)) > 3, "the rest was asked for, behind several beginnings"


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
