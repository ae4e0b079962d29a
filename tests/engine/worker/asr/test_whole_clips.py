"""A recognizer of whole clips, as a stage of a new library would write it: twenty lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine.chunk import Chunk, Transcript
from engine.core import MIC_RATE_HZ, Pcm, SpeechHints, StageInfo
from engine.errors import StageFailed
from engine.worker.asr.transcribing import ears_info
from engine.worker.asr.whole_clips import SHORTEST_S, WholeClips
from engine.worker.asr.word_times import WordTimes
from engine.worker.pace import OneFrame
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import request


class Counting(WholeClips):
    """Writes how many tenths of a second each clip lasts."""

    longest_s = 4.0

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return ears_info(config, ("en",))

    def __init__(self, config: StageConfig) -> None:
        super().__init__(config, clock=lambda: 0.0)
        self.batches: list[list[int]] = []

    def transcribe(self, clips: Sequence[Pcm]) -> Sequence[WordTimes]:
        self.batches.append([len(clip) for clip in clips])
        return [WordTimes(f"{len(clip) * 10 // MIC_RATE_HZ}") for clip in clips]


class Inventing(Counting):
    invents = True
    text = "[MUSIC]"

    def transcribe(self, clips: Sequence[Pcm]) -> Sequence[WordTimes]:
        super().transcribe(clips)
        return [WordTimes(self.text) for _ in clips]


def noise(seconds: float) -> Pcm:
    return np.random.default_rng(0).integers(-3000, 3000, round(seconds * MIC_RATE_HZ), np.int16)


class Hinted(Inventing):
    """Writes the keywords of each clip."""

    def transcribe_hinted(self, clips: Sequence[Pcm], hints: Sequence[SpeechHints]) -> Sequence[WordTimes]:
        assert len(clips) == len(hints)
        return [WordTimes(" ".join(hint.keywords)) for hint in hints]


def speaking(stage: WholeClips, *pieces: Pcm, **fields: Any) -> StageRequest:
    req = StageRequest(request(**fields), 0, OneFrame())
    stage.open(req)
    req.pending.extend(pieces)
    return req


def chunks(stage: WholeClips, req: StageRequest) -> Sequence[Chunk]:
    [result] = stage.step([req])
    assert not isinstance(result, Exception)
    return result


def test_a_growing_clip_is_transcribed_again_after_enough_new_sound() -> None:
    stage = Counting(StageConfig())
    req = speaking(stage)
    texts: list[str] = []
    for _ in range(20):
        req.pending.append(noise(0.2))
        texts += [chunk.text for chunk in chunks(stage, req) if isinstance(chunk, Transcript)]
    assert texts == ["10", "14", "18", "22", "26", "30", "34", "38"]


def test_all_who_speak_are_transcribed_in_one_batch() -> None:
    stage = Counting(StageConfig())
    stage.step([speaking(stage, noise(1)), speaking(stage, noise(2)), speaking(stage, noise(0.5))])
    assert stage.batches == [[MIC_RATE_HZ, 2 * MIC_RATE_HZ]], "the third has too little to say yet"


def test_a_clip_that_is_too_long_is_transcribed_in_parts_and_none_is_sent_alone() -> None:
    stage = Counting(StageConfig())
    req = speaking(stage, noise(5))
    assert not chunks(stage, req)
    assert not req.needs_input or req.state.samples < 3 * MIC_RATE_HZ
    req.pending.append(noise(1))
    [chunk] = chunks(stage, req)
    first, second = stage.batches
    assert sum(first) + sum(second) == 6 * MIC_RATE_HZ, "no sample is lost or heard twice"
    assert chunk == Transcript(" ".join(f"{size * 10 // MIC_RATE_HZ}" for size in (*first, *second)))


@pytest.mark.parametrize("pcm", [np.zeros(2 * MIC_RATE_HZ, np.int16), noise(SHORTEST_S / 2)])
def test_a_model_that_invents_words_gets_no_silence_and_nothing_too_short(pcm: Pcm) -> None:
    stage = Inventing(StageConfig())
    stage.step([speaking(stage, pcm)])
    assert not stage.batches


def test_each_clip_has_the_hints_of_its_own_session() -> None:
    stage = Hinted(StageConfig())
    quiet = speaking(stage, np.zeros(MIC_RATE_HZ, np.int16), hints=SpeechHints(keywords=("silence",)))
    oslo = speaking(stage, noise(1), hints=SpeechHints(keywords=("oslo",)))
    assert stage.step([quiet, speaking(stage, noise(1)), oslo]) == [[], [], [Transcript("oslo")]]


@pytest.mark.parametrize("kind", [Counting, Inventing])
def test_the_model_computes_once_before_anybody_speaks(kind: type[Counting]) -> None:
    stage = kind(StageConfig())
    stage.warm_up()
    assert stage.batches == [[2 * MIC_RATE_HZ]]


@pytest.mark.parametrize("kind", [Counting, Inventing])
@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (["hello"], r"transcribe must return WordTimes\(text\) for each clip, not a str"),
        ([WordTimes(b"hello")], r"transcribe must return WordTimes\(text\) for each clip, not a bytes"),  # type: ignore[arg-type]
        ("hello", r"transcribe must return a list with a WordTimes for each clip, not a str"),
        (WordTimes("hello"), r"transcribe must return a list with a WordTimes for each clip, not a WordTimes"),
        (None, r"transcribe must return a list with a WordTimes for each clip, not a NoneType"),
        ([], r"transcribe must return one WordTimes for each clip: 0 for 1 clips"),
    ],
)
def test_a_result_that_is_no_transcript_is_refused_before_anybody_speaks(
    kind: type[Counting], result: Any, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "transcribe", lambda self, clips: result)
    with pytest.raises(StageFailed, match=fault):
        kind(StageConfig()).warm_up()


def test_names_of_noises_are_no_words() -> None:
    stage = Inventing(StageConfig())
    assert stage.step([speaking(stage, noise(1))]) == [[]]
    assert stage.batches == [[MIC_RATE_HZ]]


@pytest.mark.parametrize(
    "text", ["You", "no " * 40, "It has many more words than anybody can say in the time of one second"]
)
def test_a_text_that_nobody_can_have_said_is_not_understood(text: str) -> None:
    stage = Inventing(StageConfig())
    stage.text = text
    req = speaking(stage, noise(1))
    req.ended = True
    assert stage.step([req]) == [[Transcript("", final=True, understood=False)]]
    stage.text = "Is it raining?"
    req = speaking(stage, noise(1))
    req.ended = True
    assert stage.step([req]) == [[Transcript("Is it raining?", final=True, understood=True)]]
