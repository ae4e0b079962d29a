"""Cleaned sound: as much of it as went in, in time with it, whatever the pieces; and voices that never pause."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from app.realtime.input import noise_reduction
from app.realtime.input.babble_floor import HISTORY, SHARE, BabbleFloor
from app.realtime.input.frames import FRAME
from app.realtime.input.noise_reduction import Cleaner, cleaner
from app.realtime.input.turn_detector import CHUNK, TurnConfig, TurnDetector, VoiceStarted, VoiceStopped
from engine.core import MIC_RATE_HZ, Pcm


def noise(seconds: float, level: float = 600.0) -> Pcm:
    return np.random.default_rng(3).normal(0, level, int(seconds * MIC_RATE_HZ)).astype(np.int16)


def through(one: Cleaner, pcm: Pcm, piece: int) -> Pcm:
    pieces = [pcm[at : at + piece] for at in range(0, len(pcm), piece)]
    cleaned = [one.clean(piece) for piece in pieces]
    assert [len(one) for one in cleaned] == [len(one) for one in pieces]
    return np.concatenate(cleaned)


def power(pcm: Pcm) -> float:
    return float(np.square(pcm.astype(np.float64)).mean())


@pytest.mark.parametrize(("field", "strength"), [(None, 1.0), ("near_field", 0.0)])
def test_no_field_and_no_strength_leave_the_sound_as_it_is(
    field: noise_reduction.Field | None, strength: float
) -> None:
    pcm = noise(0.1)
    assert cleaner(field, strength).clean(pcm) is pcm


def test_a_missing_library_leaves_the_sound_as_it_is_and_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(noise_reduction, "available", lambda: False)
    monkeypatch.setattr(noise_reduction, "log", lambda event, **_: logged.append(event))
    noise_reduction._report_missing.cache_clear()
    pcm = noise(0.1)
    assert cleaner(None).clean(pcm) is pcm
    assert logged == []
    for _ in range(2):
        assert cleaner("near_field").clean(pcm) is pcm
    assert logged == ["noise_reduction.unavailable"]
    noise_reduction._report_missing.cache_clear()


@pytest.mark.parametrize("strength", [1.0, 0.1])
def test_steady_noise_is_6_db_softer(strength: float) -> None:
    pcm = noise(4)
    after = through(cleaner("near_field", strength), pcm, 320)
    assert 10 * np.log10(power(pcm) / power(after[2 * MIC_RATE_HZ :])) == pytest.approx(6, abs=1)


def test_a_gain_lifts_what_is_far() -> None:
    t = np.arange(6 * MIC_RATE_HZ) / MIC_RATE_HZ
    voice = 100 * np.sin(2 * np.pi * (200 + 20 * np.sin(2 * np.pi * 4 * t)) * t) * (np.sin(2 * np.pi * 2 * t) > 0)
    pcm = voice.astype(np.int16)
    near, far = (through(cleaner(field), pcm, 320)[3 * MIC_RATE_HZ :] for field in ("near_field", "far_field"))
    assert power(far) > 10 * power(near)


def late_by(before: Pcm, after: Pcm) -> int:
    x, y = before.astype(np.float64), after.astype(np.float64)
    return int(np.argmax([np.dot(x[: len(x) - late], y[late:]) for late in range(3 * FRAME)]))


@pytest.mark.parametrize(("piece", "waits"), [(320, 0), (310, FRAME), (2560, 0), (7, FRAME), (512, FRAME)])
def test_the_delay_is_the_algorithms_for_pieces_of_whole_frames(piece: int, waits: int) -> None:
    t = np.arange(2 * MIC_RATE_HZ) / MIC_RATE_HZ
    voice = (6000 * np.sin(2 * np.pi * (200 + 300 * t) * t) * (np.sin(2 * np.pi * 3 * t) > 0)).astype(np.int16)
    assert late_by(voice, through(cleaner("near_field"), voice, piece)) <= 0.006 * MIC_RATE_HZ + waits


def test_a_first_piece_that_is_short_makes_no_later_one_wait() -> None:
    one, pcm = cleaner("near_field"), noise(1)
    sizes = [310] + [320] * 20
    at = np.cumsum([0, *sizes])
    after = [one.clean(pcm[begin:end]) for begin, end in pairwise(at)]
    assert [len(piece) for piece in after] == sizes
    assert late_by(pcm[: at[-1]], np.concatenate(after)) <= 0.006 * MIC_RATE_HZ


def test_voices_that_never_pause_are_the_floor_and_others_are_not() -> None:
    floor = BabbleFloor()
    steady = np.divide(noise(10), 32768, dtype=np.float32)
    chunks = [steady[at : at + CHUNK] for at in range(0, len(steady) - CHUNK, CHUNK)]
    above = [floor.above_db(chunk, voiced=True) for chunk in chunks]
    first = int((1 - SHARE) * HISTORY)  # so many voices without a pause are nobody's speech
    assert min(above[: first - 1]) > 30
    assert max(above[first + 10 :]) < 3
    assert floor.above_db(np.multiply(chunks[0], 10, dtype=np.float32), voiced=True) > 15
    pausing = BabbleFloor()  # who is silent for half of the time; what is no voice does not count, however loud
    assert min(pausing.above_db(chunk, voiced=at % 60 < 30) for at, chunk in enumerate(chunks)) > 30
    for _ in range(HISTORY):
        floor.above_db(chunks[0], voiced=False)
    assert floor.above_db(chunks[0], voiced=True) > 30


class Eager:
    """Takes everything for speech, as the network does with babble."""

    def probability(self, chunk: object) -> float:
        return 1.0


def test_with_a_margin_babble_ends_the_turn_that_it_began_and_begins_no_other() -> None:
    babble, voice = noise(8), (np.sin(np.arange(MIC_RATE_HZ) / 5) * 9000).astype(np.int16)

    def events(margin_db: float) -> list[str]:
        detector = TurnDetector(TurnConfig(margin_db=margin_db), vad=Eager())
        pcm = np.concatenate([babble, babble[: len(voice)] + voice, babble])
        found = [event for at in range(0, len(pcm), 320) for event in detector.feed(pcm[at : at + 320])]
        return [type(event).__name__ for event in found if isinstance(event, VoiceStarted | VoiceStopped)]

    assert events(0.0) == ["VoiceStarted"]
    assert events(8.0) == ["VoiceStarted", "VoiceStopped"] * 2
