"""Sessions do not depend on each other: batched as alone, whoever joins or leaves, and in a slot used before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.worker.models.moshi.source import MoshiSource
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.stage import StageConfig
from tests.engine.worker.models.moshi.driven import GREEDY, Said, alone, network, sound, step
from tests.oracles.tiny_moshi import Sizes

SIZES = Sizes(window=24, codec_window=17, seed=6)
DRAWN = SamplingParams(7)


def same(one: Said, other: Said) -> None:
    assert one.texts == other.texts
    assert one.tokens.tolist() == other.tokens.tolist()
    np.testing.assert_allclose(one.wave, other.wave, rtol=0, atol=1e-5)


@pytest.mark.parametrize("params", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_sessions_that_join_and_leave_are_as_if_alone(
    checkpoint: Callable[[Sizes], Path], params: SamplingParams
) -> None:
    net, heard = network(checkpoint(SIZES)), {slot: sound(40, slot) for slot in range(4)}
    spans = {0: range(40), 1: range(3, 20), 2: range(11, 40), 3: range(12, 13)}
    said, used = {slot: Said() for slot in spans}, dict.fromkeys(spans, 0)
    for now in range(40):
        here = [slot for slot, span in spans.items() if now in span]
        for slot in here:
            if now == spans[slot].start:
                net.open(slot)
        step(net, {slot: heard[slot][used[slot]] for slot in here}, said, params)
        for slot in here:
            used[slot] += 1
    for slot, span in spans.items():
        same(said[slot], alone(net, heard[slot][: len(span)], (slot + 1) % 4, params))


def test_a_slot_forgets_its_last_session(checkpoint: Callable[[Sizes], Path]) -> None:
    net, heard = network(checkpoint(SIZES), slots=1), sound(30)
    first = alone(net, heard)
    alone(net, sound(35, 9))
    same(alone(net, heard), first)


def test_a_session_that_ended_in_nan_leaves_nothing(checkpoint: Callable[[Sizes], Path]) -> None:
    net, heard = network(checkpoint(SIZES), slots=2), {slot: sound(30, slot) for slot in range(2)}
    expected = alone(net, heard[0])
    said = {0: Said(), 1: Said()}
    for slot in said:
        net.open(slot)
    for now in range(30):
        broken = np.full_like(heard[1][now], np.nan) if now == 5 else heard[1][now]
        step(net, {0: heard[0][now], 1: broken}, said)
    same(said[0], expected)
    same(alone(net, heard[0], slot=1), expected)


def test_another_seed_draws_others_and_the_same_seed_the_same(checkpoint: Callable[[Sizes], Path]) -> None:
    net, heard = network(checkpoint(SIZES)), sound(20)
    first = alone(net, heard, params=DRAWN)
    same(alone(net, heard, 2, DRAWN), first)
    assert alone(net, heard, params=SamplingParams(8)).tokens.tolist() != first.tokens.tolist()
    assert alone(net, heard).tokens.tolist() != first.tokens.tolist()


def test_a_shorter_context_remembers_less(checkpoint: Callable[[Sizes], Path]) -> None:
    heard = sound(40)
    long, short = (alone(network(checkpoint(SIZES), context=size), heard).tokens for size in (24, 12))
    assert long[:12].tolist() == short[:12].tolist()
    assert long.tolist() != short.tolist()


def test_rows_of_no_session_change_nothing(
    checkpoint: Callable[[Sizes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CUDA graph has more rows than sessions, and reads more of the cache. Here the same shapes run without one."""
    net, heard = network(checkpoint(SIZES)), sound(30)
    expected = alone(net, heard)
    monkeypatch.setattr(net, "_key", lambda batch, longest: (4, SIZES.window))
    same(alone(net, heard, 2), expected)


def test_in_bfloat16_a_session_is_heard(checkpoint: Callable[[Sizes], Path]) -> None:
    config = StageConfig(checkpoint(SIZES), dtype="bfloat16", slots=2)
    net = MoshiSource(config).network()
    said = alone(net, sound(20))
    assert net.lm.cache.keys.dtype == torch.bfloat16
    assert said.wave.dtype == np.float32
    assert np.abs(said.wave).max() > 0.01
    assert min(said.texts[1:]) >= 0
