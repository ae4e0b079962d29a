"""What is steady is turned down, a voice is not, and no sample is lost or moved."""

from __future__ import annotations

import random

import numpy as np
import onnxruntime as ort
import pytest

from engine.core import Pcm
from engine.training.nano.conditions import with_noise
from engine.training.nano.eval_ears import SPOKEN, read
from engine.worker.models.nano.hush import Hush, Voices, Wiener, noise_of, through
from engine.worker.models.nano.voice import session
from engine.worker.stage import StageConfig

RATE = 16000
SILENCE = np.zeros(257, np.float32)


@pytest.fixture(scope="module")
def net() -> ort.InferenceSession:
    return session(StageConfig(), "ears/hush")


@pytest.fixture(scope="module")
def spoken() -> Pcm:
    """Three people who say a request each."""
    recordings = read(SPOKEN)
    return np.concatenate([next(r.pcm for r in recordings if r.voice == voice) for voice in ("slt", "awb", "kal16")])


def hiss(seconds: float, level: float, seed: int = 0) -> Pcm:
    return np.random.default_rng(seed).normal(0, level, int(seconds * RATE)).astype(np.int16)


def hushed(net: ort.InferenceSession, pcm: Pcm, noise: np.ndarray, cuts: int = 1) -> Pcm:
    hush = Hush(net, noise, noise_of(through(Voices(net, noise), pcm)) if noise.any() else noise)
    at = sorted(random.Random(cuts).sample(range(len(pcm)), cuts - 1))
    return np.concatenate([*(hush.feed(piece) for piece in np.split(pcm, at)), hush.end()])


@pytest.mark.parametrize("length", [0, 1, 100, 384, 511, 512, 513, 20_000])
def test_without_noise_every_sample_comes_back(net: ort.InferenceSession, length: int) -> None:
    pcm = hiss(2, 3000)[:length]
    back = hushed(net, pcm, SILENCE)
    assert len(back) == length
    assert np.abs(back.astype(int) - pcm).max(initial=0) <= 1


@pytest.mark.parametrize("cuts", [2, 17, 300])
def test_how_the_samples_come_does_not_matter(net: ort.InferenceSession, spoken: Pcm, cuts: int) -> None:
    pcm = with_noise(spoken[: 2 * RATE], 10)
    assert (hushed(net, pcm, noise_of(pcm), cuts) == hushed(net, pcm, noise_of(pcm))).all()


def test_noise_is_turned_down_and_voices_are_not(net: ort.InferenceSession, spoken: Pcm) -> None:
    mixed = with_noise(spoken, 10)
    loud, quiet = frames_of(spoken)
    back = hushed(net, mixed, noise_of(mixed))
    assert level(back, quiet) < level(mixed, quiet) - 10
    assert abs(level(back, loud) - level(mixed, loud)) < 1
    beneath = level(back.astype(int) - spoken, loud)  # what is wrong where a voice speaks: noise left, voice taken
    assert beneath < level(mixed.astype(int) - spoken, loud) - 3


def test_a_clean_voice_stays_as_it_is(net: ort.InferenceSession, spoken: Pcm) -> None:
    loud, _ = frames_of(spoken)
    back = hushed(net, spoken, noise_of(spoken))
    assert level(back.astype(int) - spoken, loud) < level(spoken, loud) - 20


def test_the_net_takes_what_is_not_steady_too(net: ort.InferenceSession, spoken: Pcm) -> None:
    """Noise that swells and falls by 12 dB: the filter alone, which knows but its lower edge, leaves more of it."""
    swell = 10 ** (6 * np.sin(2 * np.pi * np.arange(len(spoken)) / RATE) / 20)
    mixed = np.clip(spoken + hiss(len(spoken) / RATE, 150) * swell, -32768, 32767).astype(np.int16)
    _, quiet = frames_of(spoken)
    alone = through(Wiener(noise_of(mixed)), mixed)
    assert level(hushed(net, mixed, noise_of(mixed)), quiet) < level(alone, quiet) - 2


def test_how_loud_it_is_does_not_matter(net: ort.InferenceSession, spoken: Pcm) -> None:
    mixed = with_noise(spoken, 10)
    softer = (mixed / 4).astype(np.int16)
    back = hushed(net, mixed, noise_of(mixed)) / 4
    everywhere = np.ones(len(mixed), bool)
    assert level(back - hushed(net, softer, noise_of(softer)), everywhere) < level(back, everywhere) - 25


def test_noise_that_is_not_there_is_not_found(spoken: Pcm) -> None:
    assert noise_of(hiss(0.1, 500)).max() == 0
    assert noise_of(spoken).max() < noise_of(with_noise(spoken, 0)).min()


def frames_of(spoken: Pcm) -> tuple[np.ndarray, np.ndarray]:
    """Which samples lie in loud frames, and which in quiet ones, of 32 ms."""
    power = np.square(spoken[: len(spoken) // 512 * 512].reshape(-1, 512).astype(float)).mean(1)
    masks = (np.repeat(mask, 512) for mask in (power > np.quantile(power, 0.7), power < np.quantile(power, 0.15)))
    loud, quiet = (np.concatenate([mask, np.zeros(len(spoken) - len(mask), bool)]) for mask in masks)
    return loud, quiet


def level(samples: np.ndarray, where: np.ndarray) -> float:
    return 10 * np.log10(np.square(samples[where].astype(float)).mean() + 1e-9)
