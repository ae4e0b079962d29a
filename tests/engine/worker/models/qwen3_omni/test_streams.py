"""Many answers at once, and one that is left: none disturbs another; sound leaves before the text is complete."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import numpy as np
import pytest

from engine import Engine, Sampling
from engine.core import IN_WRITING
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.slots import Batch
from tests.engine.held import held_per_request
from tests.engine.worker.models.qwen3_omni.cases import PROMPTS, Folder
from tests.oracles.talk import Said, ask, request, spec


async def test_sixteen_interleaved_answers_are_those_they_would_be_alone(checkpoint: Folder) -> None:
    titles = list(PROMPTS)
    requests = [
        request(f"{i}", PROMPTS[titles[i % len(titles)]], tokens=2 + i % 4, frames=3 + i % 5, voice=voice, sampling=how)
        for i, (voice, how) in enumerate(
            (("ethan", "chelsie", "aiden")[i % 3], Sampling(greedy=i % 2 == 0, temperature=1.0, seed=i))
            for i in range(16)
        )
    ]
    async with Engine(spec(checkpoint("plain"), slots=16, piece=32)) as engine:
        alone = [await ask(engine, one) for one in requests]
        again = [msgspec.structs.replace(one, id=f"{one.id}-again") for one in requests]
        together = await asyncio.gather(*(ask(engine, one) for one in again))
        assert all(stage["leased"] == 0 for stage in engine.stats().values())
    for one, other in zip(alone, together, strict=True):
        assert one.ids == other.ids
        assert one.codes.tolist() == other.codes.tolist()
        assert one.wave.shape == other.wave.shape
        assert np.abs(one.wave - other.wave).max() <= 1e-4
    assert len({tuple(one.ids) for one in alone}) > 10, "different prompts and seeds give different answers"


async def test_what_came_together_is_prefilled_together(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of several requests are one forward of the thinker and one of the talker."""
    batches: dict[TransformerDecoder, list[list[int]]] = {}
    append = TransformerDecoder.append

    def noting(decoder: TransformerDecoder, batch: Batch, *more: Any) -> Any:
        batches.setdefault(decoder, []).append(batch.counts)
        return append(decoder, batch, *more)

    monkeypatch.setattr(TransformerDecoder, "append", noting)
    turns = [PROMPTS[title] for title in ("text", "bare", "history", "text")]
    async with Engine(spec(checkpoint("plain"), slots=4)) as engine:
        await asyncio.gather(*(ask(engine, request(f"{i}", one, 2, 2)) for i, one in enumerate(turns)))
    assert len(batches) == 2, "thinker and talker"
    for counts in batches.values():
        assert sum(count > 9 for count in max(counts, key=sum)) == 4


async def test_a_seed_decides_and_another_one_decides_otherwise(checkpoint: Folder) -> None:
    turns = PROMPTS["text"]

    async def sampled(engine: Engine, id: str, seed: int) -> Said:
        return await ask(engine, request(id, turns, 6, 6, sampling=Sampling(seed=seed, temperature=1.0)))

    async with Engine(spec(checkpoint("plain"))) as engine:
        one, same, other = [await sampled(engine, f"{i}", seed) for i, seed in enumerate((5, 5, 6))]
    assert (one.ids, one.codes.tolist()) == (same.ids, same.codes.tolist())
    assert one.ids != other.ids
    assert one.codes.tolist() != other.codes.tolist()


async def test_a_text_answer_leases_no_talker(checkpoint: Folder) -> None:
    async with Engine(spec(checkpoint("plain"))) as engine:
        leased: list[int] = []
        async with engine.open(request("t", PROMPTS["text"], wants=IN_WRITING)) as chunks:
            async for chunk in chunks:
                assert chunk.kind in ("text", "usage")
                leased.append(engine.stats()["talker"]["leased"] + engine.stats()["code2wav"]["leased"])
    assert leased
    assert not any(leased)


@pytest.mark.seed("A4.1")
async def test_sound_leaves_before_the_text_is_complete(checkpoint: Folder) -> None:
    async with Engine(spec(checkpoint("plain"))) as engine:
        said = await ask(engine, request("t", PROMPTS["text"], tokens=40, frames=40))
    first, last = said.order.index("audio"), len(said.order) - said.order[::-1].index("text")
    assert first < last
    assert said.order.index("usage") > first


@pytest.mark.parametrize("after", ["nothing", "text", "audio"])
async def test_an_answer_that_is_left_leaves_no_trace(after: str, checkpoint: Folder) -> None:
    turns, other = PROMPTS["text"], PROMPTS["media in several turns"]
    async with Engine(spec(checkpoint("plain"), slots=1, piece=8)) as engine:
        before = await ask(engine, request("before", turns))
        async with engine.open(request("left", other, 200, 200)) as chunks:
            async for chunk in chunks:
                if after in (chunk.kind, "nothing"):
                    break
        again = await ask(engine, request("again", turns))
        assert all(stage["leased"] == 0 for stage in engine.stats().values())
    assert (again.ids, again.codes.tolist()) == (before.ids, before.codes.tolist())
    # The chunks fall elsewhere, and sums round elsewhere: the tolerance is the reference's.
    assert np.abs(again.wave - before.wave).max() <= 1e-4


@pytest.mark.seed("A2.20")
async def test_nothing_is_kept_of_answers_that_are_over(checkpoint: Folder) -> None:
    """What a session's next request may need is bounded by itself, so the session is one."""
    async with Engine(spec(checkpoint("plain"))) as engine:

        async def one(i: int) -> None:
            await ask(engine, request(f"{i}", PROMPTS["text"], 3, 3, session="one"))

        assert await held_per_request(one) < 20_000
