"""A language model that plays a caller, and judges what an assistant said."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from app.commands.answer import ReceivedAnswer, Show, answer
from app.commands.deployment import Parts, deployment
from app.commands.sink import Nowhere
from app.commands.source import Answerer
from app.ids import new_id
from app.simulation.expectations import Check
from app.simulation.listener import TurnRecord
from app.simulation.scenario import Persona
from engine import IN_WRITING, EngineSpec, Message, Request, TextPart

HANG_UP = "[HANG UP]"
MAX_TOKENS = 200
"""Maximum length of a caller's turn, and of a judgement."""

CALLER = """You play a person who calls a voice assistant. Stay in this role. You never help the assistant.
{persona}
Your goal: {goal}
Reply with your next words only: one or two short sentences, as people speak on the phone.
As soon as you have reached your goal, or see that you cannot, reply with {hang_up} only."""
FIRST = "(The call is connected. Say your first words.)"
SILENT = "(The assistant said nothing.)"

JUDGE = """You check what a voice assistant did in a conversation. You receive the conversation and a requirement.
Reply with YES if the conversation meets the requirement, otherwise with NO. Then give the reason in one sentence."""


def language_model(form: str, key_file: str | None) -> EngineSpec:
    """Return a deployment that only writes. ``form`` is a form of ``--thinker``. Raises ConfigError."""
    spec = deployment(parts=Parts(form, key_file))
    thinker = tuple(stage for stage in spec.stages if stage.name == "thinker")
    hosts = tuple(worker for worker in spec.workers if worker.stages == ("thinker",))
    return dataclasses.replace(spec, stages=thinker, workers=hosts)


async def next_words(source: Answerer, persona: Persona, said: Sequence[str], heard: Sequence[str]) -> str | None:
    """Return what the caller says next; None if the caller hangs up.

    Args:
        source: The language model.
        persona: The caller's role.
        said: The caller's words in each turn so far.
        heard: The answer to each of them.

    Raises:
        EngineError: The language model does not answer.
    """
    system = CALLER.format(persona=persona.persona, goal=persona.goal, hang_up=HANG_UP)
    messages = [("system", system), ("user", FIRST)]
    for words, answered in zip(said, heard, strict=True):
        messages += [("assistant", words), ("user", answered or SILENT)]
    words = await _written(source, messages)
    return None if not words or HANG_UP in words.upper() else words


async def judged(source: Answerer, requirement: str, records: Sequence[TurnRecord]) -> Check:
    """Return the judgement of a requirement. Raises EngineError."""
    lines = [line for record in records for line in (f"Caller: {record.label}", f"Assistant: {record.text or SILENT}")]
    question = "\n".join([*lines, "", f"Requirement: {requirement}"])
    verdict = await _written(source, [("system", JUDGE), ("user", question)])
    return Check(f"judge {requirement!r}", verdict.upper().lstrip("*# ").startswith("YES"), verdict)


async def _written(source: Answerer, messages: Sequence[tuple[str, str]]) -> str:
    request = Request(
        id=new_id("llm"),
        session=new_id("sess"),
        messages=tuple(Message(role, (TextPart(text),)) for role, text in messages),  # pyright: ignore[reportArgumentType]
        wants=IN_WRITING,
        max_text_tokens=MAX_TOKENS,
    )
    result = ReceivedAnswer()
    await answer(source, request, Nowhere(), Show(), result)
    return result.text.strip()
