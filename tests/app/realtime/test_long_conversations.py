"""Conversations that outgrow the model's context: what the model still knows, and that no turn waits for a summary."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.realtime.conversation.truncation import Truncation
from app.realtime.output import summarizer
from app.realtime.protocol.items import Item, MessageItem, MessageText, Speaker
from app.realtime.protocol.options import SessionOptions, response_options
from engine import Engine, EngineSpec, ModelInfo, Request, StageSpec, WorkerSpec
from tests.app import note_taker
from tests.app.note_taker import texts_of
from tests.app.rig import Client, eventually, running, talking

FACTS = (
    "My name is Anna.", "I live in Hamburg.", "My sister is called Carla.", "My dog Rex is 7 years old.",
    "I was born in 1984.", "My train leaves at 17:45.", "My doctor is called Okafor.", "I work at Siemens.",
    "My flat has the number 23.", "I am allergic to penicillin.", "My favourite city is Lisbon.",
    "My son Ben is 4 years old.", "I drive a Volvo.", "My garden has 12 apple trees.", "My boss is called Maria.",
    "I play the cello.", "My wedding day is the 3rd of May.", "My teacher was called Frank.",
    "I speak Portuguese.", "My locker has the code 4711.",
)  # fmt: skip
CHAT = (
    "What should we talk about?", "Tell me a joke about cats.", "Why is that so?", "How does that work in Paris?",
    "I think that is funny.", "I would like to hear more about it.", "Name 3 animals.",
)  # fmt: skip
SHORT = FACTS[:4]
"""As many facts as the short context of the scripted model has room for."""
WRITTEN = "Anna, Hamburg, sister Carla, Rex, 7 years."
TEXT: dict[str, Any] = {"output_modalities": ["text"]}


def message(id: str, role: Speaker, text: str) -> Item:
    return MessageItem(id=id, role=role, content=(MessageText(text),))


@pytest.mark.parametrize(("summarize_at", "least", "most"), [(0.75, 15, 20), (1.0, 0, 0)])
def test_of_twenty_facts_most_are_in_the_prompt_at_turn_190(summarize_at: float, least: int, most: int) -> None:
    """A context of 4,096 tokens and a model that writes no summary. Without summaries all facts are forgotten."""
    model = ModelInfo(name="m", context=4096, summarizes=True)
    cut, options = Truncation(model, summarize_at), response_options(SessionOptions(), {})[0]
    items = list[Item]()
    prompt = ""
    for turn in range(1, 191):
        stated = FACTS[2 * (turn - 3) : 2 * (turn - 2)] if 3 <= turn <= 12 else ()
        items.append(message(f"u{turn}", "user", " ".join((*stated, CHAT[turn % len(CHAT)]))))
        prompt = "\n".join(text_of(item) for item in cut.fit("auto", tuple(items), options))
        items.append(message(f"a{turn}", "assistant", "That is a good question, and I will try to answer it. " * 2))
        if cut.is_crowded("auto", tuple(items), options):
            cut.summarize("auto", tuple(items), options, (), "")
    assert least <= sum(fact in prompt for fact in FACTS) <= most


def text_of(item: Item) -> str:
    assert isinstance(item, MessageItem)
    assert isinstance(item.content[0], MessageText)
    return item.content[0].text


def spec(notes: str = "", context: int = 480, **server: Any) -> EngineSpec:
    options = {"context": context, "notes": notes}
    stages = (
        StageSpec(use="script.ears", name="ears"),
        StageSpec(use=note_taker.__file__, name="thinker", options=options),
        StageSpec(use="script.talker", name="talker"),
        StageSpec(use="script.code2wav", name="code2wav"),
    )
    worker = WorkerSpec(stages=tuple(stage.name for stage in stages))
    section = {"host": "127.0.0.1", "port": 0, **server}
    return EngineSpec(stages=stages, workers=(worker,), launcher="inline", server=section)


async def talk(client: Client, turns: int = 12, waits: bool = True) -> None:
    """Talk for some turns, and state the facts in the first ones. ``waits``: until no summary is being written."""
    for turn in range(turns):
        said = f"{SHORT[turn] if turn < len(SHORT) else ''} {CHAT[turn % len(CHAT)]} {'And why? ' * 4}".strip()
        assert (await client.ask(said, **TEXT))["status"] == "completed"
        if waits:
            await eventually(lambda: all(task.get_name() != "summarize" for task in asyncio.all_tasks()))


async def prompt_of(client: Client) -> str:
    """Return the text of the prompt that the model receives."""
    return (await client.ask("recite", **TEXT))["output"][0]["content"][0]["text"]


async def known(client: Client) -> int:
    prompt = await prompt_of(client)
    return sum(fact in prompt for fact in SHORT)


@pytest.mark.parametrize("notes", ["", "fail", "The user said hello. " * 5])
async def test_the_user_s_sentences_replace_an_unusable_summary(notes: str) -> None:
    async with running(spec(notes)) as server, talking(server) as client:
        await talk(client)
        assert await known(client) == len(SHORT)
        assert server.metric("parley_summaries_total", source="extract") >= 1
        assert not server.metric("parley_summaries_total", source="model")


async def test_without_summaries_the_facts_are_forgotten() -> None:
    """The negative control of the test above."""
    async with running(spec(summarize_at=1)) as server, talking(server) as client:
        await talk(client)
        assert await known(client) == 0


async def test_the_model_s_summary_is_in_the_prompt_and_the_client_receives_it() -> None:
    async with running(spec(WRITTEN)) as server, talking(server) as client:
        await client.configure(parley={"summaries": True})
        await talk(client)
        events = client.of("parley.conversation.summarized")
        assert {event["source"] for event in events} == {"model"}
        assert 1 <= len(events) <= 5
        assert WRITTEN in events[-1]["summary"]
        assert WRITTEN in await prompt_of(client)


@pytest.mark.parametrize("notes", [WRITTEN, ""])
async def test_the_model_reads_the_changed_prompt_before_the_next_turn(
    notes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = list[Request]()
    monkeypatch.setattr(Engine, "prepare", lambda engine, request: prepared.append(request))
    async with running(spec(notes)) as server, talking(server) as client:
        await talk(client)
        summaries = sum(server.metric("parley_summaries_total", source=source) for source in ("model", "extract"))
        assert len(prepared) == summaries >= 1
        next_prompt = await prompt_of(client)
    words = texts_of(prepared[-1].messages).split()
    assert next_prompt.split()[: len(words)] == words


async def test_a_summary_that_never_ends_delays_no_turn() -> None:
    """The thinker has one slot, so a turn that had to wait for the summary would never be answered."""
    async with running(spec("hang")) as server, talking(server) as client:
        await talk(client, waits=False)
        assert await known(client) == len(SHORT)
        assert server.metric("parley_summaries_total", source="dropped") > 1


@pytest.mark.parametrize("notes", ["", "hang"])
@pytest.mark.parametrize("rest_s", [600.0, 0.0])
async def test_a_model_that_failed_twice_is_asked_again_only_after_a_rest(
    notes: str, rest_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    request = summarizer._request

    def counted(prompt: Request, context: int) -> Request:
        asked.append(prompt.id)
        return request(prompt, context)

    monkeypatch.setattr(summarizer, "_request", counted)
    monkeypatch.setattr(summarizer, "_REST_S", rest_s)
    async with running(spec(notes)) as server, talking(server) as client:
        await talk(client, turns=24, waits=not notes)
        assert await known(client) == len(SHORT)
        assert server.metric("parley_summaries_total", source="extract") >= 1
    assert len(asked) == 2 if rest_s else len(asked) > 2


async def test_pinned_items_and_results_of_tools_survive() -> None:
    async with running(spec(context=640)) as server, talking(server) as client:
        await add(client, "user", "the password is swordfish", parley={"pinned": True})
        await add(client, "system", "never mention the war")
        response = await client.ask('tool weather {"city": "Paris"}', **TEXT)
        output = {"type": "function_call_output", "call_id": response["output"][0]["call_id"], "output": "rain"}
        await client.send("conversation.item.create", item=output)
        await client.send("response.create", response=TEXT)
        await client.until("response.done")
        await talk(client)
        prompt = await prompt_of(client)
        assert client.of("conversation.item.added")[0]["item"]["parley"] == {"pinned": True}
    assert [part for part in ("swordfish", "never mention the war", "rain") if part not in prompt] == []


async def add(client: Client, role: str, text: str, **fields: Any) -> str:
    item = {"type": "message", "role": role, "content": [{"type": "text", "text": text}], **fields}
    await client.send("conversation.item.create", item=item)
    return (await client.until("conversation.item.done"))["item"]["id"]


async def test_a_deleted_item_leaves_the_summary() -> None:
    async with running(spec()) as server, talking(server) as client:
        item_id = await add(client, "user", "My password is Swordfish.")
        await talk(client)
        assert "Swordfish" in await prompt_of(client)
        await client.send("conversation.item.delete", item_id=item_id)
        assert "Swordfish" not in (await prompt_of(client)).partition("recite")[0]


async def test_disabled_truncation_still_refuses() -> None:
    async with running(spec()) as server, talking(server) as client:
        await client.configure(truncation="disabled")
        for _ in range(4):
            await add(client, "user", "Tell me something nice and long, please. " * 4)
            await add(client, "assistant", "There was a cat. " * 10)
        await client.say("And then?")
        await client.send("response.create", response=TEXT)
        assert (await client.error())["code"] == "context_length_exceeded"
        assert not server.metric("parley_summaries_total", source="extract")
