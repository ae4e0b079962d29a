"""Token ids mean what their own tokenizer says: no thinker reads those of another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.realtime.conversation.conversation import prompt
from app.realtime.protocol.items import MessageItem, MessageText
from engine import Engine, Message, Request, TextPart, TokenIds, describe
from engine.chunk import Text as TextChunk
from engine.chunk import Usage
from engine.core import IN_WRITING, Sampling
from engine.deployment.config import EngineSpec, WorkerSpec
from engine.worker.models.nano.tokens import TOKENIZER
from engine.worker.text.chat_encoder import tokenizer_of
from tests.oracles.talk import spec as qwen3_omni

ASKED = Message("user", (TextPart("Say hello."),))
NEXT = Message("user", (TextPart("say that again"),))
STRANGE = TokenIds("of another model", (5, 6, 7))


def nano() -> EngineSpec:
    return EngineSpec(model="nano", workers=(WorkerSpec(stages=("ears", "thinker", "talker", "code2wav")),),
                      launcher="inline")  # fmt: skip


async def answered(engine: Engine, *messages: Message) -> tuple[Message, Usage]:
    """The answer as the message that it is in the conversation, and what its prompt was."""
    request = Request(
        id="r", session="s", messages=messages, wants=IN_WRITING, sampling=Sampling(greedy=True), dump=True,
        max_text_tokens=8,
    )  # fmt: skip
    async with engine.open(request) as chunks:
        found = [chunk async for chunk in chunks]
    pieces = [chunk for chunk in found if isinstance(chunk, TextChunk)]
    ids = tuple(id for piece in pieces for id in piece.token_ids)
    text = "".join(piece.text for piece in pieces)
    [usage] = [chunk for chunk in found if isinstance(chunk, Usage)]
    return Message("assistant", (TextPart(text),), TokenIds(engine.model.tokenizer, ids)), usage


def with_ids(message: Message, ids: TokenIds | None) -> Message:
    return Message(message.role, message.parts, ids)


async def test_a_conversation_that_one_thinker_began_is_read_by_another_as_text(
    checkpoint: Callable[[str], Path],
) -> None:
    async with Engine(nano()) as first:
        said, _ = await answered(first, ASKED)
    assert said.token_ids is not None
    assert said.token_ids.tokenizer == TOKENIZER
    assert said.token_ids.ids
    async with Engine(qwen3_omni(checkpoint("plain"))) as second:
        _, foreign = await answered(second, ASKED, said, NEXT)
        _, encoded = await answered(second, ASKED, with_ids(said, None), NEXT)
        own = TokenIds(second.model.tokenizer, (300, 12, 390))
        _, as_they_stand = await answered(second, ASKED, with_ids(said, own), NEXT)
    assert foreign.prompt_ids == encoded.prompt_ids
    assert "300,12,390" in ",".join(map(str, as_they_stand.prompt_ids))
    assert "300,12,390" not in ",".join(map(str, foreign.prompt_ids))


async def test_nano_reads_its_own_ids_as_they_stand_and_others_as_text(checkpoint: Callable[[str], Path]) -> None:
    async with Engine(qwen3_omni(checkpoint("plain"))) as other:
        said, _ = await answered(other, ASKED)
    assert said.token_ids is not None
    assert said.token_ids.ids
    async with Engine(nano()) as engine:
        _, foreign = await answered(engine, ASKED, said, NEXT)
        _, encoded = await answered(engine, ASKED, with_ids(said, None), NEXT)
        mine, _ = await answered(engine, ASKED)
        _, as_they_stand = await answered(engine, ASKED, mine, NEXT)
    assert foreign.prompt_ids == encoded.prompt_ids
    assert mine.token_ids is not None
    assert ",".join(map(str, mine.token_ids.ids)) in ",".join(map(str, as_they_stand.prompt_ids))


def test_a_thinkers_tokenizer_is_told_before_it_is_loaded(checkpoint: Callable[[str], Path]) -> None:
    assert describe(nano()).tokenizer == TOKENIZER
    assert describe(qwen3_omni(checkpoint("plain"))).tokenizer == tokenizer_of(checkpoint("plain"))


def test_another_vocabulary_has_another_name_and_another_template_has_not(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    name = tokenizer_of(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert tokenizer_of(tmp_path) == name
    (tmp_path / "tokenizer.json").write_text('{"a": 1}')
    assert tokenizer_of(tmp_path) != name


def test_a_conversation_keeps_whose_ids_they_are() -> None:
    [message] = prompt("", (MessageItem(id="a", role="assistant", content=(MessageText("hi"),), token_ids=STRANGE),))
    assert message.token_ids == STRANGE
