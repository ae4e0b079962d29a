"""What is steady is turned down, a voice is not, and no sample is lost or moved."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine.core import Pcm
from engine.worker.models.nano.hush import Hush, noise_of

RATE = 16000


def hum(seconds: float, level: float, seed: int = 0) -> Pcm:
    return np.random.default_rng(seed).normal(0, level, int(seconds * RATE)).astype(np.int16)


def syllables(seconds: float) -> Pcm:
    """Bursts of a voiced sound, four a second, half of the time."""
    t = np.arange(int(seconds * RATE)) / RATE
    voiced = sum(np.sin(2 * np.pi * 120 * n * t) / n for n in range(1, 20))
    return (2500 * voiced * (t * 4 % 1 < 0.5)).astype(np.int16)


def hushed(pcm: Pcm, noise: np.ndarray, cuts: int = 1) -> Pcm:
    hush = Hush(noise)
    at = sorted(random.Random(cuts).sample(range(len(pcm)), cuts - 1))
    return np.concatenate([*(hush.feed(piece) for piece in np.split(pcm, at)), hush.end()])


@pytest.mark.parametrize("length", [0, 1, 100, 384, 511, 512, 513, 20_000])
def test_without_noise_every_sample_comes_back(length: int) -> None:
    pcm = hum(2, 3000)[:length]
    back = hushed(pcm, np.zeros(257, np.float32))
    assert len(back) == length
    assert np.abs(back.astype(int) - pcm).max(initial=0) <= 1


@pytest.mark.parametrize("cuts", [2, 17, 300])
def test_how_the_samples_come_does_not_matter(cuts: int) -> None:
    pcm = syllables(1.5) + hum(1.5, 400)
    assert (hushed(pcm, noise_of(pcm), cuts) == hushed(pcm, noise_of(pcm))).all()


def test_noise_is_turned_down_and_the_voice_is_not() -> None:
    voice, noise = syllables(3), hum(3, 400)
    mixed = voice + noise
    quiet, loud = voice == 0, voice != 0
    settled = np.arange(len(mixed)) > RATE // 2
    back = hushed(mixed, noise_of(mixed)).astype(float)
    assert level(back[quiet & settled]) < level(mixed[quiet & settled]) - 8
    assert abs(level(back[loud & settled]) - level(mixed[loud & settled])) < 1
    assert level((back - voice)[settled]) < level(noise[settled]) - 4


def test_noise_that_is_not_there_is_not_found() -> None:
    assert noise_of(hum(0.1, 500)).max() == 0
    assert noise_of(syllables(2)).max() < noise_of(syllables(2) + hum(2, 100)).min()


def level(samples: np.ndarray) -> float:
    return 10 * np.log10(np.square(samples.astype(float)).mean() + 1e-9)
