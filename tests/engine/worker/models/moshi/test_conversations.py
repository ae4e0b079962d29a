"""Moshi in the step loop: a session is the same alone and among others that join and leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from engine.chunk import Audio, Text
from engine.core import Pcm
from engine.worker.models.moshi.stage import MoshiDuplex
from engine.worker.stage import StageConfig
from tests.engine.conversations import Clock, Conversations, conversing
from tests.engine.fakes import only
from tests.oracles.tiny_moshi import Sizes


def noise(seed: int, seconds: float) -> Pcm:
    samples = round(seconds * 50) * 480
    return np.random.default_rng(seed).integers(-8000, 8000, samples).astype(np.int16)


async def talk(folder: Path, others: bool) -> tuple[list[Audio], list[Text]]:
    """One session of two seconds, alone or among others."""
    stage = MoshiDuplex(StageConfig(folder, slots=3))
    stage.info = msgspec.structs.replace(stage.info, name="duplex")
    clock = Clock()
    async with conversing(stage, clock=clock) as conversations:
        if others:
            conversations.join("first", noise(1, 3))
        conversations.join("r", noise(2, 3))
        await _others_come_and_go(conversations, others)
        chunks = conversations.chunks("r")
    return only(Audio, chunks), only(Text, chunks)


async def _others_come_and_go(conversations: Conversations, others: bool) -> None:
    await conversations.last(0.6)
    if others:
        conversations.join("second", noise(3, 3))
    await conversations.last(0.6)
    if others:
        conversations.leave("first")
    await conversations.last(0.4)
    if others:
        conversations.join("third", noise(4, 3))
    await conversations.last(0.5)


@pytest.mark.slow
async def test_a_session_is_the_same_alone_and_among_others(checkpoint: Callable[[Sizes], Path]) -> None:
    folder = checkpoint(Sizes(seed=9))
    sounds, texts = await talk(folder, others=False)
    others_sounds, others_texts = await talk(folder, others=True)
    assert len(sounds) > 20
    assert texts
    assert others_texts == texts
    assert [one.frame for one in others_sounds] == [one.frame for one in sounds]
    for one, other in zip(others_sounds, sounds, strict=True):
        np.testing.assert_allclose(one.wave, other.wave, rtol=0, atol=1e-4)
