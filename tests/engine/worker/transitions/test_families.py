"""The rules of each family on payloads that were written by hand, and what is refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pytest

from engine.chunk import Chunk, Tensors, Text, Usage
from engine.errors import ConfigError, StageFailed
from engine.worker.transitions import cosyvoice3, covo_audio, dynin_omni, mimo_audio, ming_flash_omni
from engine.worker.transitions.dynin_omni import Output, Runtime, Target
from engine.worker.transitions.transition import Transition


def given(transition: Transition[Any], chunks: Iterable[msgspec.Struct | Chunk]) -> list[Any]:
    """The payloads of a request."""
    sent = [chunk if isinstance(chunk, Text | Usage | Tensors) else Tensors.of(chunk) for chunk in chunks]
    return [*(payload for chunk in sent for payload in transition.add(chunk)), transition.end()]


def ids(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


# --- CovoAudio


@pytest.mark.seed("A2.13", "A4.9")
def test_covo_keeps_the_ids_of_sound_and_counts_them_from_the_first() -> None:
    steps = [covo_audio.Tokens(ids(17, 151_672, 151_671)), covo_audio.Tokens(ids(151_645, -1, 151_680))]
    (payload,) = given(covo_audio.whole(), steps)
    assert payload.codes.tolist() == [1, 0, 9]
    assert payload.codes.dtype == np.int16


@pytest.mark.seed("A2.14")
@pytest.mark.parametrize("steps", [[], [covo_audio.Tokens(ids(17, 151_645))]])
def test_covo_ends_with_no_codes_where_there_was_no_sound(steps: list[msgspec.Struct]) -> None:
    (payload,) = given(covo_audio.whole(), steps)
    assert payload.codes.shape == (0,)


@pytest.mark.seed("A2.13")
def test_covo_refuses_a_code_beyond_its_book() -> None:
    with pytest.raises(StageFailed, match="a code is not from 0 to 16383"):
        given(covo_audio.whole(), [covo_audio.Tokens(ids(151_671 + 16_384))])


# --- MiMo-Audio


def groups(*first: int) -> mimo_audio.Groups:
    """Groups whose codes count up from these; 0 stands for one of zeros."""
    codes = [np.zeros(32, np.int64) if n == 0 else np.arange(n, n + 32) for n in first]
    return mimo_audio.Groups(np.array(codes).reshape(-1, 1, 8, 4))


def row(n: int) -> list[int]:
    """A group frame by frame: codebook b of frame f is n + 4 b + f."""
    return [id for f in range(4) for id in (151_667, *(n + 4 * b + f for b in range(8)))]


@pytest.mark.seed("A4.9")
def test_mimo_puts_padding_before_each_frame_and_leaves_out_groups_without_sound() -> None:
    (payload,) = given(mimo_audio.whole(), [groups(1), groups(0), groups(5, 9)])
    assert payload.ids.tolist() == row(1) + row(5) + row(9)
    assert (payload.context, payload.finished) == (0, True)


def test_mimo_ends_an_answer_that_is_too_long_behind_a_whole_group() -> None:
    (payload,) = given(mimo_audio.whole(), [groups(*[1] * 600)])
    assert len(payload.ids) == 505 * 36


@pytest.mark.seed("A2.14", "A4.8")
@pytest.mark.parametrize("steps", [[], [groups(0), groups(0, 0)]])
def test_mimo_ends_where_there_was_no_sound(steps: list[msgspec.Struct]) -> None:
    for transition in (mimo_audio.whole(), mimo_audio.Stream()):
        (payload,) = given(transition, steps)
        assert (payload.ids.shape, payload.finished) == ((0,), True)


@pytest.mark.seed("A4.7", "A4.8", "A4.9")
def test_mimo_streams_windows_behind_their_past() -> None:
    said = given(mimo_audio.Stream(3, 40), [groups(1), groups(0, 2, 3), groups(4, 5), groups(6, 7)])
    assert [(len(one.ids) // 36, one.context, one.finished) for one in said] == [
        (3, 0, False), (6, 3, False), (7, 6, True),
    ]  # fmt: skip
    assert said[1].ids.tolist() == [id for n in range(1, 7) for id in row(n)]


@pytest.mark.seed("A4.6")
@pytest.mark.parametrize(("chunk", "left"), [(2, 40), (3, 39)])
def test_mimo_refuses_windows_that_its_vocoder_cannot_voice(chunk: int, left: int) -> None:
    with pytest.raises(ConfigError, match="3 groups a window behind 40 at least"):
        mimo_audio.Stream(chunk, left)


@pytest.mark.seed("A2.13")
@pytest.mark.parametrize(("book", "code"), [(0, 1025), (1, 1025), (2, 129), (7, 129), (4, -1)])
def test_mimo_refuses_a_code_beyond_its_own_book(book: int, code: int) -> None:
    codes = np.ones((1, 1, 8, 4), np.int64)
    codes[0, 0, book, 2] = code
    with pytest.raises(StageFailed, match="a code is not from 0 to"):
        given(mimo_audio.whole(), [mimo_audio.Groups(codes)])


@pytest.mark.seed("A2.4")
def test_mimo_refuses_groups_of_another_shape() -> None:
    with pytest.raises(StageFailed, match=r"groups of codec frames are \[n, 1, 8, 4\], not \[2, 8, 4\]"):
        given(mimo_audio.Stream(), [mimo_audio.Groups(np.ones((2, 8, 4), np.int64))])


# --- CosyVoice3


def voice(*tokens: int) -> cosyvoice3.Voice:
    mel = np.zeros((1, 2 * len(tokens), 80), np.float32)
    return cosyvoice3.Voice(ids(*tokens)[None], mel, np.ones((1, 192), np.float32))


VOICE = voice(7, 8)


@pytest.mark.seed("A2.17")
@pytest.mark.parametrize(
    ("drawn", "spoken"),
    [
        ([1, 2, 7, 8, 50, 51], [50, 51]),
        ([1, 2, 50, 51], [50, 51]),
        ([7, 8, 50], [50]),
        ([1, 3, 50], [1, 3, 50]),
        ([1, 2, 7, 9, 50], [7, 9, 50]),
        ([7, 8, 1, 2, 50], [1, 2, 50]),
        ([1], [1]),
        ([1, 2], []),
    ],
)
def test_cosyvoice_strips_the_prompt_and_then_the_voice_only_where_they_match_exactly(
    drawn: list[int], spoken: list[int]
) -> None:
    first = cosyvoice3.Tokens(ids(*drawn[:2]), VOICE, ids(1, 2))
    (payload,) = given(cosyvoice3.whole(), [first, cosyvoice3.Tokens(ids(*drawn[2:]))])
    assert payload.tokens.tolist() == spoken


@pytest.mark.seed("A2.16", "A2.17", "A4.9")
@pytest.mark.parametrize(("end", "offset"), [(6561, 2), (6760, 2), (6560, 0)])
def test_cosyvoice_cuts_the_voices_sample_only_behind_a_stop_which_is_not_voiced(end: int, offset: int) -> None:
    (payload,) = given(cosyvoice3.whole(), [cosyvoice3.Tokens(ids(50, end), VOICE)])
    assert payload.offset == offset
    assert payload.tokens.tolist() == [50] + [end] * (end < 6561)
    assert payload.voice is not None
    assert payload.voice.speech_token.tolist() == [[7, 8]]


@pytest.mark.seed("A2.4")
def test_cosyvoice_has_the_latest_voice() -> None:
    steps = [cosyvoice3.Tokens(ids(50), voice(1, 2, 3)), cosyvoice3.Tokens(ids(51), VOICE), cosyvoice3.Tokens(ids(52))]
    (payload,) = given(cosyvoice3.whole(), steps)
    assert payload.voice is not None
    assert payload.voice.speech_token.tolist() == [[7, 8]]
    assert payload.tokens.tolist() == [50, 51, 52]


@pytest.mark.seed("A2.15")
def test_cosyvoice_refuses_a_voice_whose_parts_are_not_of_one_sample() -> None:
    mel, speaker = np.zeros((1, 3, 80), np.float32), np.ones((1, 192), np.float32)
    with pytest.raises(StageFailed, match=r"tokens \[1, 2\] and mel \[1, 3, 80\] are not of one sample"):
        cosyvoice3.Voice(ids(7, 8)[None], mel, speaker)


@pytest.mark.parametrize("transition", [cosyvoice3.whole, cosyvoice3.Stream])
def test_cosyvoice_does_not_speak_without_a_voice(transition: Any) -> None:
    with pytest.raises(StageFailed, match="none came"):
        given(transition(), [cosyvoice3.Tokens(ids(50))])


@pytest.mark.seed("A4.6", "A4.8", "A4.9")
def test_cosyvoice_streams_windows_that_grow_and_look_ahead() -> None:
    """The first one is as much longer as the voice's sample (2) lacks of a whole window (4)."""
    first = cosyvoice3.Tokens(voice=VOICE)
    steps = [cosyvoice3.Tokens(ids(n if n != 5 else 6_600)) for n in range(60)]
    said = given(cosyvoice3.Stream(chunk=4, most=15, ahead=3), [first, *steps])
    ends = [6, 6 + 8, 6 + 8 + 15, 6 + 8 + 15 + 15]
    spoken = [n for n in range(60) if n != 5]
    assert [one.tokens.tolist() for one in said] == [*(spoken[: end + 3] for end in ends), spoken]
    assert [one.offset for one in said] == [0, *ends]
    assert [one.voice is None for one in said] == [False, True, True, True, True]
    assert [one.finished for one in said] == [False] * 4 + [True]


@pytest.mark.seed("A2.14", "A4.8")
def test_cosyvoice_ends_where_nothing_was_said() -> None:
    for transition in (cosyvoice3.whole(), cosyvoice3.Stream()):
        (payload,) = given(transition, [cosyvoice3.Tokens(ids(6_561), VOICE)])
        assert (payload.tokens.tolist(), payload.finished) == ([], True)


def test_cosyvoice_refuses_windows_that_are_none() -> None:
    with pytest.raises(ConfigError, match="CosyVoice3: windows of 0 tokens"):
        cosyvoice3.Stream(chunk=0)


# --- Dynin-Omni


def test_dynin_hands_on_the_latest_tokens_and_what_was_said_last() -> None:
    steps = [
        Output(ids(1, 2), detok_id=2, prompt=Runtime(speaker="Ann", detok_id=1), drawn_ids=ids(9)),
        Output(ids(3), runtime=Runtime(speaker="Bob", codebook_size=64)),
        Output(ids()),
    ]
    (payload,) = given(dynin_omni.whole(), steps[:2])
    assert payload.tokens.tolist() == [3]
    assert payload.target is Target.IMAGE
    assert payload.runtime == Runtime(speaker="Bob", detok_id=1, codebook_size=64)
    (payload,) = given(dynin_omni.whole(), steps)
    assert payload.tokens.tolist() == [9], "the ids that were drawn stand in for tokens that are none"


def test_dynin_decodes_where_the_target_is_and_passes_on_elsewhere() -> None:
    (first,) = given(dynin_omni.whole(), [Output(ids(1, 2), detok_id=1, prompt=Runtime(language="de"))])
    assert first.codes_for(Target.IMAGE) is None
    (second,) = given(dynin_omni.whole(), [first.passed_on()])
    assert second.codes_for(Target.AUDIO).tolist() == [1, 2]
    assert (second.target, second.runtime) == (first.target, first.runtime)


@pytest.mark.seed("A2.14")
def test_dynin_ends_where_there_are_no_tokens() -> None:
    (payload,) = given(dynin_omni.whole(), [])
    assert (payload.tokens.tolist(), payload.target) == ([], Target.TEXT)


@pytest.mark.seed("A2.13")
@pytest.mark.parametrize(("target", "size", "code"), [(2, None, 8_192), (2, 64, 64), (1, None, 4_096), (1, 64, -1)])
def test_dynin_refuses_a_token_beyond_its_targets_book(target: int, size: int | None, code: int) -> None:
    runtime = Runtime(codebook_size=size, audio_codebook_size=size)
    (payload,) = given(dynin_omni.whole(), [Output(ids(code), detok_id=target, runtime=runtime)])
    with pytest.raises(StageFailed, match="a code is not from 0 to"):
        payload.codes_for(Target(target))


def test_dynin_refuses_a_target_that_is_none() -> None:
    with pytest.raises(StageFailed, match="no stage of Dynin-Omni decodes the detok_id 3"):
        given(dynin_omni.whole(), [Output(ids(1), detok_id=3)])


# --- Ming-Flash-Omni


def test_ming_hands_on_the_text_and_the_voice_alone() -> None:
    (line,) = given(ming_flash_omni.Spoken(), [Text("Hello ", 0), Text("there.", 6), Usage()])
    assert (line.text, line.voice.name) == ("Hello there.", "DB30")
    (line,) = given(ming_flash_omni.Spoken(), [])
    assert line.text == ""


def test_ming_guards_its_voice_from_tensors() -> None:
    hidden = Tensors("ming_flash_omni.hidden", {"rows": np.zeros((3, 8), np.float32)})
    with pytest.raises(StageFailed, match=r"takes text alone, not ming_flash_omni\.hidden"):
        given(ming_flash_omni.Spoken(), [Text("Hello", 0), hidden])


# --- all


@pytest.mark.seed("A2.21")
@pytest.mark.parametrize("transition", [covo_audio.whole, mimo_audio.Stream, cosyvoice3.Stream, dynin_omni.whole])
def test_a_step_of_another_stage_or_with_a_field_that_there_is_not_is_refused(transition: Any) -> None:
    with pytest.raises(StageFailed, match=r"this stage takes \w+\.\w+, not text"):
        given(transition(), [Text("Hello", 0)])
    tag = {"covo_audio": "tokens", "mimo_audio": "groups", "cosyvoice3": "tokens", "dynin_omni": "output"}
    family = transition.__module__.rpartition(".")[2]
    with pytest.raises(StageFailed, match="cannot be read"):
        given(transition(), [Tensors(f"{family}.{tag[family]}", {"idds": ids(1)})])
