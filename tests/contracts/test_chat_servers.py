"""What the client of chat completions servers relies on, over every server that is here.

A scripted one, this project's own, and llama.cpp's with a model that talks (`make conformance`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from engine.chunk import Text, ToolCall, Usage
from engine.core import Message, Request, Sampling, TextPart, ToolDefinition
from engine.errors import ContextOverflow
from engine.worker.llm.client import ChatClient
from engine.worker.llm.deltas import Delta
from engine.worker.llm.messages import body_of
from engine.worker.llm.options import ChatServerOptions, options_of
from tests.app.rig import LoudnessVad, running, script_spec
from tests.conformance import tiny_llm
from tests.engine.worker.llm.scripted import Scripted, answer, call, delta, scripted, stalled, stream, text, words

Served = AbstractAsyncContextManager["ChatServer"]


@dataclass
class ChatServer:
    """A server that answers, and what is to be said to it."""

    url: str
    model: str
    question: str = "say: good day to you"
    long: str = "long 300"
    call: str = 'tool timer {"minutes": 5}'

    def options(self, **fields: Any) -> ChatServerOptions:
        return options_of({"url": self.url, "model": self.model, "instructions_suffix": "", **fields})


@asynccontextmanager
async def by_script() -> AsyncGenerator[ChatServer]:
    """Answers by what is asked, as a good server does."""
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}}
    async with scripted() as server:

        async def reply(connection: Any) -> Any:
            return await _chosen(server, usage)(connection)

        server.replies = [reply]
        yield ChatServer(server.url, "m")


def _chosen(server: Scripted, usage: Any) -> Any:
    asked = server.asked[-1]
    if asked.method == "GET":
        return answer(200, {"data": [{"id": "m"}]})
    said = asked.body["messages"][-1]["content"]
    if len(said) > 100_000:
        return answer(400, {"error": {"message": "This model's maximum context length is 8192 tokens."}})
    if said.startswith("long") and asked.body["max_tokens"] > 100:
        return stalled(*(text(f"word{n} ") for n in range(20)))
    if said.startswith("long"):
        return stream(text("word0 word1 ", "length"), usage)
    if said.startswith("tool"):
        return stream(call('{"minutes":', index=0, id="c1", name="timer"), call(" 5}", index=0), delta("tool_calls"))
    return stream(*words("good ", "day ", "to ", "you"), usage)


@asynccontextmanager
async def by_parley() -> AsyncGenerator[ChatServer]:
    """This project's own server, with the scripted family behind it."""
    async with running(script_spec(), vad=LoudnessVad) as server:
        yield ChatServer(f"{server.http}/v1", "script")
        await server.empty()


@asynccontextmanager
async def by_llamacpp() -> AsyncGenerator[ChatServer]:
    """llama.cpp's, with the tiny model, which has learned no calls and tells no long stories."""
    with tiny_llm.served(tiny_llm.model_file()) as url:
        yield ChatServer(f"{url}/v1", "tiny", question="tell me a joke", long="list the months")


LLAMACPP = pytest.param(
    by_llamacpp, id="llamacpp", marks=[pytest.mark.conformance, pytest.mark.timeout(tiny_llm.MAKE_S + 100)]
)
SERVERS = [pytest.param(by_script, id="scripted"), pytest.param(by_parley, id="parley"), LLAMACPP]


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncGenerator[ChatServer]:
    make: Callable[[], Served] = request.param
    async with make() as one:
        yield one


@pytest.fixture
async def client(server: ChatServer) -> AsyncGenerator[ChatClient]:
    client = ChatClient(server.options())
    yield client
    await client.aclose()


def asked(
    server: ChatServer, *said: str, tools: tuple[ToolDefinition, ...] = (), max_text_tokens: int = 99
) -> dict[str, Any]:
    """The body for a conversation of which the user says the first, the third, and so on."""
    messages = tuple(Message("assistant" if n % 2 else "user", (TextPart(one),)) for n, one in enumerate(said))
    request = Request(
        id="r", session="s", messages=messages, tools=tools, max_text_tokens=max_text_tokens,
        sampling=Sampling(greedy=True),
    )  # fmt: skip
    return body_of(request, server.options())


async def answered(client: ChatClient, body: dict[str, Any]) -> list[Delta]:
    return [one async for one in client.answer(body, "r")]


def said(deltas: list[Delta]) -> str:
    return "".join(one.text for one in deltas if isinstance(one, Text))


def finish_of(deltas: list[Delta]) -> str:
    last = deltas[-1]
    assert isinstance(last, Usage)
    return last.finish


async def test_an_answer_comes_in_pieces_and_ends_with_its_usage(server: ChatServer, client: ChatClient) -> None:
    deltas = await answered(client, asked(server, server.question))
    assert said(deltas).strip()
    assert sum(isinstance(one, Text) for one in deltas) > 1
    [usage] = [one for one in deltas if isinstance(one, Usage)]
    assert usage is deltas[-1]
    assert usage.finish == "stop"
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0


async def test_a_conversation_goes_on(server: ChatServer, client: ChatClient) -> None:
    first = said(await answered(client, asked(server, server.question)))
    second = await answered(client, asked(server, server.question, first, server.question))
    assert said(second).strip()


async def test_an_answer_is_cut_at_the_tokens_that_it_may_have(server: ChatServer, client: ChatClient) -> None:
    deltas = await answered(client, asked(server, server.long, max_text_tokens=2))
    assert finish_of(deltas) == "length"


async def test_an_answer_that_is_left_ends_and_the_next_one_comes(server: ChatServer, client: ChatClient) -> None:
    for _ in range(3):
        deltas = client.answer(asked(server, server.long, max_text_tokens=300), "r")
        assert isinstance(await anext(deltas), Text)
        await deltas.aclose()
    assert said(await answered(client, asked(server, server.question))).strip()


async def test_a_probe_lists_the_model(server: ChatServer, client: ChatClient) -> None:
    assert server.model in (await client.probe()).names


@pytest.mark.parametrize("server", SERVERS[:2], indirect=True)
async def test_a_call_comes_whole(server: ChatServer, client: ChatClient) -> None:
    body = asked(server, server.call, tools=(ToolDefinition("timer", "Sets a timer.", {"type": "object"}),))
    deltas = await answered(client, body)
    [made] = [one for one in deltas if isinstance(one, ToolCall)]
    assert (made.name, made.arguments) == ("timer", '{"minutes": 5}')
    assert finish_of(deltas) == "tool"


@pytest.mark.parametrize("server", [LLAMACPP], indirect=True)
async def test_a_prompt_that_begins_as_the_one_before_is_not_computed_again(
    server: ChatServer, client: ChatClient
) -> None:
    first = await answered(client, asked(server, server.question))
    second = await answered(client, asked(server, server.question, said(first), "tell me another"))
    [before], [usage] = ([one for one in deltas if isinstance(one, Usage)] for deltas in (first, second))
    assert usage.cached_tokens >= before.input_tokens + before.output_tokens - 1


@pytest.mark.parametrize("server", [LLAMACPP], indirect=True)
async def test_a_model_says_the_same_behind_a_server_as_in_transformers(server: ChatServer, client: ChatClient) -> None:
    from transformers import AutoTokenizer, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # it leaves a thread behind
    folder = tiny_llm.checkpoint(tiny_llm.model_file())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = LlamaForCausalLM.from_pretrained(folder)
    for question in (server.question, server.long, "hello", "what languages do you speak"):
        body = asked(server, question)
        ids = tokenizer.apply_chat_template(
            body["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        whole = model.generate(**ids, max_new_tokens=99, do_sample=False)[0]
        expected = tokenizer.decode(whole[ids["input_ids"].shape[1] :], skip_special_tokens=True)
        assert said(await answered(client, body)) == expected


async def test_a_conversation_that_is_too_long_is_told(server: ChatServer, client: ChatClient) -> None:
    with pytest.raises(ContextOverflow, match=r"exceeds the context of"):
        await answered(client, asked(server, "many words " * 60_000))
