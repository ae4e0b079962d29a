"""A caller whose connection is lost."""

from __future__ import annotations

from typing import Any

import pytest

from app.client import ClientError, Events
from app.simulation.caller import Caller
from app.simulation.listener import CallListener
from app.simulation.scenario import CallerTurn, Expectations
from app.simulation.speech import CallerSpeech


class NoClient:
    """A client that sends nothing."""

    async def send(self, type: str, **fields: Any) -> str:
        return ""


async def test_silence_after_the_connection_was_lost_is_no_success() -> None:
    client: Any = NoClient()
    caller = Caller(client, CallListener({}), CallerSpeech(None, None))
    events = Events()
    events.put(None)
    await caller.follow(events)
    silence = CallerTurn(silence_s=0.01, wait_s=0, expect=Expectations(no_answer=True))
    with pytest.raises(ClientError, match="closed the connection"):
        await caller.take(silence)
