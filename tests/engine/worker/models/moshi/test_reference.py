"""Tokens, codes and sound are those of transformers' Moshi and Mimi: tiny random checkpoints, greedy, float32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.worker.models.moshi.net import SILENT
from engine.worker.nn.sampling_params import BatchSamplingParams
from tests.engine.worker.models.moshi.driven import GREEDY, alone, network, sound
from tests.oracles.moshi import Oracle, frames_of, inputs_of
from tests.oracles.tiny_moshi import WORDS, Sizes, make_kyutai

SIZES = [
    Sizes(),
    Sizes(books=8, codes=128, codec_books=32, seed=1),
    Sizes(kv_heads=2, heads=4, width=96, layers=3, theta=500.0, seed=2),
    Sizes(window=40, codec_window=21, seed=3),
    Sizes(books=2, codes=32, depth_layers=3, depth_heads=3, depth_width=72, codec_width=48, seed=4),
    Sizes(books=6, layers=1, depth_layers=1, window=100, codec_window=250, seed=5),
]


def agrees(oracle: Oracle, folder: Path, sizes: Sizes, frames: int) -> None:
    """Hold a session with random sound, and compare it with the reference's view of the whole."""
    heard = sound(frames, sizes.seed)
    said = alone(network(folder), heard)
    drawn = said.tokens
    inputs = inputs_of(drawn, oracle.codes(heard[1:].reshape(-1)), len(WORDS), sizes.codes)
    theirs = oracle.follow(inputs, drawn)
    assert drawn[:, 0].tolist() == theirs.text.tolist()
    assert drawn[:, 1:].tolist() == theirs.codes.tolist()
    assert said.texts == [SILENT, *drawn[:-1, 0].tolist()]
    wave = oracle.wave(frames_of(drawn))
    assert not said.waves[0].any()
    np.testing.assert_allclose(said.wave[1920:], wave, rtol=0, atol=1e-4)
    assert np.abs(wave).max() > 0.01, "it would prove nothing"
    assert len(np.unique(drawn[:, 0])) > 5
    assert len(np.unique(drawn[:, 1:])) > 15


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"seed {sizes.seed}")
def test_a_session_is_what_the_reference_says_of_the_whole(
    sizes: Sizes, checkpoint: Callable[[Sizes], Path], oracle: Callable[[Sizes], Oracle]
) -> None:
    agrees(oracle(sizes), checkpoint(sizes), sizes, 60)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"seed {sizes.seed}")
def test_a_minute_is_what_the_reference_says_of_the_whole(
    sizes: Sizes, checkpoint: Callable[[Sizes], Path], oracle: Callable[[Sizes], Oracle]
) -> None:
    agrees(oracle(sizes), checkpoint(sizes), sizes, 750)


def test_the_window_is_that_of_the_references_cache(
    checkpoint: Callable[[Sizes], Path], oracle: Callable[[Sizes], Oracle]
) -> None:
    sizes, theirs = SIZES[3], oracle(SIZES[3])
    heard = sound(100, 7)
    drawn = alone(network(checkpoint(sizes)), heard).tokens
    inputs = inputs_of(drawn, theirs.codes(heard[1:].reshape(-1)), len(WORDS), sizes.codes)
    found = theirs.stepped(inputs, drawn)
    assert drawn.tolist() == np.concatenate((found.text[:, None], found.codes), 1).tolist()


def test_tokens_are_those_of_generate(checkpoint: Callable[[Sizes], Path], oracle: Callable[[Sizes], Oracle]) -> None:
    """``generate`` hears the codes of one silent frame again and again."""
    sizes, theirs, net, count = SIZES[0], oracle(SIZES[0]), network(checkpoint(SIZES[0])), 30
    blank = torch.from_numpy(theirs.codes(np.zeros(1920, np.float32)))
    found = theirs.model.generate(max_new_tokens=count, do_sample=False, return_audio_codes=True, min_new_tokens=count)
    expected = found.sequences[0, -count:].tolist(), found.audio_codes[0].T.tolist()
    net.open(0)
    params, drawn = BatchSamplingParams.of([GREEDY], torch.device("cpu")), list[np.ndarray]()
    with torch.inference_mode():
        for at in range(count):
            net.lm.step(torch.tensor([0]), torch.tensor([at]), blank, params, at + 1)
            drawn.append(net.lm.tokens[0, : 1 + sizes.books, (at + 1) % 3].numpy().copy())
    tokens = np.stack(drawn)
    assert tokens[:, 0].tolist() == expected[0]
    assert frames_of(tokens).tolist() == expected[1][: count - 1]


@pytest.mark.parametrize("sizes", [SIZES[0], SIZES[1]], ids=lambda sizes: f"seed {sizes.seed}")
def test_kyutais_format_says_the_same(sizes: Sizes, checkpoint: Callable[[Sizes], Path], tmp_path: Path) -> None:
    heard = sound(30)
    ours = alone(network(checkpoint(sizes)), heard)
    theirs = alone(network(make_kyutai(tmp_path, checkpoint(sizes))), heard)
    assert ours.tokens.tolist() == theirs.tokens.tolist()
    np.testing.assert_allclose(ours.wave, theirs.wave, rtol=0, atol=1e-5)
