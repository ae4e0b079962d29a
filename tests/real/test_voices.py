"""Real voices: every word is said, and what is said can be heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.recognizers import faster_whisper, recorded, words_of
from engine.chunk import Audio, Checkpoint
from engine.core import SPEAKER_RATE_HZ, Wave
from engine.ipc import messages
from engine.training.nano.distance import edits
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.tts.clause_voice import Saying
from engine.worker.tts.joints import Piece, joined
from engine.worker.tts.voices import asked_voice
from tests.engine.fakes import opened, working
from tests.engine.worker.stages.tts.saying import in_pieces, whole

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

DROPPED = (
    "After ten minutes she opened the door, and that's the end.",
    "My brother's children don't like vegetables, but they'll eat carrots if we're having soup.",
    "The kilometers were counted by Kowalski in Oslo.",
)
"""Sentences of which Kokoro dropped words while it had its lexicon alone."""
UNKNOWN = (
    "minutes",
    "opened",
    "that's",
    "brother's",
    "we're",
    "kilometers",
    "kowalski",
    "elara",
    "nguyen",
    "siobhan",
    "zyx",
)


SONORANTS = "In May we may row along a narrow lane near a lonely mill in Rome"
"""A sentence without a plosive: a voice that speaks it at once makes no stop within it, on any processor."""
JOINT_S = 0.08
"""Seconds of silence at a joint that nobody hears. A joint keeps half of it."""


def stage_of(folder: Path, **options: Any) -> Any:
    return make("tts.sherpa", "voice", 0, StageConfig(weights=folder, slots=2, threads=2, options=options))


async def sound_of(stage: Any, text: str) -> Wave:
    return whole([emit.chunk for emit in await emits_of(stage, text) if isinstance(emit.chunk, Audio)])


async def emits_of(stage: Any, text: str) -> list[messages.Emit]:
    async with working(stage) as desk:
        desk.put(opened("a", "voice", credit=10_000), *(messages.Feed("a", piece) for piece in in_pieces(text)))
        desk.put(messages.End("a"))
        await desk.ended("a")
        return desk.of(messages.Emit, "a")


@pytest.fixture(params=["kokoro", "joe"])
def stage(request: pytest.FixtureRequest) -> Any:
    return stage_of(request.getfixturevalue(request.param))


async def test_no_word_is_dropped(stage: Any) -> None:
    """A word that is dropped adds no sound: with each unknown one, the sentence is longer."""
    known = {token for token in stage._voice.published.tokens if len(token) == 1}
    for word in UNKNOWN:
        phonemes = stage._pronounce(word)
        assert len(phonemes.strip("ˈˌ ")) >= 2, word
        assert set(phonemes) <= known, word
    short = await sound_of(stage, "They said it was good.")
    longer = await sound_of(stage, "They said Kowalski Kowalski Kowalski it was good.")
    assert len(longer) > len(short) + SPEAKER_RATE_HZ


async def test_words_that_were_dropped_are_heard(stage: Any, whisper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faster_whisper")
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # else its progress bar, although hidden, leaves a thread
    hear = faster_whisper(whisper)
    wrong = words = 0
    for text in DROPPED:
        wave = await sound_of(stage, text)
        heard = words_of(hear(recorded(wave)))
        wrong += edits(words_of(text), heard)
        words += len(words_of(text))
        assert abs(len(heard) - len(words_of(text))) <= 2, heard
    assert wrong <= 0.15 * words


@pytest.fixture(params=["kokoro", "joe"])
def stage_with_a_joint(request: pytest.FixtureRequest) -> Any:
    """A voice that speaks SONORANTS in two clauses, however fast it is."""
    return stage_of(request.getfixturevalue(request.param), first_words=6)


def longest_stop_s(wave: Wave, rate_hz: int) -> float:
    """Return the longest silence between two sounds."""
    return float(np.diff(np.flatnonzero(np.abs(wave) > 0.01)).max()) / rate_hz


async def stop_of_joints_s(stage: Any) -> float:
    """Return how much longer the longest stop of SONORANTS is in clauses than spoken at once by the library."""
    voice = asked_voice(None, stage.info.facets.voices)
    at_once = np.concatenate([wave for wave, _ in stage.pieces(Saying(stage.wording(SONORANTS), voice))])
    emits = await emits_of(stage, SONORANTS)
    assert sum(isinstance(one, Checkpoint) for emit in emits for one in emit.kept) == 2, "it has one joint"
    in_clauses = whole([emit.chunk for emit in emits if isinstance(emit.chunk, Audio)])
    return longest_stop_s(in_clauses, SPEAKER_RATE_HZ) - longest_stop_s(at_once, stage.rate_hz)


async def test_a_sentence_has_no_pause_within_a_phrase(stage_with_a_joint: Any) -> None:
    assert await stop_of_joints_s(stage_with_a_joint) < JOINT_S


async def test_a_pause_at_a_joint_is_found(stage_with_a_joint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def after_a_pause(pieces: Iterable[Piece], rate_hz: int, begins_within: bool, ends_within: bool) -> Iterator[Piece]:
        if begins_within:
            yield np.zeros(round(0.12 * rate_hz), np.float32), 0.0
        yield from joined(pieces, rate_hz, begins_within, ends_within)

    monkeypatch.setattr("engine.worker.tts.clause_voice.joined", after_a_pause)
    assert await stop_of_joints_s(stage_with_a_joint) > JOINT_S
