"""Answers of the family's stages: cut anywhere, in batches, begun with the first word, and ended whatever the text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import Request, Sampling
from engine.chunk import Codes
from engine.worker.models.qwen3_tts.talker import Recording
from engine.worker.talker import net
from tests.engine.worker.models.qwen3_tts.driven import asked, letters, say, stages, whole
from tests.oracles.qwen3_tts import BASE, BIG, CHINESE, MANY, SMALL, TEXT, WORDS, Case
from tests.oracles.tiny_qwen3_tts import Sizes

Folder = Callable[[Sizes], Path]
SAME = 1e-4
CLONED = Case("cloned", BASE, "anna", words=WORDS)


@pytest.fixture(scope="module")
def line(checkpoint: Folder) -> list[Any]:
    return stages(checkpoint(BIG))


@pytest.fixture(scope="module")
def cloning(checkpoint: Folder, recording: Path) -> list[Any]:
    return stages(checkpoint(BASE), **CLONED.ours(recording))


@pytest.mark.parametrize("steady", [1, 7])
async def test_sound_is_the_same_however_frames_and_text_are_cut(line: list[Any], steady: int) -> None:
    (at_once,) = await say(line, (asked(), whole(TEXT)), steady=50)
    (cut,) = await say(line, (asked(), letters(TEXT)), steady=steady)
    assert cut.codes.tolist() == at_once.codes.tolist()
    print(f"pieces of {steady}: the sound within {np.abs(cut.wave - at_once.wave).max():.1e} of at once")
    np.testing.assert_allclose(cut.wave, at_once.wave, rtol=0, atol=SAME)
    assert len(cut.wave) == 1920 * len(cut.codes)
    assert np.abs(cut.wave).max() > 0.01


async def test_the_first_frame_needs_the_first_word(line: list[Any]) -> None:
    (said,) = await say(line, (asked(), letters("Hello there, how are you?")))
    assert said.fed == len("Hello t")


async def test_a_text_that_is_to_stand_before_is_waited_for(checkpoint: Folder) -> None:
    text = "Hello there, how are you?"
    (said,) = await say(stages(checkpoint(BIG), layout="whole"), (asked(), letters(text)))
    assert said.fed == len(text)


async def test_several_at_once_are_each_what_they_are_alone(line: list[Any]) -> None:
    spoken = [
        (asked("a", voice="vivian"), letters(TEXT, 2)),
        (asked("b", 9, greedy=False, voice="eric"), whole(CHINESE)),
        (asked("c", 12, greedy=False, voice="ryan"), letters("One two three.")),
    ]
    together = await say(line, *spoken)
    for one, found in zip(spoken, together, strict=True):
        (alone,) = await say(line, one)
        assert found.codes.tolist() == alone.codes.tolist()
        np.testing.assert_allclose(found.wave, alone.wave, rtol=0, atol=SAME)
    assert len({said.codes.tobytes() for said in together}) == 3


@pytest.mark.parametrize("layout", ["streaming", "whole"])
@pytest.mark.parametrize("text", ["", "   ", " \n\n", "... !!!", "😀" * 40, "\0", "\ud800"])
async def test_a_text_without_a_word_ends_in_silence(checkpoint: Folder, text: str, layout: str) -> None:
    (said,) = await say(stages(checkpoint(SMALL), layout=layout), (asked(), letters(text)))
    assert (said.error, len(said.codes), len(said.wave)) == ("", 0, 0)


async def test_of_a_recording_without_a_text_nothing_is_heard(cloning: list[Any]) -> None:
    (said,) = await say(cloning, (asked(), letters(" ... ")))
    assert (said.error, len(said.codes), len(said.wave)) == ("", 0, 0)


async def test_an_end_that_comes_at_once_waits_for_two_frames(line: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of the end is no frame: it goes to no book."""
    end = line[0].net.shape.end

    def ending(logits: torch.Tensor, *_: Any) -> torch.Tensor:
        return torch.zeros_like(logits).index_fill(1, torch.tensor([end]), 50.0)

    monkeypatch.setattr(net, "penalised", ending)
    (said,) = await say(line, (asked(), whole(TEXT)))
    assert len(said.codes) == 2
    assert said.codes.max() < BIG.book


async def test_every_code_is_in_its_book(line: list[Any]) -> None:
    (said,) = await say(line, (asked(frames=40, greedy=False), whole(TEXT)))
    assert said.codes.min() >= 0
    assert said.codes.max() < BIG.book


@pytest.mark.seed("A2.16")
@pytest.mark.parametrize("words", [WORDS, MANY])
async def test_the_recording_is_not_heard_in_the_answer(checkpoint: Folder, recording: Path, words: str) -> None:
    """The sound is what stands behind the recording where both are decoded as one, to the sample."""
    line = stages(checkpoint(BASE), **Case("", BASE, "anna", words=words).ours(recording))
    (said,) = await say(line, (asked(), letters(TEXT, 2)), steady=2)
    frames = line[0]._voices["anna"].frames
    assert len(frames) == -(-round(3.21 * 24_000) // 1920)
    both = await decoded(line[1], np.concatenate((frames, said.codes)))
    assert len(said.wave) == 1920 * len(said.codes)
    np.testing.assert_allclose(said.wave, both[1920 * len(frames) :], rtol=0, atol=SAME)
    alone = await decoded(line[1], said.codes)
    assert np.abs(said.wave - alone).max() > 0.01, "the recording is what it sounds like, though it is not heard"


async def test_codes_of_the_recording_are_not_penalised(cloning: list[Any]) -> None:
    (said,) = await say(cloning, (asked(), whole(TEXT)))
    seen = cloning[0].net.seen_codes[0].nonzero()[:, 0].tolist()
    assert set(seen) == set(said.codes[:, 0].tolist())


async def decoded(code2wav: Any, codes: np.ndarray) -> np.ndarray:
    """The sound of frames that stand for themselves."""
    (said,) = await say([code2wav], (asked(), [Codes(frame[None]) for frame in codes]), steady=500)
    return said.wave


async def test_the_state_behind_a_recording_is_computed_once(
    cloning: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = await say(cloning, (asked(), whole(TEXT)))
    decode, counts = cloning[1].decode, list[int]()
    monkeypatch.setattr(
        cloning[1], "decode", lambda reqs, codes, fresh: counts.append(len(codes[0])) or decode(reqs, codes, fresh)
    )
    again = await say(cloning, (asked("other"), whole("Well.")), (asked("again"), whole(TEXT)))
    assert max(counts) <= 3
    np.testing.assert_allclose(again[1].wave, first.wave, rtol=0, atol=SAME)


@pytest.mark.parametrize(
    "frames", [np.zeros((2, 4), np.int16), np.full((2, 16), 256, np.int16), np.full((2, 16), -1, np.int16)]
)
async def test_a_recording_that_is_none_is_one_error(cloning: list[Any], frames: np.ndarray) -> None:
    from engine.chunk import Tensors

    (said,) = await say([cloning[1]], (asked(), [Tensors.of(Recording(frames))]))
    assert "a recording must have codes" in said.error


async def test_drawn_answers_differ_by_their_seed(line: list[Any]) -> None:
    def drawn(seed: int) -> Request:
        return asked(sampling=Sampling(seed=seed))

    found = [(await say(line, (drawn(seed), whole(TEXT))))[0].codes.tolist() for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


async def test_an_answer_is_no_longer_than_it_may_be(cloning: list[Any], line: list[Any]) -> None:
    for stages_ in (line, cloning):
        (said,) = await say(stages_, (asked(frames=3), whole(TEXT)))
        assert len(said.codes) == 3


async def test_bfloat16_says_something_and_the_same_again(checkpoint: Folder, recording: Path) -> None:
    line = stages(checkpoint(BASE), "bfloat16", **CLONED.ours(recording))
    found = [(await say(line, (asked(), letters(TEXT, 4))))[0] for _ in range(2)]
    assert found[0].codes.tolist() == found[1].codes.tolist()
    assert 2 <= len(found[0].codes) <= 16
    np.testing.assert_allclose(found[0].wave, found[1].wave, rtol=0, atol=SAME)


async def test_static_steps_say_the_same(checkpoint: Folder, recording: Path, cloning: list[Any]) -> None:
    static = stages(checkpoint(BASE), graphs="on", **CLONED.ours(recording))
    (one,), (other,) = await say(cloning, (asked(), letters(TEXT))), await say(static, (asked(), letters(TEXT)))
    assert one.codes.tolist() == other.codes.tolist()
