"""The language model that plays the caller and judges, with a fake model and with a server of chat completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.commands.server import Address
from app.simulation.language_model import judged, language_model, next_words
from app.simulation.listener import TurnRecord
from app.simulation.scenario import Persona, parse_scenario
from app.simulation.simulation import simulate
from engine import ModelInfo, Output, Request, Text, TextPart, Usage
from tests.app.rig import Running
from tests.engine.worker.llm.scripted import Scripted, answer, scripted, stream, words


class Chunks:
    """One answer of the fake model."""

    ledger = None
    marks_ms: dict[str, float] = {}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        self._text = text

    def played(self) -> None: ...

    async def __aiter__(self) -> AsyncIterator[Output]:
        yield Text(self._text, 0)
        yield Usage()


class FakeModel:
    """Gives the same answer to every request, and keeps the last one."""

    model = ModelInfo(name="fake")

    def __init__(self, text: str) -> None:
        self._text = text
        self.request: Request | None = None

    @asynccontextmanager
    async def open(self, request: Request) -> AsyncGenerator[Any]:
        self.request = request
        yield Chunks(self._text)

    @property
    def prompt(self) -> list[tuple[str, str]]:
        assert self.request is not None
        parts = [(message.role, message.parts[0]) for message in self.request.messages]
        return [(role, part.text) for role, part in parts if isinstance(part, TextPart)]


PERSONA = Persona(goal="Book a table for two.", persona="You are in a hurry.")


async def test_the_caller_sees_the_conversation_from_their_side() -> None:
    model = FakeModel(" A table for two, please. ")
    assert await next_words(model, PERSONA, ["Hello."], ["Hi, how can I help?"]) == "A table for two, please."
    (system, *turns) = model.prompt
    assert "Book a table for two." in system[1]
    assert "You are in a hurry." in system[1]
    assert [role for role, _ in turns] == ["user", "assistant", "user"]
    assert [text for _, text in turns[1:]] == ["Hello.", "Hi, how can I help?"]


@pytest.mark.parametrize("reply", ["[HANG UP]", "Bye! [hang up]", ""])
async def test_the_caller_hangs_up(reply: str) -> None:
    assert await next_words(FakeModel(reply), PERSONA, [], []) is None


@pytest.mark.parametrize(
    ("reply", "passed"), [("YES. It is polite.", True), ("**Yes**", True), ("No, it is not.", False), ("", False)]
)
async def test_a_judgement_is_yes_or_no(reply: str, passed: bool) -> None:
    model = FakeModel(reply)
    check = await judged(model, "It is polite.", [TurnRecord("Hello.", 0.0)])
    assert (check.passed, check.detail) == (passed, reply)
    assert (
        "Caller: Hello.\nAssistant: (The assistant said nothing.)\n\nRequirement: It is polite." in model.prompt[1][1]
    )


def test_a_form_becomes_a_deployment_that_only_writes() -> None:
    spec = language_model("openai:m@http://127.0.0.1:1/v1", None)
    assert [stage.use for stage in spec.stages] == ["llm.openai"]


def saying(*texts: str) -> AbstractAsyncContextManager[Scripted]:
    """A server of chat completions that gives these answers."""
    return scripted(*(stream(*words(text)) for text in texts), models=answer(200, {"data": [{"id": "m"}]}))


@pytest.mark.slow
async def test_a_model_calls_and_judges(server: Running, tmp_path: Path) -> None:
    """It types one turn, hangs up, and judges the whole call."""
    async with saying("say: one", "[HANG UP]", "NO. Two was expected.") as llm:
        text = f"""
name: caller
llm: openai:m@{llm.url}
caller: {{goal: Hear a number., types: true, max_turns: 3}}
expect: {{contains: one, judge: The assistant says two.}}
"""
        (run,) = await simulate(parse_scenario(text, tmp_path), Address(server.http))
    assert [turn.record.label for turn in run.turns] == ["types: say: one"]
    assert [(check.name, check.passed) for check in run.whole] == [
        ("contains 'one'", True),
        ("judge 'The assistant says two.'", False),
    ]


@pytest.mark.slow
async def test_a_model_that_never_hangs_up_is_stopped(server: Running, tmp_path: Path) -> None:
    async with saying("say: one") as llm:
        text = f"name: caller\nllm: openai:m@{llm.url}\ncaller: {{goal: x, types: true, max_turns: 2}}\n"
        (run,) = await simulate(parse_scenario(text, tmp_path), Address(server.http))
    assert (len(run.turns), run.failed) == (2, [])
