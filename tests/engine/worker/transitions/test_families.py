"""The rules of each family on payloads that were written by hand, and what is refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pytest

from engine.chunk import Chunk, Finish, Tensors, Text, Usage
from engine.errors import ConfigError, StageFailed
from engine.worker.transitions import (
    cosyvoice3,
    covo_audio,
    dynin_omni,
    mimo_audio,
    ming_flash_omni,
    qwen2_5_omni,
    qwen3_tts,
)
from engine.worker.transitions.dynin_omni import DetokenizerTarget, Output, Runtime
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
    steps = [covo_audio.CovoTokens(ids(17, 151_672, 151_671)), covo_audio.CovoTokens(ids(151_645, -1, 151_680))]
    (payload,) = given(covo_audio.whole(), steps)
    assert payload.codes.tolist() == [1, 0, 9]
    assert payload.codes.dtype == np.int16


@pytest.mark.seed("A2.14")
@pytest.mark.parametrize("steps", [[], [covo_audio.CovoTokens(ids(17, 151_645))]])
def test_covo_ends_with_no_codes_where_there_was_no_sound(steps: list[msgspec.Struct]) -> None:
    (payload,) = given(covo_audio.whole(), steps)
    assert payload.codes.shape == (0,)


@pytest.mark.seed("A2.13")
def test_covo_refuses_a_code_beyond_its_book() -> None:
    with pytest.raises(StageFailed, match="codes must be from 0 to 16383"):
        given(covo_audio.whole(), [covo_audio.CovoTokens(ids(151_671 + 16_384))])


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
    for transition in (mimo_audio.whole(), mimo_audio.MimoStream()):
        (payload,) = given(transition, steps)
        assert (payload.ids.shape, payload.finished) == ((0,), True)


@pytest.mark.seed("A4.7", "A4.8", "A4.9")
def test_mimo_streams_windows_behind_their_past() -> None:
    said = given(mimo_audio.MimoStream(3, 40), [groups(1), groups(0, 2, 3), groups(4, 5), groups(6, 7)])
    assert [(len(one.ids) // 36, one.context, one.finished) for one in said] == [
        (3, 0, False), (6, 3, False), (7, 6, True),
    ]  # fmt: skip
    assert said[1].ids.tolist() == [id for n in range(1, 7) for id in row(n)]


@pytest.mark.seed("A4.6")
@pytest.mark.parametrize(("chunk", "left"), [(2, 40), (3, 39)])
def test_mimo_refuses_windows_that_its_vocoder_cannot_voice(chunk: int, left: int) -> None:
    with pytest.raises(ConfigError, match="at least 3 groups per window after 40"):
        mimo_audio.MimoStream(chunk, left)


@pytest.mark.seed("A2.13")
@pytest.mark.parametrize(("book", "code"), [(0, 1025), (1, 1025), (2, 129), (7, 129), (4, -1)])
def test_mimo_refuses_a_code_beyond_its_own_book(book: int, code: int) -> None:
    codes = np.ones((1, 1, 8, 4), np.int64)
    codes[0, 0, book, 2] = code
    with pytest.raises(StageFailed, match="codes must be from 0 to"):
        given(mimo_audio.whole(), [mimo_audio.Groups(codes)])


@pytest.mark.seed("A2.4")
def test_mimo_refuses_groups_of_another_shape() -> None:
    with pytest.raises(StageFailed, match=r"groups of codec frames are \[n, 1, 8, 4\], not \[2, 8, 4\]"):
        given(mimo_audio.MimoStream(), [mimo_audio.Groups(np.ones((2, 8, 4), np.int64))])


# --- CosyVoice3


def voice(*tokens: int) -> cosyvoice3.CosyVoiceVoice:
    mel = np.zeros((1, 2 * len(tokens), 80), np.float32)
    return cosyvoice3.CosyVoiceVoice(ids(*tokens)[None], mel, np.ones((1, 192), np.float32))


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
    first = cosyvoice3.CosyVoiceTokens(ids(*drawn[:2]), VOICE, ids(1, 2))
    (payload,) = given(cosyvoice3.whole(), [first, cosyvoice3.CosyVoiceTokens(ids(*drawn[2:]))])
    assert payload.tokens.tolist() == spoken


@pytest.mark.seed("A2.16", "A2.17", "A4.9")
@pytest.mark.parametrize(("end", "offset"), [(6561, 2), (6760, 2), (6560, 0)])
def test_cosyvoice_cuts_the_voices_sample_only_behind_a_stop_which_is_not_voiced(end: int, offset: int) -> None:
    (payload,) = given(cosyvoice3.whole(), [cosyvoice3.CosyVoiceTokens(ids(50, end), VOICE)])
    assert payload.offset == offset
    assert payload.tokens.tolist() == [50] + [end] * (end < 6561)
    assert payload.voice is not None
    assert payload.voice.speech_token.tolist() == [[7, 8]]


@pytest.mark.seed("A2.4")
def test_cosyvoice_has_the_latest_voice() -> None:
    steps = [
        cosyvoice3.CosyVoiceTokens(ids(50), voice(1, 2, 3)),
        cosyvoice3.CosyVoiceTokens(ids(51), VOICE),
        cosyvoice3.CosyVoiceTokens(ids(52)),
    ]
    (payload,) = given(cosyvoice3.whole(), steps)
    assert payload.voice is not None
    assert payload.voice.speech_token.tolist() == [[7, 8]]
    assert payload.tokens.tolist() == [50, 51, 52]


@pytest.mark.seed("A2.15")
def test_cosyvoice_refuses_a_voice_whose_parts_are_not_of_one_sample() -> None:
    mel, speaker = np.zeros((1, 3, 80), np.float32), np.ones((1, 192), np.float32)
    with pytest.raises(StageFailed, match=r"tokens \[1, 2\] and mel frames \[1, 3, 80\] do not match"):
        cosyvoice3.CosyVoiceVoice(ids(7, 8)[None], mel, speaker)


@pytest.mark.parametrize("transition", [cosyvoice3.whole, cosyvoice3.CosyVoiceStream])
def test_cosyvoice_does_not_speak_without_a_voice(transition: Any) -> None:
    with pytest.raises(StageFailed, match="sent no voice"):
        given(transition(), [cosyvoice3.CosyVoiceTokens(ids(50))])


@pytest.mark.seed("A4.6", "A4.8", "A4.9")
def test_cosyvoice_streams_windows_that_grow_and_look_ahead() -> None:
    """The first one is as much longer as the voice's sample (2) lacks of a whole window (4)."""
    first = cosyvoice3.CosyVoiceTokens(voice=VOICE)
    steps = [cosyvoice3.CosyVoiceTokens(ids(n if n != 5 else 6_600)) for n in range(60)]
    said = given(cosyvoice3.CosyVoiceStream(chunk=4, most=15, ahead=3), [first, *steps])
    ends = [6, 6 + 8, 6 + 8 + 15, 6 + 8 + 15 + 15]
    spoken = [n for n in range(60) if n != 5]
    assert [one.tokens.tolist() for one in said] == [*(spoken[: end + 3] for end in ends), spoken]
    assert [one.offset for one in said] == [0, *ends]
    assert [one.voice is None for one in said] == [False, True, True, True, True]
    assert [one.finished for one in said] == [False] * 4 + [True]


@pytest.mark.seed("A2.14", "A4.8")
def test_cosyvoice_ends_where_nothing_was_said() -> None:
    for transition in (cosyvoice3.whole(), cosyvoice3.CosyVoiceStream()):
        (payload,) = given(transition, [cosyvoice3.CosyVoiceTokens(ids(6_561), VOICE)])
        assert (payload.tokens.tolist(), payload.finished) == ([], True)


def test_cosyvoice_refuses_windows_that_are_none() -> None:
    with pytest.raises(ConfigError, match="CosyVoice3: invalid windows of 0 to"):
        cosyvoice3.CosyVoiceStream(chunk=0)


# --- Dynin-Omni


def test_dynin_hands_on_the_latest_tokens_and_what_was_said_last() -> None:
    steps = [
        Output(ids(1, 2), detok_id=2, prompt=Runtime(speaker="Ann", detok_id=1), drawn_ids=ids(9)),
        Output(ids(3), runtime=Runtime(speaker="Bob", codebook_size=64)),
        Output(ids()),
    ]
    (payload,) = given(dynin_omni.whole(), steps[:2])
    assert payload.tokens.tolist() == [3]
    assert payload.target is DetokenizerTarget.IMAGE
    assert payload.runtime == Runtime(speaker="Bob", detok_id=1, codebook_size=64)
    (payload,) = given(dynin_omni.whole(), steps)
    assert payload.tokens.tolist() == [9], "the ids that were drawn stand in for tokens that are none"


def test_dynin_decodes_where_the_target_is_and_passes_on_elsewhere() -> None:
    (first,) = given(dynin_omni.whole(), [Output(ids(1, 2), detok_id=1, prompt=Runtime(language="de"))])
    assert first.codes_for(DetokenizerTarget.IMAGE) is None
    (second,) = given(dynin_omni.whole(), [first.passed_on()])
    assert second.codes_for(DetokenizerTarget.AUDIO).tolist() == [1, 2]
    assert (second.target, second.runtime) == (first.target, first.runtime)


@pytest.mark.seed("A2.14")
def test_dynin_ends_where_there_are_no_tokens() -> None:
    (payload,) = given(dynin_omni.whole(), [])
    assert (payload.tokens.tolist(), payload.target) == ([], DetokenizerTarget.TEXT)


@pytest.mark.seed("A2.13")
@pytest.mark.parametrize(("target", "size", "code"), [(2, None, 8_192), (2, 64, 64), (1, None, 4_096), (1, 64, -1)])
def test_dynin_refuses_a_token_beyond_its_targets_book(target: int, size: int | None, code: int) -> None:
    runtime = Runtime(codebook_size=size, audio_codebook_size=size)
    (payload,) = given(dynin_omni.whole(), [Output(ids(code), detok_id=target, runtime=runtime)])
    with pytest.raises(StageFailed, match="codes must be from 0 to"):
        payload.codes_for(DetokenizerTarget(target))


def test_dynin_refuses_a_target_that_is_none() -> None:
    with pytest.raises(StageFailed, match="Dynin-Omni: a stage sent detok_id 3"):
        given(dynin_omni.whole(), [Output(ids(1), detok_id=3)])


# --- Ming-Flash-Omni


def test_ming_hands_on_the_text_and_the_voice_alone() -> None:
    (line,) = given(ming_flash_omni.MingText(), [Text("Hello ", 0), Text("there.", 6), Usage()])
    assert (line.text, line.voice.name) == ("Hello there.", "DB30")
    (line,) = given(ming_flash_omni.MingText(), [])
    assert line.text == ""


def test_ming_guards_its_voice_from_tensors() -> None:
    hidden = Tensors("ming_flash_omni.hidden", {"rows": np.zeros((3, 8), np.float32)})
    with pytest.raises(StageFailed, match=r"only takes text, not ming_flash_omni\.hidden"):
        given(ming_flash_omni.MingText(), [Text("Hello", 0), hidden])


# --- Qwen2.5-Omni


def rows(n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(4 * n, dtype=np.float32).reshape(n, 4)


@pytest.mark.seed("A2.11")
@pytest.mark.parametrize(
    ("finish", "stops", "kept"),
    [("stop", (), 2), ("tool", (), 2), ("length", (12,), 3), (None, (12,), 2), (None, (11,), 3), (None, (), 3)],
)
@pytest.mark.parametrize("computed", [4, 5, 6])
def test_qwen2_5_leaves_out_what_a_stop_emitted_and_that_once(
    finish: Finish | None, stops: tuple[int, ...], kept: int, computed: int
) -> None:
    """Two ids of a prompt, three that were drawn, and as many hidden rows as were computed by then."""
    hidden = rows(computed)
    steps: list[Any] = [
        qwen2_5_omni.ThinkerStep(hidden[:3], ids(10), ids(1, 2)), qwen2_5_omni.ThinkerStep(hidden[3:], ids(11, 12)),
    ]  # fmt: skip
    steps += [Usage(finish=finish)] if finish else []
    (payload,) = given(qwen2_5_omni.TalkerConditioning(stops), steps)
    assert payload.drawn_ids.tolist() == [10, 11, 12][:kept]
    assert payload.prompt.tolist() == hidden[:2].tolist()
    assert payload.answer.tolist() == hidden[2 : 2 + kept].tolist()


@pytest.mark.seed("A2.12")
@pytest.mark.parametrize("computed", [0, 1])
def test_qwen2_5_refuses_fewer_rows_than_the_prompt_has_ids(computed: int) -> None:
    with pytest.raises(StageFailed, match=f"{computed} hidden rows for a prompt of 2 ids"):
        given(qwen2_5_omni.TalkerConditioning(), [qwen2_5_omni.ThinkerStep(rows(computed), ids(9), ids(1, 2))])


@pytest.mark.seed("A2.12")
def test_qwen2_5_never_trims_a_single_row() -> None:
    (payload,) = given(qwen2_5_omni.TalkerConditioning([9]), [qwen2_5_omni.ThinkerStep(rows(1), ids(9), ids(1))])
    assert (len(payload.prompt), len(payload.answer)) == (1, 0)


@pytest.mark.seed("A2.13", "A4.9")
@pytest.mark.parametrize(
    ("drawn", "codes"),
    [
        ([8_293, 8_292, 5, 6, 8_294], [5, 6]),
        ([5, 6, -1, -1], [5, 6, 6, 6]),
        ([5, -1, 6], [5, 6]),
        ([5, 8_294, -1], [5, 5]),
        ([-1, -1], []),
        ([8_293, 8_294], []),
        ([], []),
    ],
)
def test_qwen2_5_keeps_the_codes_and_their_length(drawn: list[int], codes: list[int]) -> None:
    (payload,) = given(
        qwen2_5_omni.codes(), [qwen2_5_omni.TalkerStep(ids(*drawn[:1])), qwen2_5_omni.TalkerStep(ids(*drawn[1:]))]
    )
    assert payload.codes.tolist() == codes


# --- Qwen3-TTS


def frames(*first: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([np.arange(n, n + 16) if n else np.zeros(16) for n in first], np.int64).reshape(-1, 16)


@pytest.mark.seed("A2.13", "A4.9")
def test_qwen3_tts_leaves_out_frames_that_are_no_sound() -> None:
    junk = frames(7, 2_040, -3)  # the second has codes beyond the book, the third a placeholder
    (payload,) = given(qwen3_tts.whole(), [qwen3_tts.Frames(np.concatenate([frames(1, 0), junk, frames(9)]))])
    assert payload.codes.tolist() == frames(1, 7, 9).tolist()
    assert payload.context == 0


@pytest.mark.seed("A2.16")
def test_qwen3_tts_says_how_many_frames_are_the_references() -> None:
    steps = [qwen3_tts.Frames(frames(1), frames(50, 51)), qwen3_tts.Frames(frames(2, 3))]
    (payload,) = given(qwen3_tts.whole(), steps)
    assert payload.codes.tolist() == frames(50, 51, 1, 2, 3).tolist()
    assert payload.context == 2
    said = given(qwen3_tts.Qwen3TtsStream(first=1, chunk=2, left=1, most_reference=1), steps)
    assert [one.codes.tolist() for one in said] == [frames(51, 1).tolist(), frames(51, 1, 2, 3).tolist(), []]
    assert [(one.context, one.finished) for one in said] == [(1, False), (2, False), (0, True)]


@pytest.mark.seed("A2.14", "A4.8")
def test_qwen3_tts_ends_where_there_was_no_sound_and_the_reference_does_not_sound_in_its_place() -> None:
    for transition in (qwen3_tts.whole(), qwen3_tts.Qwen3TtsStream()):
        (payload,) = given(transition, [qwen3_tts.Frames(frames(0), frames(50))])
        assert (len(payload.codes), payload.finished) == (0, True)


def test_qwen3_tts_refuses_what_are_no_frames_and_windows_that_are_none() -> None:
    with pytest.raises(StageFailed, match=r"codec frames must be \[n, 16\], not \[1, 8\]"):
        given(qwen3_tts.whole(), [qwen3_tts.Frames(np.ones((1, 8), np.int64))])
    with pytest.raises(StageFailed, match="codes must be from 0 to 2047"):
        given(qwen3_tts.whole(), [qwen3_tts.Frames(frames(1), frames(2_040))])
    with pytest.raises(ConfigError, match="Qwen3-TTS: invalid windows of 3, then 2 frames"):
        qwen3_tts.Qwen3TtsStream(first=3, chunk=2)


# --- all


@pytest.mark.seed("A2.21")
@pytest.mark.parametrize(
    "transition", [covo_audio.whole, mimo_audio.MimoStream, cosyvoice3.CosyVoiceStream, dynin_omni.whole]
)
def test_a_step_of_another_stage_or_with_a_field_that_there_is_not_is_refused(transition: Any) -> None:
    with pytest.raises(StageFailed, match=r"the stage takes only \w+\.\w+, but received text"):
        given(transition(), [Text("Hello", 0)])
    tag = {"covo_audio": "tokens", "mimo_audio": "groups", "cosyvoice3": "tokens", "dynin_omni": "output"}
    family = transition.__module__.rpartition(".")[2]
    with pytest.raises(StageFailed, match="received an invalid"):
        given(transition(), [Tensors(f"{family}.{tag[family]}", {"idds": ids(1)})])
