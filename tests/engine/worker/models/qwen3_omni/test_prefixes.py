"""What was computed for a session is kept for its next request, and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine import Engine
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.nn.slots import KvSlots
from tests.engine.worker.models.qwen3_omni.cases import CLIP, PICTURE, SHORT, SYSTEM, TONE, Folder
from tests.engine.worker.models.qwen3_omni.counted import Counted
from tests.oracles.qwen3_omni import Turn, Video
from tests.oracles.talk import Said, ask, request, spec


def talk(turns: int) -> list[Turn]:
    """A conversation whose user shows, speaks and writes in turn."""
    said: list[Turn] = [SYSTEM]
    for i in range(turns):
        said.append(("user", [("What is this?", TONE, PICTURE, Video(CLIP[:2], 2.0, SHORT))[i % 4], f"Turn {i}."]))
        said.append(("assistant", [300 + i, 12, 390]))
    return said[:-1]


async def test_a_sessions_next_turn_computes_only_what_is_new(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    async with Engine(spec(checkpoint("plain"), piece=64)) as engine:
        costs: dict[str, list[tuple[int, int]]] = {"alone": [], "s": []}
        said: dict[str, list[Said]] = {"alone": [], "s": []}
        for session in costs:
            for n in range(1, 6):
                name = session if session == "s" else f"alone-{n}"
                said[session].append(await ask(engine, request(f"{session}{n}", talk(n), 3, 4, session=name)))
                costs[session].append(counted.taken())
        prefixes = counted.stages[0].prefixes
        assert 0 < prefixes.found < prefixes.asked
        assert prefixes.size <= prefixes.budget
    for one, other in zip(said["alone"], said["s"], strict=True):
        assert (one.prompt, one.ids, one.codes.tolist()) == (other.prompt, other.ids, other.codes.tolist())
    assert costs["s"][0] == costs["alone"][0], "a first turn is all new"
    assert costs["s"][4][0] < costs["alone"][4][0] / 3, costs
    assert [encoded for _, encoded in costs["s"]] == [0, 1, 1, 2, 0], "each thing is encoded once, in its turn"
    assert [encoded for _, encoded in costs["alone"]] == [0, 1, 2, 2, 2]


async def test_nothing_is_kept_while_the_first_sound_is_waited_for(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of a long conversation take as long as a frame: they are made behind the first one."""
    done: list[str] = []
    copy, first = KvSlots.copy, Code2Wav.step

    def copying(*given: Any) -> Any:
        done.append("kept")
        return copy(*given)

    def sounding(*given: Any) -> Any:
        done.append("sound")
        return first(*given)

    monkeypatch.setattr(KvSlots, "copy", copying)
    monkeypatch.setattr(Code2Wav, "step", sounding)
    async with Engine(spec(checkpoint("plain"))) as engine:
        done.clear()
        await ask(engine, request("1", talk(1), 6, 6, session="s"))
    assert done[0] == "sound"
    assert done.count("kept") == 3, "the prompt and the answer by the thinker, the user's turns by the talker"


@pytest.mark.fault("S5.2")
async def test_another_sound_or_another_past_is_not_taken_for_what_is_known(checkpoint: Folder) -> None:
    turns: list[Turn] = [SYSTEM, ("user", [TONE, "What?"]), ("assistant", [77, 400]), ("user", ["And?"])]
    other: list[Turn] = [SYSTEM, ("user", [TONE[::-1].copy(), "What?"]), ("assistant", [77, 400]), ("user", ["And?"])]
    cut: list[Turn] = [*turns[:2], ("assistant", [77]), ("user", ["And?"])]
    async with Engine(spec(checkpoint("plain"))) as engine:
        for i, one in enumerate((turns[:2], turns, other, cut, turns)):
            alone = await ask(engine, request(f"alone{i}", one, 4, 5))
            again = await ask(engine, request(f"again{i}", one, 4, 5, session="s"))
            assert (again.ids, again.codes.tolist()) == (alone.ids, alone.codes.tolist()), i


async def test_a_session_that_is_evicted_between_its_turns_is_computed_again_and_says_the_same(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    async with Engine(spec(checkpoint("plain"), remember_mb=0.4)) as engine:
        said: dict[str, list[Said]] = {"a": [], "b": []}
        for n in (1, 2, 3):
            for session in said:  # each drives out the other
                said[session].append(await ask(engine, request(f"{session}{n}", talk(n), 3, 4, session=session)))
        prefixes = counted.stages[0].prefixes
        assert prefixes.evicted > 0
        assert prefixes.size <= prefixes.budget
        alone = [await ask(engine, request(f"alone{n}", talk(n), 3, 4)) for n in (1, 2, 3)]
    for one, other, third in zip(said["a"], said["b"], alone, strict=True):
        assert one.ids == other.ids == third.ids
        assert one.codes.tolist() == other.codes.tolist() == third.codes.tolist()


async def test_equal_words_about_another_sound_share_nothing_behind_it_and_sessions_nothing_at_all(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    turns: list[Turn] = [SYSTEM, ("user", [TONE, "What is this?"])]
    other: list[Turn] = [SYSTEM, ("user", [TONE // 2, "What is this?"])]
    async with Engine(spec(checkpoint("plain"))) as engine:
        costs: list[int] = []
        for session, asked in (("a", turns), ("a", turns), ("a", other), ("b", turns)):
            before = counted.thought
            said = await ask(engine, request(f"{len(costs)}", asked, 1, 3, session=session))
            costs.append(counted.thought - before)
        prefixes = counted.stages[0].prefixes
    whole = len(said.prompt)
    assert costs[0] == costs[3] == whole, "another session computes all of it"
    assert costs[1] == 1, "the same again: the last row, for its logits"
    assert costs[2] == whole - said.prompt.index(counted.stages[0].source.marks.audio), "all from the sound on"
    assert prefixes.hits == 2


async def test_nothing_is_kept_where_there_is_no_room(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    bare = spec(checkpoint("plain"))
    async with Engine(replace(bare, options={**bare.options, "remember_mb": 0})) as engine:
        for id in "ab":
            await ask(engine, request(id, talk(2), 3, 3, session="s"))
        assert counted.stages[0].prefixes.found == counted.stages[0].prefixes.size == 0
