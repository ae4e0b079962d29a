"""A telephone's sound, as the session gets it: an exchange that floods is cut off, and one whose line stalls is not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest

from app.limits.principal import Principal
from app.transports.disconnect import SLOW, Disconnect
from app.transports.telephone.call_control import CallControl
from app.transports.telephone.media_stream import RATE_HZ
from app.transports.telephone.phone import AHEAD_S, Phone
from tests.app.rig import running, script_spec


class Stream:
    """Brings more sound at once than a call may be ahead, of which ``made_up_s`` was not sent."""

    name, lead_s, way_s = "call", 0.1, 0.02

    def __init__(self, made_up_s: float) -> None:
        self.made_up_s = made_up_s

    async def received(self) -> AsyncGenerator[Any]:
        for _ in range(round(AHEAD_S) + 2):
            yield np.zeros(RATE_HZ, np.int16)
        yield np.empty(0, np.int16)  # it is there still


@pytest.mark.parametrize(("made_up_s", "code"), [(0.0, SLOW), (2.0, 1000)], ids=["a flood", "a line that stalls"])
async def test_only_what_an_exchange_sends_can_be_too_much(made_up_s: float, code: int) -> None:
    stream: Any = Stream(made_up_s)
    async with running(script_spec()) as server:
        phone = Phone(stream, server.service, Principal(), CallControl(True, {}))
        with pytest.raises(Disconnect) as why:
            await phone._listen()
    assert why.value.code == code
    if code == 1000:
        assert len(phone.inbox._waiting) == round(AHEAD_S) + 2, "what has no sound says nothing to the session"
