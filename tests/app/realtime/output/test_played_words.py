"""An answer cut anywhere: the prompt keeps the words whose sound was played to its end, no other.

With nano's real voice, against an account of its own: the engine's codec frames, one by one.
"""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any

from msgspec.structs import replace

from app.realtime.conversation.conversation import Conversation, prompt
from app.realtime.output.prompt_version import PromptVersion
from app.realtime.output.response_emitter import ResponseEmitter
from app.realtime.output.response_task import ResponseTask
from app.realtime.ports import PlayoutProfile
from app.realtime.protocol.items import AssistantAudio, MessageItem
from app.realtime.protocol.options import SessionOptions, response_options
from app.realtime.protocol.server_events import AudioAlignmentEvent
from engine import Engine, Request, load_config
from engine.chunk import Codes
from tests.app.rig import ROOT

TEXT = "Good morning, I have known the answer for some time, but you wouldn't listen to me. Would you?"
WORD_ENDS = [match.end() for match in re.finditer(r"[\w']+", TEXT)]
SAY = Request(id="say", session="s", messages=(), say=TEXT)


class Deaf:
    async def before_request(self, task: ResponseTask) -> None:
        """Nothing is missing from the prompt."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


async def word_ends(engine: Engine, frame_samples: float) -> list[int]:
    """After how many samples each word of the text has been spoken: the first codec frame that says so."""
    async with engine.open(replace(SAY, dump=True)) as chunks:
        reached = [chunk.text_end async for chunk in chunks if isinstance(chunk, Codes)]
    return [round((next(n for n, end in enumerate(reached) if end >= last) + 1) * frame_samples) for last in WORD_ENDS]


def marked(marks: list[tuple[float, int]], last: int) -> float:
    """The ms of sound after which a client knows that so many characters are spoken."""
    return next(ms for ms, end in marks if end >= last)


async def test_the_words_kept_are_those_that_were_played() -> None:
    spec = dataclasses.replace(load_config(ROOT / "configs" / "nano.yaml"), launcher="inline")
    conversation = Conversation("conv", 10, 10**6)
    async with Engine(spec) as engine:
        line = PlayoutProfile(lead_s=60.0)
        options = response_options(SessionOptions(), {"parley": {"alignment": True}})[0]
        told: list[Any] = []
        answer = ResponseEmitter(options, conversation, engine.model, told.append, line)
        reply = ResponseTask(answer, SAY, None, None, PromptVersion(0, SessionOptions(), False), time.monotonic)
        reply.open()
        listener: Any = Deaf()
        await reply.run(engine, listener)
        skipped = reply.playout.skipped_samples
        assert skipped, "this voice takes a breath"
        ends = [end - skipped for end in await word_ends(engine, answer.frame_samples)]
    item = conversation.items[0]
    assert isinstance(item, MessageItem)
    assert isinstance(item.content[0], AssistantAudio)
    assert item.content[0].played_text == TEXT
    assert ends == sorted(ends)
    marks = [mark for notice in told if isinstance(notice, AudioAlignmentEvent) for mark in notice.marks]
    assert [marked(marks, end) for end in WORD_ENDS] == [round(end / 24, 3) for end in ends]
    assert ends[-1] <= item.content[0].sent_samples
    for ms in range(0, item.content[0].sent_ms, 20):
        kept = kept_words(conversation, item.id, ms)
        assert len(kept) == sum(end <= ms * 24 for end in ends), f"at {ms} ms: {kept}"
        assert re.findall(r"[\w']+", TEXT)[: len(kept)] == kept


def kept_words(conversation: Conversation, id: str, ms: int) -> list[str]:
    conversation.truncate(id, 0, ms)
    return [word for message in prompt("", conversation.items) for part in message.parts for word in words(part)]


def words(part: Any) -> list[str]:
    return re.findall(r"[\w']+", part.text)
