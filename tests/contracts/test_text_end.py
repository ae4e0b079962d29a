"""How far a voice is in its text: what the family that can only estimate it says, where another one knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.bench.engines import TEXTS
from app.commands.deployment import deployment
from engine import Engine, Request
from engine.chunk import Audio
from engine.worker.talker.talker_state import estimated

ASSISTANT = Path(__file__).parents[2] / "engine" / "training" / "nano" / "eval" / "assistant.txt"
FRAME_S = 0.04


async def known(texts: list[str]) -> list[list[int]]:
    """Of each text, how many characters nano has spoken after each of its codec frames."""
    found: list[list[int]] = []
    async with Engine(deployment("nano")) as engine:
        for i, text in enumerate(texts):
            ends: list[int] = []
            asked = Request(id=f"{i}", session=f"{i}", messages=(), say=text)
            async with engine.open(asked) as chunks:
                async for chunk in chunks:
                    ends += [end for _, end in chunk.marks] if isinstance(chunk, Audio) else []
            found.append(ends)
    return found


def errors(texts: list[str], truth: list[list[int]], estimate: Callable[[float], int]) -> np.ndarray:
    """Characters by which the estimate is ahead, after each frame of each text."""
    return np.array(
        [
            min(len(text), estimate(n * FRAME_S)) - end
            for text, ends in zip(texts, truth, strict=True)
            for n, end in enumerate(ends, start=1)
        ]
    )


@pytest.mark.timeout(300)
async def test_the_estimate_is_near_where_the_truth_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [*TEXTS, *ASSISTANT.read_text(encoding="utf-8").splitlines()[:8]]
    truth = await known(texts)
    off = errors(texts, truth, estimated)
    middle, most = np.percentile(np.abs(off), [50, 95])
    with capsys.disabled():
        print(
            f"\nestimated place in the text, {len(texts)} texts, {len(off)} frames: {middle:.0f} characters off at the "
            f"median, {most:.0f} at the 95th percentile, {np.mean(off < 0):.0%} of them behind"
        )
    assert middle <= 4
    assert most <= 12
    hasty = np.abs(errors(texts, truth, lambda seconds: estimated(seconds * 1.5)))  # the negative control
    assert np.percentile(hasty, 95) > 12
