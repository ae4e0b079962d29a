"""The facts in a session's prompts: bounded, in a stable order, and changed by what happens to them meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from app.facts import FactStore, MemoryAccess, SessionMemory
from app.limits.principal import Principal
from app.settings import MemorySettings
from engine import ModelInfo
from engine.core import TokenCost

MODEL = ModelInfo(name="model", abilities=frozenset({"text", "tools"}))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[FactStore]:
    times = iter(range(1000))
    store = FactStore(MemorySettings(path=str(tmp_path / "facts.sqlite")), now=lambda: float(next(times)))
    yield store
    store.close()


def memory_of(store: FactStore, model: ModelInfo = MODEL) -> SessionMemory:
    return SessionMemory(MemoryAccess(store, Principal("ann")), model)


def lines(memory: SessionMemory) -> list[str]:
    return memory.text.splitlines()[1:]


async def test_later_facts_stay_out_of_the_prompt(store: FactStore) -> None:
    for name in ("b", "a"):
        await store.put("ann", "", name, "1")
    memory = memory_of(store)
    assert (memory.text, memory.tools) == ("", ())
    await memory.use("")
    before = memory.text
    assert lines(memory) == ["- b: 1", "- a: 1"]
    await memory.call("remember", '{"name": "c", "value": "1"}')
    assert memory.text == before
    await memory.use(None)
    assert (memory.text, memory.tools) == ("", ())


async def test_replaced_and_deleted_facts_change_in_all_sessions_of_the_user(store: FactStore) -> None:
    for user, name in (("", "a"), ("", "b"), ("u1", "a")):
        await store.put("ann", user, name, "1")
    memory, second, other = memory_of(store), memory_of(store), memory_of(store)
    await memory.use("")
    await second.use("")
    await other.use("u1")
    await memory.call("remember", '{"name": "a", "value": "2"}')
    await memory.call("forget", '{"name": "b"}')
    assert lines(memory) == lines(second) == ["- a: 2"]
    assert lines(other) == ["- a: 1"]
    await store.delete("ben")
    assert lines(other) == ["- a: 1"]
    await store.delete("ann")
    assert memory.text == other.text == ""


async def test_the_newest_facts_have_room(store: FactStore) -> None:
    for name in "abcd":
        await store.put("ann", "", name, "x" * 100)
    small = memory_of(store, ModelInfo(name="small", context=1000, cost=TokenCost(instruction=0.5)))
    await small.use("")
    assert [line[:4] for line in lines(small)] == ["- c:", "- d:"]
    assert small.tools == ()


async def test_a_fact_that_is_unknown_is_told(store: FactStore) -> None:
    memory = memory_of(store)
    await memory.use("")
    assert [tool.name for tool in memory.tools] == ["remember", "forget"]
    assert (await memory.call("forget", '{"name": "x"}')).text == "There is no fact of this name."
    assert (await memory.call("forget", "")).text.startswith("Error: The arguments of the call are invalid")
