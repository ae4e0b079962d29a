"""Prompts of PersonaPlex: what a session says after one is what the reference says, given the tokens that NVIDIA's code
forces."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.errors import ConfigError, WeightsError
from engine.worker.models.moshi.prompt import SILENCE, SINE, PersonaVoice, SystemPrompt, prompt_of, tagged
from engine.worker.models.moshi.sizes import MoshiSizes
from tests.engine.worker.models.moshi.driven import GREEDY, Said, network, sound, step
from tests.oracles.moshi import Oracle, frames_of
from tests.oracles.tiny_moshi import WORDS, Sizes

SIZES = Sizes(books=8, codes=2048, seed=8)
DELAYS = (0, 0, *[1] * 7, 0, *[1] * 7)
INITIAL = (len(WORDS), *[2048] * 16)
TEXT = (5, 9, 12)


def forced(voice: Sequence[Sequence[int]], text: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what LMGen's cache holds at each position [positions + 1, streams], and its ring after the voice.

    Each call with a frame writes it behind the streams' delays; at its beginning a stream has initial tokens.
    """
    silence = [(3, *SILENCE, *SINE)] * 6
    frames = [*((3, *own, *SINE) for own in voice), *silence, *((id, *SILENCE, *SINE) for id in text), *silence]
    cache, ring = np.full((len(frames) + 1, 17), -1, np.int64), np.full((17, 4), -2, np.int64)
    for call, frame in enumerate(frames):
        for stream, (token, delay) in enumerate(zip(frame, DELAYS, strict=True)):
            cache[call + delay, stream] = token
            if call < len(voice):
                ring[stream, (call + delay) % 4] = token
            if call <= delay:
                cache[call, stream] = INITIAL[stream]
                ring[stream, call % 4] = INITIAL[stream]
    return cache, ring


def write_voice(file: Path, oracle: Oracle, codes: Sequence[Sequence[int]]) -> Path:
    """Write a voice as NVIDIA's code saves it: the input rows of all its frames but the last, and the ring."""
    cache, ring = forced(codes, ())
    rows = oracle.embedded(cache[: len(codes) - 1])
    torch.save({"embeddings": rows[:, None, None], "cache": torch.from_numpy(ring)[None]}, file)
    return file


def voice_codes(count: int) -> list[list[int]]:
    return np.random.default_rng(3).integers(0, 2048, (count, 8)).tolist()


def held(net: Any, prompt: SystemPrompt, frames: NDArray[np.float32], piece: int) -> Said:
    """Hold a session after a prompt. Its first tokens are those drawn at the prompt's last position."""
    net.open(1, prompt)
    pieces = 1
    while not net.prepare(1, GREEDY, piece):
        pieces += 1
    assert pieces >= prompt.length // piece
    said = Said()
    said.drawn.append(net.lm.tokens[1, :9, prompt.length % 3].numpy().copy())
    for frame in frames:
        step(net, {1: frame}, {1: said})
    return said


@pytest.mark.parametrize("voiced", [0, 1, 14], ids=lambda count: f"{count} frames of a voice")
@pytest.mark.parametrize("piece", [4, 100])
def test_a_session_after_a_prompt_is_what_the_reference_says(
    voiced: int,
    piece: int,
    checkpoint: Callable[[Sizes], Path],
    oracle: Callable[[Sizes], Oracle],
    tmp_path: Path,
) -> None:
    theirs, heard, net = oracle(SIZES), sound(20, 1), network(checkpoint(SIZES))
    voice = None
    if voiced:
        voice = PersonaVoice.read(write_voice(tmp_path / "NATF1.pt", theirs, voice_codes(voiced)), net.lm.sizes)
    prompt = prompt_of(net.lm.sizes, voice, TEXT)
    cache, _ = forced(voice_codes(voiced) if voiced else (), TEXT)
    first = len(cache) - 1
    assert prompt.length == first
    said = held(net, prompt, heard, piece)
    drawn, user = said.tokens, theirs.codes(heard.reshape(-1))
    live = np.concatenate((drawn[:-1], user[:, :1], np.concatenate((cache[first:, 10:], user[:-1, 1:]))), 1)
    live[0, 2:9] = cache[first, 2:9]
    inputs = np.concatenate((cache[:first], live))
    found = theirs.follow(inputs, np.concatenate((cache[1:first, :9], drawn)))
    assert drawn[:, 0].tolist() == found.text[first - 1 :].tolist()
    assert drawn[0, 1] == found.codes[first - 1, 0]
    assert drawn[1:, 1:].tolist() == found.codes[first:].tolist()
    assert said.texts == drawn[:-1, 0].tolist()
    wave = theirs.wave(np.concatenate(([SILENCE], frames_of(drawn))))  # the prompt's last frame is not played
    np.testing.assert_allclose(said.wave, wave[1920:], rtol=0, atol=1e-4)


def test_text_gets_the_tags_once() -> None:
    assert tagged(" Be kind. ") == tagged(tagged("Be kind.")) == "<system> Be kind. <system>"


def test_a_voice_of_another_model_and_what_is_no_voice_are_refused(
    checkpoint: Callable[[Sizes], Path], oracle: Callable[[Sizes], Oracle], tmp_path: Path
) -> None:
    sizes: MoshiSizes = network(checkpoint(Sizes())).lm.sizes
    file = write_voice(tmp_path / "one.pt", oracle(SIZES), voice_codes(3))
    with pytest.raises(WeightsError, match=r"one\.pt is a voice of another model: its rows have 64 numbers and 17"):
        PersonaVoice.read(file, sizes)
    (tmp_path / "two.pt").write_bytes(b"no voice")
    torch.save({"embeddings": 3}, tmp_path / "three.pt")
    for name in ("two.pt", "three.pt", "none.pt"):
        with pytest.raises(WeightsError, match=f"{re.escape(name)} is not a voice of PersonaPlex"):
            PersonaVoice.read(tmp_path / name, sizes)


def test_prompts_need_the_codec_of_personaplex(checkpoint: Callable[[Sizes], Path], tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="prompts need 8 codebooks of 2048 entries"):
        network(checkpoint(Sizes()), voices=str(tmp_path))
    with pytest.raises(ConfigError, match=r"options.instructions: set options\.voices too"):
        network(checkpoint(SIZES), instructions="Be kind.")
    with pytest.raises(ConfigError, match=r"options.voices: the folder .* has no \.pt files"):
        network(checkpoint(SIZES), voices=str(tmp_path))
