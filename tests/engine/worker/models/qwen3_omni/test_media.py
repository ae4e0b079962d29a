"""Sounds, as the reference hears them, and what is kept of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine import AudioPart
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.omni import media
from engine.worker.omni.block import Block
from engine.worker.omni.prompter import Prompter
from engine.worker.stage import StageConfig
from tests.engine.worker.models.qwen3_omni.cases import TONE, Folder, Reference


@pytest.mark.parametrize("shorter", [0, 1, 100, 399, 400, 5000])
def test_a_sounds_features_are_those_it_has_beside_longer_ones(
    shorter: int, checkpoint: Folder, oracle: Reference
) -> None:
    media_processor = Prompter(Qwen3OmniSource(StageConfig(checkpoint("plain")))).media_processor
    sounds = [TONE, TONE[: len(TONE) - shorter], TONE[:7000]]
    expected = oracle("plain").inputs([("user", sounds)])
    for _ in range(2):
        blocks = media_processor.blocks([AudioPart(one) for one in sounds])
        for i, (block,) in enumerate(blocks):
            mel = expected["input_features"][i][:, expected["feature_attention_mask"][i].bool()]
            assert torch.equal(block.mel, mel), i  # type: ignore[arg-type]


def test_features_that_are_kept_stay_within_their_bytes(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    media_processor = Prompter(Qwen3OmniSource(StageConfig(checkpoint("plain")))).media_processor
    monkeypatch.setattr(media, "KNOWN_BYTES", 300_000)
    for i in range(10):
        media_processor.blocks([AudioPart(TONE + np.int16(i))])
        assert media_processor._held == sum(block.size for (block,) in media_processor._known.values()) <= 300_000
    assert len(media_processor._known) == 3


@pytest.mark.parametrize(
    ("block", "behind", "as_the_talker_counts"),
    [
        (Block(0, sounds=2, grid=(1, 1, 9), mixed=True), 3, 12),  # the sound, though the picture is wider than it lasts
        (Block(0, sounds=2, grid=(3, 1, 1), times=(0.0, 5.0, 10.0), mixed=True), 12, 6),  # the last picture
        (Block(0, sounds=4), 5, 5),
    ],
)
def test_positions_go_on_from_the_part_of_a_video_that_comes_last(
    checkpoint: Folder, block: Block, behind: int, as_the_talker_counts: int
) -> None:
    source = Qwen3OmniSource(StageConfig(checkpoint("plain")))
    rows = [source.marks.video if at < block.cells else source.marks.audio for at in block.order.tolist()]
    for positions, expected in ((source.positions, behind), (source.talker_feed.positions, as_the_talker_counts)):
        found = positions([1, *rows, 2], [block])
        assert found.shape == (3, block.num_positions + 2)
        assert found[:, -1].tolist() == [expected] * 3
