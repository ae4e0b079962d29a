"""Long conversations and hesitant users, against a real server with scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from app.bench import subject
from app.bench.client import Turn
from app.bench.target import Target
from benchmarks import endurance

pytestmark = pytest.mark.slow  # servers are started


def test_long_conversations_against_a_server(scripted: subject.Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endurance, "TURNS", 6)
    figure = asyncio.run(endurance.long_conversations(Target(scripted.url), 1))
    assert figure.value is not None, figure


@pytest.mark.parametrize(("slower_s", "passes"), [(0.0, True), (0.02, False), (None, False)])
async def test_a_conversation_that_grows_slower_is_told(
    slower_s: float | None, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful:
        """A conversation whose every turn takes longer than the one before; None: whose later turns say nothing."""

        turns = 0

        async def typed(self, text: str) -> Turn:
            turn, self.turns = Turn(1.0, status="completed"), self.turns + 1
            if slower_s is not None or self.turns == 1:
                turn.player.receive(1.1 + (slower_s or 0) * self.turns, np.full(2400, 0.1, np.float32))
            return turn

    @asynccontextmanager
    async def forgetful(target: Target) -> AsyncGenerator[Any]:
        yield Forgetful()

    monkeypatch.setattr(endurance, "open_client", forgetful)
    figure = await endurance.long_conversations(Target("ws://127.0.0.1:9"), 2)
    assert figure.passed == passes, figure


async def test_an_answer_in_the_hesitation_makes_the_figure_void(
    scripted: subject.Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hasty(client: Any, said: Any) -> Turn:
        turn = Turn(1.0, status="completed")
        turn.player.receive(1.2, np.full(2400, 0.1, np.float32))
        return turn

    monkeypatch.setattr(endurance, "hear_out", hasty)
    assert not any(figure.passed for figure in await endurance.hesitant(Target(scripted.url), 2))
