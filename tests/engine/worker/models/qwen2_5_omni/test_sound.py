"""Codes to sound: the whole as the reference makes it; block by block the same however codes come, and nearly the
whole."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import Sampling, stream
from engine.chunk import Codes
from engine.errors import StageFailed
from engine.worker.models.qwen2_5_omni import code2wav
from engine.worker.models.qwen2_5_omni.code2wav import LOOK_AHEAD, LOOK_BACK, Code2Wav, CodePieces, known, normal
from engine.worker.models.qwen2_5_omni.vocoder import Vocoder
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.worker.models.qwen2_5_omni.cases import PROMPTS, RNG, Folder, Reference, request
from tests.engine.worker.models.qwen2_5_omni.conftest import SIZES

CODES = RNG.integers(0, 256, 100).astype(np.int64)
PACKET = 480  # 20 ms
SEED = 5
NEARLY = 1e-4
"""How far the worst 20 ms of blocks may be from the whole (rms): .05 could be heard, and this sees a block too few."""
OFTEN = ("plain", "one head of keys")
CHECKPOINTS = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.soak) for name in SIZES]


@pytest.fixture(scope="module")
def stage(checkpoint: Folder) -> Code2Wav:
    return Code2Wav(StageConfig(checkpoint("plain"), slots=4))


@pytest.fixture(scope="module")
def unbroken(stage: Code2Wav) -> np.ndarray:
    """The sound of CODES, sampled at once."""
    return whole(stage)


def opened(stage: Code2Wav, slot: int) -> StageRequest:
    asked = request("t", PROMPTS["text"], sampling=Sampling(greedy=True, seed=SEED))
    req = StageRequest(asked, slot, None)  # type: ignore[arg-type]
    stage.open(req)
    return req


def streamed(stage: Code2Wav, cuts: list[list[int]], codes: np.ndarray = CODES) -> list[np.ndarray]:
    """The sound of codes that come in pieces, of several requests at once."""
    reqs = [opened(stage, slot) for slot in range(len(cuts))]
    left = [np.split(codes, np.cumsum(own)[:-1]) for own in cuts]
    waves: list[list[np.ndarray]] = [[] for _ in cuts]
    while not all(req.done for req in reqs):
        for req, own in zip(reqs, left, strict=True):
            if own:
                req.pending.append(CodePieces(own.pop(0), 0))
            req.ended = not own
        ready = [req for req in reqs if req.ready]
        for req, chunks in zip(ready, stage.step(ready), strict=True):
            waves[req.slot] += [chunk.wave for chunk in chunks]  # type: ignore[union-attr]
    return [np.concatenate(own) for own in waves]


def whole(stage: Code2Wav, codes: np.ndarray = CODES) -> np.ndarray:
    """The sound of codes, sampled at once."""
    with torch.inference_mode():
        voice = torch.stack([opened(stage, 0).state.voice])
        mel = stage.dit.sample(noise(len(codes) * 2), torch.from_numpy(codes)[None], voice)
        return stage.vocoder(mel)[0].numpy()


def noise(frames: int) -> torch.Tensor:
    return normal(torch.tensor([SEED]), torch.arange(frames)[None], 80)


def worst_packet(wave: np.ndarray, other: np.ndarray) -> float:
    """The largest error of 20 ms, over the level around them."""
    packets = len(wave) // PACKET
    error = ((wave - other)[: packets * PACKET].reshape(packets, PACKET) ** 2).mean(1) ** 0.5
    level = (other[: packets * PACKET].reshape(packets, PACKET) ** 2).mean(1)
    around = np.convolve(level, np.ones(5) / 5, "same") ** 0.5
    return float((error / around).max())


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_whole_is_the_references(name: str, checkpoint: Folder, oracle: Reference) -> None:
    stage = Code2Wav(StageConfig(checkpoint(name)))
    expected = oracle(name).whole(CODES[:, None], noise(len(CODES) * 2))
    wave = whole(stage)
    assert wave.shape == expected.shape == (480 * len(CODES),)
    print(f"{name}: the whole sound within {np.abs(wave - expected).max():.1e}")
    assert np.abs(wave - expected).max() <= 1e-4
    assert expected.std() > 0.05, "there is something to hear"
    other = oracle(name).whole(CODES[:, None], noise(len(CODES) * 2), "chelsie")
    assert np.abs(wave - other).max() > 1e-3, "another voice would show"


def test_however_codes_come_they_sound_the_same_and_nearly_as_the_whole(stage: Code2Wav, unbroken: np.ndarray) -> None:
    at_once = streamed(stage, [[len(CODES)]])[0]
    for wave in streamed(stage, [[1] * 100, [13, 50, 37], [99, 1]]):
        assert wave.shape == at_once.shape == (480 * len(CODES),)
        print(f"in pieces within {np.abs(wave - at_once).max():.1e} of at once")
        assert np.abs(wave - at_once).max() <= 1e-3
    print(f"the worst 20 ms of blocks are {worst_packet(at_once, unbroken):.4%} rms from the whole")
    assert worst_packet(at_once, unbroken) <= NEARLY


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SIZES)
def test_so_do_the_references_own_answers_by_every_checkpoint(name: str, checkpoint: Folder, oracle: Reference) -> None:
    stage, worst, frames = Code2Wav(StageConfig(checkpoint(name), slots=1)), list[float](), 0
    for turns in PROMPTS.values():
        codes = oracle(name).answer(turns, 8, 100).codes[:, 0].astype(np.int64)
        if len(codes) > 36:  # more than the blocks that are decoded first
            frames += len(codes)
            worst.append(worst_packet(streamed(stage, [[len(codes)]], codes)[0], whole(stage, codes)))
    assert len(worst) >= 3, "random weights may stop early, but not always"
    print(f"{name}: {frames} codes of {len(worst)} answers, the worst 20 ms {max(worst):.4%} rms from the whole")
    assert max(worst) <= NEARLY


@pytest.mark.parametrize("lacking", ["vocoder", "sampler", "noise"])
def test_too_little_context_would_be_heard(
    lacking: str, stage: Code2Wav, unbroken: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative controls of the test above."""
    match lacking:
        case "vocoder":
            monkeypatch.setattr(code2wav, "LOOK_AHEAD", 0)
        case "sampler":
            monkeypatch.setattr(code2wav, "BACK", 0)
            monkeypatch.setattr(code2wav, "AHEAD", 0)
        case _:
            real = code2wav.normal
            monkeypatch.setattr(code2wav, "normal", lambda seeds, at, width: real(seeds, at - at[:, :1], width))
    worst = worst_packet(streamed(stage, [[100]])[0], unbroken)
    print(f"with too little of the {lacking}: {worst:.1%} rms")
    assert worst > 0.05


@pytest.mark.parametrize(("name", "blocks"), [("BACK", 1), ("AHEAD", 1)])
def test_too_few_blocks_of_the_samplers_context_show(
    name: str, blocks: int, stage: Code2Wav, unbroken: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though less than can be heard, in so small a network. Its third block back does nothing: that is for big ones."""
    monkeypatch.setattr(code2wav, name, blocks)
    worst = worst_packet(streamed(stage, [[100]])[0], unbroken)
    print(f"with {blocks} blocks {name.lower()}: {worst:.3%} rms")
    assert worst > NEARLY


def test_the_vocoder_needs_its_context_to_the_frame(stage: Code2Wav) -> None:
    """In float64, where what a far frame does is no rounding: one frame too few on either side shows."""
    read = stage.source.reader("token2wav.", torch.float64).below("code2wav_bigvgan_model")
    vocoder = Vocoder(read, stage.source.config.token2wav_config.bigvgan_config)
    mel = torch.from_numpy(np.random.default_rng(3).normal(-2, 1, (1, 120, 80)))
    with torch.inference_mode():
        expected = vocoder(mel)[0, 48 * 240 : 72 * 240]

        def error(back: int, ahead: int) -> float:
            wave = vocoder(mel[:, 48 - back : 72 + ahead])[0, back * 240 : (back + 24) * 240]
            return float((wave - expected).abs().max())

        assert error(LOOK_BACK, LOOK_AHEAD) <= 1e-9
        assert error(LOOK_BACK - 1, LOOK_AHEAD) > 1e-9
        assert error(LOOK_BACK, LOOK_AHEAD - 1) > 1e-9


def test_noise_depends_on_seed_and_place_alone() -> None:
    at = torch.arange(40)[None]
    both = normal(torch.tensor([1, 2]), at.expand(2, -1), 80)
    assert torch.equal(both[1:], normal(torch.tensor([2]), at, 80))
    assert torch.equal(both[:, 7:9], normal(torch.tensor([1, 2]), at[:, 7:9].expand(2, -1), 80))
    many = normal(torch.tensor([3]), torch.arange(4000)[None], 80)
    assert abs(float(many.mean())) < 0.01
    assert abs(float(many.std()) - 1) < 0.01


@pytest.mark.seed("A2.13")
@given(st.lists(st.integers(-3, 330)))
def test_no_id_beyond_the_book_is_looked_up(ids: list[int]) -> None:
    marks = {260, 261, 262}
    frames = np.array(ids, np.int16).reshape(-1, 1)
    if all(-1 <= id < 257 or id in marks for id in ids):
        assert known(frames, 257, marks).tolist() == ids
    else:
        with pytest.raises(StageFailed, match="codes must be from 0 to 256"):
            known(frames, 257, marks)


@pytest.mark.seed("A2.14")
@pytest.mark.parametrize("codes", [[], [260, 261, 262], [-1, -1]])
async def test_an_answer_without_codes_ends_in_silence(codes: list[int], stage: Code2Wav) -> None:
    assert await sounded(stage, [codes]) == (0, ())


@pytest.mark.seed("A2.13")
async def test_placeholders_at_the_end_keep_the_length_of_the_sound(stage: Code2Wav) -> None:
    """Those in the midst are left out, as the released builder does it."""
    samples, marks = await sounded(stage, [[7, -1], [9, -1], [-1], [-1, -1]])
    assert samples == 480 * 6
    assert marks == ((480, 1), (960, 2), *((480 * n, 4) for n in range(3, 7)))


async def sounded(stage: Code2Wav, pieces: list[list[int]]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Samples and marks of ids that come in pieces, of which the text is one character each."""
    req, chunks = opened(stage, 0), list[Any]()
    codes = [Codes(np.array(piece, np.int16).reshape(-1, 1), n) for n, piece in enumerate(pieces, 1)]
    req.pending.extend([piece async for piece in stage.adapt(req, stream.of(codes))])
    req.ended = True
    while not req.done:
        chunks += cast(list[Any], stage.step([req])[0])
    return sum(len(one.wave) for one in chunks), tuple(mark for one in chunks for mark in one.marks)
