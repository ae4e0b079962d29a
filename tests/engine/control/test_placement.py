"""The names of workers that join by themselves: kept while they are there, and never given out without end."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from engine import RequestError, WorkerSpec
from engine.control import placement
from engine.control.join_listener import JoiningWorker
from engine.control.placement import JoiningWorkers, Placement
from engine.ipc import messages


async def test_where_many_have_joined_who_comes_has_the_name_of_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "MOST_JOINING", 3)
    there: dict[str, Placement] = {}
    joining = JoiningWorkers((WorkerSpec(stages=("talker",)),), there)

    def joins(key: str) -> str:
        worker = JoiningWorker(messages.Join(key, ("talker",), "cpu", ""), cast("asyncio.Transport", None))
        found = joining.placement(worker)
        there[found.name] = found
        return found.name

    assert [joins(key) for key in ("a", "b", "c")] == ["guest0", "guest1", "guest2"]
    with pytest.raises(RequestError, match="the maximum of 3 joined workers is reached"):
        joins("d")
    assert joins("b") == "guest1", "it comes back to its place"
    del there["guest1"]
    assert joins("b") == "guest1"
    del there["guest1"], there["guest2"]
    assert joins("d") == "guest1", "of those who are gone, the first"
    assert [joins(key) for key in ("e", "d")] == ["guest2", "guest1"]
    with pytest.raises(RequestError):
        joins("b")
