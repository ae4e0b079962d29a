"""Drives the networks without a stage, frame by frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.worker.models.moshi.net import MoshiNet
from engine.worker.models.moshi.source import MoshiSource
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.stage import StageConfig

FRAME = 1920
GREEDY = SamplingParams(0, greedy=True)


def network(folder: Path, slots: int = 4, **options: Any) -> MoshiNet:
    return MoshiSource(StageConfig(folder, slots=slots, options=options)).network()


def sound(frames: int, seed: int = 0) -> NDArray[np.float32]:
    """Return frames [frames, samples] of noise whose loudness changes, so that codes vary."""
    draw = np.random.default_rng(seed)
    loud = np.repeat(draw.uniform(0, 0.5, frames * 4), FRAME // 4)
    return (draw.standard_normal(frames * FRAME) * loud).astype(np.float32).reshape(frames, FRAME)


@dataclass(slots=True)
class Said:
    """What a session said: tokens drawn at each position [1 + own], and for each frame its text and sound."""

    drawn: list[NDArray[np.int64]] = field(default_factory=list[NDArray[np.int64]])
    texts: list[int] = field(default_factory=list[int])
    waves: list[NDArray[np.float32]] = field(default_factory=list[NDArray[np.float32]])

    @property
    def tokens(self) -> NDArray[np.int64]:
        return np.stack(self.drawn)

    @property
    def wave(self) -> NDArray[np.float32]:
        return np.concatenate(self.waves)


def step(
    net: MoshiNet, frames: Mapping[int, NDArray[np.float32]], said: Mapping[int, Said], params: SamplingParams = GREEDY
) -> None:
    """Step some slots with a frame each, and note what they say."""
    slots: Sequence[int] = [*frames]
    texts, waves = net.step(np.stack([*frames.values()]), slots, [params] * len(slots))
    ring, own = net.lm.tokens.shape[2], 1 + net.lm.sizes.own
    for slot, text, wave in zip(slots, texts, waves, strict=True):
        position = net.sessions[slot].position
        said[slot].drawn.append(net.lm.tokens[slot, :own, position % ring].numpy().copy())
        said[slot].texts.append(int(text))
        said[slot].waves.append(wave.copy())


def alone(net: MoshiNet, frames: NDArray[np.float32], slot: int = 0, params: SamplingParams = GREEDY) -> Said:
    """Hold a session in one slot."""
    net.open(slot)
    said = Said()
    for frame in frames:
        step(net, {slot: frame}, {slot: said}, params)
    return said
