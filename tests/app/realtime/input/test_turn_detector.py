"""Turn detection: exact positions with a fake detector, real synthetic speech with the real one, and the echo guard."""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from app.realtime.input.echo_guard import EchoGuard
from app.realtime.input.playback_timeline import PlaybackTimeline
from app.realtime.input.turn_detector import (
    CHUNK,
    Silero,
    TurnConfig,
    TurnDetector,
    VoiceEvent,
    VoicePaused,
    VoiceResumed,
    VoiceStarted,
    VoiceStopped,
)
from app.realtime.ports import Vad
from engine.core import MIC_RATE_HZ, Pcm, Wave

SPOKEN = Path(__file__).parents[3] / "data" / "spoken"
CHUNK_MS = CHUNK * 1000 // MIC_RATE_HZ
PIECE = MIC_RATE_HZ // 50
SPEECH_RMS = 0.05


class Loudness:
    """A detector that takes a chunk's level for the probability of speech."""

    def probability(self, chunk: Wave) -> float:
        return float(min(1.0, np.abs(chunk).mean() * 2))


def level(probability: float, chunks: float = 1) -> Pcm:
    return np.full(int(chunks * CHUNK), probability / 2 * 32767, np.int16)


def turns(**config: float) -> TurnDetector:
    return TurnDetector(TurnConfig(**config), Loudness())  # type: ignore[arg-type]


class Guarded(TurnDetector):
    """A detector with the playback that its guard knows."""

    def __init__(self, vad: Vad | None = None) -> None:
        self.playback = PlaybackTimeline(2 * MIC_RATE_HZ)
        super().__init__(vad=vad, guard=EchoGuard(self.playback))

    def playing(self, pcm: Pcm) -> None:
        self.playback.playing(pcm, self.position)


def feed(detector: TurnDetector, pcm: Pcm, piece: int = PIECE) -> list[VoiceEvent]:
    return [event for at in range(0, len(pcm), piece) for event in detector.feed(pcm[at : at + piece])]


def test_a_turn_has_exact_positions() -> None:
    events = feed(turns(), np.concatenate([level(0, 20), level(1, 30), level(0, 30)]))
    voice_end = 50 * CHUNK_MS
    assert events == [VoiceStarted(20 * CHUNK_MS - 300), VoiceStopped(voice_end + 500, voice_end)]


def test_the_prefix_neither_precedes_the_stream_nor_reaches_into_the_turn_before() -> None:
    turn = np.concatenate([level(1, 10), level(0, 16)])
    events = feed(turns(prefix_padding_ms=700), np.concatenate([turn, turn]))
    stop = 10 * CHUNK_MS + 500
    assert events[0] == VoiceStarted(0)
    assert events[1] == VoiceStopped(stop, 10 * CHUNK_MS)
    assert events[2] == VoiceStarted(stop)


class Lingering(Loudness):
    """As the real detector does, it takes the first moments after a word for speech."""

    def __init__(self) -> None:
        self._after = 0

    def probability(self, chunk: Wave) -> float:
        self._after = 0 if super().probability(chunk) > 0.1 else self._after + 1
        return float(self._after < 3)


@pytest.mark.parametrize("room", [0.0, 0.02])  # the latter is heard beside the voice
@pytest.mark.parametrize("late", [0, 1, 100, 255, 256, 511])
def test_a_turn_ends_when_its_silence_is_over_wherever_the_chunks_lie(late: int, room: float) -> None:
    voice = np.concatenate([np.zeros(late, np.int16), level(1, 20)])
    rest = level(1, 30) * room * np.random.default_rng(late).normal(0, 1, 30 * CHUNK)
    detector = TurnDetector(TurnConfig(silence_duration_ms=500, pause_ms=200), Loudness())
    events = [(detector.position, event) for event in feed(detector, voice)]
    for at in range(0, 30 * CHUNK, 64):
        events += [(detector.position, event) for event in detector.feed(rest.astype(np.int16)[at : at + 64])]
    (_, start), (paused_at, pause), (stopped_at, stop) = events
    assert [type(one) for one in (start, pause, stop)] == [VoiceStarted, VoicePaused, VoiceStopped]
    assert isinstance(stop, VoiceStopped)
    assert abs(stop.speech_end_ms * 16 - len(voice)) < (CHUNK if room else 80)  # in a loud room the detector says
    for at, ms in ((paused_at, 200), (stopped_at, 500)):
        assert 0 <= at - (stop.speech_end_ms + ms) * 16 < 80, f"{ms} ms of silence"
    assert stop.audio_end_ms - stop.speech_end_ms in (500, 501)


def test_who_goes_on_at_the_last_moment_is_not_cut_off() -> None:
    """The detector has yet to say what that sound is: till then the turn is open."""
    silence = np.zeros(499 * MIC_RATE_HZ // 1000, np.int16)
    events = feed(turns(pause_ms=200), np.concatenate([level(1, 20), silence, level(1, 5)]), piece=64)
    assert [type(event) for event in events] == [VoiceStarted, VoicePaused, VoiceResumed]
    click = np.concatenate([level(1, 20), silence, level(1, 0.2), level(0, 3)])
    stop = feed(turns(), click, piece=64)[-1]
    assert stop == VoiceStopped(36 * CHUNK_MS, 20 * CHUNK_MS), "at the end of the chunk, which held no speech"


def test_the_end_of_a_word_in_a_chunk_without_speech_belongs_to_the_voice() -> None:
    stop = feed(turns(), np.concatenate([level(1, 20), level(1, 0.125), level(0, 30)]))[-1]
    assert stop == VoiceStopped(20 * CHUNK_MS + 504, 20 * CHUNK_MS + 4)


def test_only_a_voice_ends_a_pause() -> None:
    """What was understood meanwhile may ask for a longer silence, but takes back nothing that was told."""
    detector = turns(pause_ms=200)
    assert type(feed(detector, np.concatenate([level(1, 20), level(0, 8)]))[-1]) is VoicePaused
    detector.config = TurnConfig(silence_duration_ms=2_000, pause_ms=1_000)
    assert feed(detector, level(0, 4)) == []
    assert feed(detector, level(1, 1)) == [VoiceResumed()]


def test_a_dip_of_the_voice_delays_no_interruption() -> None:
    dips = np.concatenate([level(0.9, 2), level(0.4), level(0.9), level(0.4), level(0.9)])
    assert feed(turns(overlap_ms=6 * CHUNK_MS), dips) == [VoiceStarted(0)]
    begins_low = np.concatenate([level(0.4, 2), level(0.9, 4)])
    assert feed(turns(overlap_ms=6 * CHUNK_MS), begins_low) == []


@pytest.mark.parametrize("hiss", [0.0, 0.005])  # 40 dB below the voice is heard beside it, less is not
def test_the_end_of_the_voice_is_where_it_is_heard_last(hiss: float) -> None:
    voice = np.concatenate([level(1, 20), level(1, 0.5)])
    rest = level(hiss, 30) * np.where(np.arange(30 * CHUNK) % 2, 1, -1).astype(np.int16)
    detector = TurnDetector(TurnConfig(silence_duration_ms=480), Lingering())
    start, stop = feed(detector, np.concatenate([voice, rest]))
    assert start == VoiceStarted(0)
    assert isinstance(stop, VoiceStopped)
    assert stop.speech_end_ms == 20.5 * CHUNK_MS
    assert stop.audio_end_ms - stop.speech_end_ms == 480


def test_a_loud_room_leaves_the_end_to_the_detector() -> None:
    voice, rest = level(1, 20), level(0.05, 30)
    detector = TurnDetector(TurnConfig(silence_duration_ms=480), Lingering())
    stop = feed(detector, np.concatenate([voice, rest]))[1]
    assert isinstance(stop, VoiceStopped)
    assert stop.speech_end_ms == 22 * CHUNK_MS


def test_a_click_is_no_turn_and_a_breath_ends_none() -> None:
    assert feed(turns(), np.concatenate([level(0, 9), level(1), level(0, 9), level(1), level(0, 9)])) == []
    events = feed(turns(), np.concatenate([level(1, 9), level(0, 15), level(1, 9), level(0, 20)]))
    assert [type(event) for event in events] == [VoiceStarted, VoiceStopped]


def test_speech_goes_on_a_little_below_the_threshold_but_does_not_start_there() -> None:
    assert feed(turns(threshold=0.6), level(0.5, 40)) == []
    assert len(feed(turns(threshold=0.6), np.concatenate([level(0.9, 3), level(0.5, 60)]))) == 1
    assert len(feed(turns(threshold=0.6), np.concatenate([level(0.9, 3), level(0.4, 60)]))) == 2


def test_settings_change_while_it_listens() -> None:
    detector = turns()
    feed(detector, level(1, 10))
    detector.config = TurnConfig(silence_duration_ms=100)
    assert feed(detector, level(0, 4)) == [VoiceStopped(10 * CHUNK_MS + 100, 10 * CHUNK_MS)]


def test_a_silence_that_is_long_enough_already_ends_the_turn_with_the_next_piece() -> None:
    detector = turns()
    feed(detector, np.concatenate([level(1, 10), level(0, 5)]))
    detector.config = TurnConfig(silence_duration_ms=100)
    assert detector.feed(level(0, 0.25)) == [VoiceStopped(15 * CHUNK_MS, 10 * CHUNK_MS)]


def test_reset_forgets_an_open_turn_and_keeps_counting() -> None:
    detector = turns(prefix_padding_ms=1000)
    feed(detector, level(1, 10))
    assert detector._speaking
    detector.reset()
    assert not detector._speaking
    assert feed(detector, level(0, 30)) == []
    assert feed(detector, level(1, 3)) == [VoiceStarted(10 * CHUNK_MS)]
    assert detector.position == 43 * CHUNK


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_events_do_not_depend_on_how_the_samples_are_cut(data: st.DataObject) -> None:
    runs = data.draw(st.lists(st.tuples(st.sampled_from([0.0, 0.4, 0.9]), st.integers(1, 20_000)), max_size=8))
    pcm = np.concatenate([level(0, 0), *(np.full(n, p / 2 * 32767, np.int16) for p, n in runs)])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(pcm)), max_size=30)))
    whole, cut = Guarded(Loudness()), Guarded(Loudness())
    for detector in (whole, cut):
        detector.playing(level(0.1, 20))
    pieces = np.split(pcm, cuts)
    assert [event for piece in pieces for event in cut.feed(piece)] == whole.feed(pcm)
    assert cut.position == whole.position == len(pcm)


@cache
def speech(voice: str, number: int) -> Wave:
    """A recording of the test set at SPEECH_RMS, without the silence at its ends."""
    index = [entry for entry in json.loads((SPOKEN / "index.json").read_text()) if entry["voice"] == voice]
    wave, rate_hz = soundfile.read(SPOKEN / index[number]["file"], dtype="float32")
    assert rate_hz == MIC_RATE_HZ
    voiced = np.flatnonzero(np.abs(wave) > 0.02)
    wave = wave[voiced[0] : voiced[-1]]
    return wave * (SPEECH_RMS / np.sqrt(np.square(wave).mean()))


def pcm16(wave: Wave) -> Pcm:
    return (np.clip(wave, -1, 1) * 32767).astype(np.int16)


def hush(seconds: float) -> Wave:
    return np.zeros(int(seconds * MIC_RATE_HZ), np.float32)


@pytest.mark.parametrize("voice", ["slt", "awb", "kal16"])
def test_silero_finds_where_speech_is(voice: str) -> None:
    wave = speech(voice, 3)
    events = feed(TurnDetector(), pcm16(np.concatenate([hush(1), wave, hush(1)])))
    assert [type(event) for event in events] == [VoiceStarted, VoiceStopped]
    start, stop = events
    assert isinstance(start, VoiceStarted)
    assert isinstance(stop, VoiceStopped)
    end_ms = 1000 + len(wave) * 1000 // MIC_RATE_HZ
    assert 500 <= start.audio_start_ms <= 1000
    assert abs(stop.speech_end_ms - end_ms) < 200
    assert stop.audio_end_ms - stop.speech_end_ms in (500, 501)


@pytest.mark.parametrize("voice", ["slt", "awb", "kal16"])
def test_the_silence_after_a_turn_that_the_client_ended_in_mid_word_starts_no_turn(voice: str) -> None:
    wave = speech(voice, 3)
    for cut in range(MIC_RATE_HZ // 2, len(wave), MIC_RATE_HZ // 10):
        detector = TurnDetector()
        assert [type(event) for event in feed(detector, pcm16(wave[:cut]))] == [VoiceStarted]
        detector.restart(Silero())
        assert detector.position == cut
        assert not feed(detector, pcm16(hush(0.5)))


def test_speech_that_goes_on_after_a_restart_starts_a_turn_there() -> None:
    wave = speech("slt", 3)
    detector = TurnDetector()
    feed(detector, pcm16(wave[:MIC_RATE_HZ]))
    detector.restart(Silero())
    assert feed(detector, pcm16(wave[MIC_RATE_HZ:]))[0] == VoiceStarted(1000)


def pink(rng: np.random.Generator, n: int) -> Wave:
    spectrum = np.fft.rfft(rng.normal(size=n)) / np.sqrt(np.maximum(np.arange(n // 2 + 1), 1))
    wave = np.fft.irfft(spectrum, n)
    return (wave / np.sqrt(np.square(wave).mean())).astype(np.float32)


def clicks(rng: np.random.Generator, n: int) -> Wave:
    wave = np.zeros(n, np.float32)
    wave[rng.integers(0, n, n // 8000)] = 10
    return wave


NOISES = {
    "silence": lambda rng, n: np.zeros(n, np.float32),
    "hum": lambda rng, n: np.sin(2 * np.pi * 100 / MIC_RATE_HZ * np.arange(n)) + rng.normal(0, 0.1, n),
    "white": lambda rng, n: rng.normal(size=n),
    "pink": pink,
    "clicks": clicks,
}


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("rms", [0.003, 0.05])
def test_noise_starts_no_turn(kind: str, rms: float) -> None:
    noise = NOISES[kind](np.random.default_rng(1), 8 * MIC_RATE_HZ) * rms
    assert feed(TurnDetector(), pcm16(noise)) == []


def answer() -> Wave:
    """What plays: five seconds and more of speech."""
    return np.concatenate([speech("awb", n) for n in (3, 5, 8, 10)])


def echoed(wave: Wave, delay_ms: int, colour: str, noise_rms: float) -> Wave:
    """How the microphone hears ``wave`` at -20 dB."""
    rng = np.random.default_rng(delay_ms)
    match colour:
        case "room":
            tail = rng.normal(size=800) * np.exp(-np.arange(800) / 160)
            heard = np.convolve(wave, tail)[: len(wave)]
        case "dull":
            heard = np.convolve(wave, np.ones(8) / 8)[: len(wave)]
        case _:
            heard = wave
    heard = heard * (0.1 * np.sqrt(np.square(wave).mean() / np.square(heard).mean()))
    heard = np.concatenate([hush(delay_ms / 1000), heard, hush(0.3)])
    return (heard + rng.normal(0, noise_rms, len(heard))).astype(np.float32)


def converse(microphone: Wave, playback: Wave) -> list[tuple[int, VoiceEvent]]:
    """Both in real time, 20 ms by 20 ms: what was decided, and at which sample."""
    detector = Guarded()
    heard, played = pcm16(microphone), pcm16(playback)
    events: list[tuple[int, VoiceEvent]] = []
    for at in range(0, len(heard), PIECE):
        if len(piece := played[at : at + PIECE]):
            detector.playing(piece)
        events += [(detector.position, event) for event in detector.feed(heard[at : at + PIECE])]
    return events


@pytest.mark.parametrize(
    ("delay_ms", "colour", "noise_rms"),
    [
        (0, "plain", 0),
        (60, "room", 0.0005),
        (130, "dull", 0),
        (250, "room", 0.003),
        (400, "plain", 0.003),
        (500, "dull", 0),
    ],
)
def test_the_answers_echo_starts_no_turn(delay_ms: int, colour: str, noise_rms: float) -> None:
    wave = answer()
    assert converse(echoed(wave, delay_ms, colour, noise_rms), wave) == []


def test_without_the_guard_the_echo_does_start_a_turn() -> None:
    wave = answer()
    assert feed(TurnDetector(), pcm16(echoed(wave, 130, "plain", 0)))


@pytest.mark.parametrize("gain_db", [-6, 0, 6])
def test_a_user_is_heard_over_the_answer_and_its_echo(gain_db: int) -> None:
    wave, late_ms = answer(), []
    for number, at_s in enumerate((0.7, 2.1, 3.3, 4.2)):
        microphone = echoed(wave, 130, "room", 0.0005)
        user = speech(("slt", "kal16")[number % 2], number) * 10 ** (gain_db / 20)
        at = int(at_s * MIC_RATE_HZ)
        microphone[at : at + len(user)] += user[: len(microphone) - at]
        position = next(p for p, event in converse(microphone, wave) if isinstance(event, VoiceStarted))
        assert position > at
        late_ms.append((position - at) * 1000 // MIC_RATE_HZ)
    assert np.median(late_ms) <= 200
    assert max(late_ms) <= 350  # a word that starts softly


def test_what_was_flushed_and_has_faded_guards_no_more() -> None:
    detector, soft = Guarded(), pcm16(speech("slt", 3) * 0.1)
    detector.playing(pcm16(answer()))
    assert feed(detector, soft) == []
    detector.playback.stopped(detector.position)
    feed(detector, pcm16(hush(0.7)))
    assert feed(detector, soft)


def test_the_echo_of_an_answer_that_pauses_comes_later() -> None:
    wave = answer()[: 2 * MIC_RATE_HZ]
    heard = echoed(wave, 200, "plain", 0)
    detector = Guarded()
    detector.playing(pcm16(wave))
    assert feed(detector, pcm16(heard[: MIC_RATE_HZ // 2])) == []
    detector.playback.paused(detector.position)
    user = speech("slt", 3) * 0.1
    assert feed(detector, pcm16(np.concatenate([hush(0.7), user, hush(1)]))), "nothing plays that could drown the user"
    detector.playback.resumed(detector.position)
    assert feed(detector, pcm16(heard[MIC_RATE_HZ // 2 :])) == []


def test_pieces_announced_ahead_are_played_one_after_the_other() -> None:
    wave = answer()[: 4 * MIC_RATE_HZ]
    detector = Guarded()
    detector.playing(pcm16(wave[:MIC_RATE_HZ]))
    detector.playing(pcm16(wave[MIC_RATE_HZ:]))
    assert feed(detector, pcm16(echoed(wave, 200, "plain", 0))) == []


def test_a_microphone_that_was_off_is_not_measured_against_all_that_was_played_meanwhile() -> None:
    detector, soft, loud = Guarded(), pcm16(speech("slt", 3) * 0.1), pcm16(answer())
    for _ in range(20):
        detector.playing(loud)
    assert feed(detector, soft) == [], "what was played last may still sound"
    feed(detector, pcm16(hush(6)))
    assert feed(detector, soft)


@pytest.mark.bench
def test_listening_costs_little() -> None:
    wave = answer()
    microphone = echoed(wave, 130, "plain", 0.001)
    converse(microphone[: 4 * PIECE], wave)
    started = time.thread_time()
    converse(microphone, wave)
    chunks = len(microphone) / CHUNK
    assert (time.thread_time() - started) * 1000 / chunks < 1.0
