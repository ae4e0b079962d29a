"""Simulate rooms with a loudspeaker, a user, a television and other voices, for benchmarks of the microphone's signal.

    python -m benchmarks.rooms out/people out/scenes        # writes one scene of each kind as WAV files, to listen to

The same seed gives the same scene. People are the human recordings of ``benchmarks.turn_recordings``. The assistant's
voice is synthetic: the recordings of tests/data/spoken. A scene's microphone receives the sum of

user        sentences of one person, 50 cm from the microphone, at a level of -26 dBFS
echo        the playback after the loudspeaker (band limits and soft clipping), the room, and a delay of 50 to 400 ms.
            The loudspeaker's clock is 50 ppm faster than the microphone's.
noise       one of NOISES, from its own place in the room

Rooms are shoebox rooms whose responses the image-source method computes (Allen and Berkley, 1979). The walls reflect
all frequencies alike, nobody moves, and there is no directivity, so real rooms differ.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray
from scipy.signal import fftconvolve, firwin, resample_poly

from engine import MIC_RATE_HZ
from engine.core import Pcm
from engine.training.nano.conditions import pink, speech_level
from engine.training.nano.eval_ears import SPOKEN, read

Samples = NDArray[np.float64]
Place = tuple[float, float, float]

DELAYS_MS = (50, 125, 200, 300, 400)
DRIFT_PPM = 50.0
LEVEL = 10 ** (-26 / 20)
"""Level of the user's voice at the microphone, as a fraction of full scale; the assistant's voice when it is sent."""
NOISES = ("competing", "television", "babble", "music", "steady")
FLOOR_DB = -40.0
"""Level of the room's own pink noise below the user."""
_SPEED_M_S = 343.0
_VOICES_IN_BABBLE = 6
_DRIVE = 2.0
"""Gain before the soft clipping. A voice's peaks, at 0.5 of full scale, are then compressed by 2.4 dB."""


@dataclass(frozen=True, slots=True)
class Room:
    """A room, in metres and seconds, with the place of everything that sounds in it."""

    name: str
    size: Place
    absorption: float
    """Part of the sound's energy that a wall absorbs."""
    decay_s: float
    """Resulting reverberation time, until the sound has fallen by 60 dB."""
    microphone: Place
    loudspeaker: Place
    user: Place
    television: Place
    other: Place
    """The place of a second talker."""


ROOMS = (
    Room(
        "kitchen",
        size=(3.6, 3.0, 2.5),
        absorption=0.235,
        decay_s=0.45,
        microphone=(1.2, 1.4, 1.0),
        loudspeaker=(1.25, 1.45, 1.05),
        user=(1.6, 1.6, 1.3),
        television=(3.3, 0.4, 1.2),
        other=(2.6, 2.4, 1.5),
    ),
    Room(
        "living room",
        size=(5.5, 4.2, 2.6),
        absorption=0.375,
        decay_s=0.35,
        microphone=(2.0, 2.1, 0.8),
        loudspeaker=(2.1, 2.15, 0.8),
        user=(2.3, 2.4, 1.1),
        television=(5.2, 2.0, 1.0),
        other=(4.0, 3.2, 1.2),
    ),
    Room(
        "office",
        size=(4.2, 3.4, 2.7),
        absorption=0.41,
        decay_s=0.25,
        microphone=(1.5, 1.2, 0.9),
        loudspeaker=(1.8, 1.2, 0.9),
        user=(1.6, 1.65, 1.2),
        television=(3.9, 3.0, 1.2),
        other=(3.0, 2.2, 1.2),
    ),
)


@dataclass(frozen=True, slots=True)
class Line:
    """Something that a person says: ``wave`` has the level 1 while they speak, without silence around it."""

    text: str
    speaker: str
    language: str
    wave: Samples


@dataclass(frozen=True, slots=True)
class Said:
    """A line of the user in a scene: the samples of the microphone where it begins and ends."""

    text: str
    speaker: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Scene:
    """All signals are int16 [samples] at MIC_RATE_HZ, of one length, and on the microphone's clock."""

    microphone: Pcm
    playback: Pcm
    """What the server plays; silence between answers."""
    user: Pcm
    """The microphone's signal without echo, with the room's own noise."""
    said: tuple[Said, ...]
    answers: tuple[tuple[int, int], ...]
    """Where each answer of the playback begins and ends."""
    delay: int
    """Samples from the playback to its echo."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a scene's microphone receives besides the user. Levels are in dB relative to the user's voice."""

    room: Room = ROOMS[1]
    delay_ms: float = 125.0
    drift_ppm: float = DRIFT_PPM
    echo_db: float | None = 0.0
    """None: headphones."""
    noise: str | None = None
    noise_db: float = -5.0
    pauses_s: tuple[float, float] = (2.0, 5.0)
    """Shortest and longest pause between two lines of the user."""
    stops_s: float | None = None
    """Seconds after which an answer is silent once the user speaks, until they have ended; None: it goes on."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("people", type=Path, help="folder of benchmarks.turn_recordings")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=52)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    user, others = users(lines(asked.people))
    for noise in (None, *NOISES):
        made = scene(Conditions(noise=noise), user, others, seconds=30, seed=asked.seed)
        for name in ("microphone", "playback", "user"):
            soundfile.write(asked.out / f"{noise or 'echo'}-{name}.wav", getattr(made, name), MIC_RATE_HZ)


def lines(folder: Path, fit: bool | None = None) -> list[Line]:
    """Return the human recordings of ``benchmarks.turn_recordings``, or the half for fitting or the one held out."""
    found: list[Line] = []
    for entry in json.loads((folder / "index.json").read_text()):
        if fit is not None and entry["fit"] is not fit:
            continue
        pcm, _ = soundfile.read(folder / entry["file"], dtype="float64")
        found.append(Line(entry["text"], entry["speaker"], entry["language"], even(pcm)))
    return found


def users(people: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """Return the lines of English users, and those of the people around them, who speak other languages."""
    user = [one for one in people if one.language == "en"]
    return user, [one for one in people if one.language != "en"]


@cache
def assistant() -> tuple[Samples, ...]:
    """Return the assistant's sentences, at level 1."""
    return tuple(even(one.pcm / 32768) for one in read(SPOKEN) if len(one.pcm) > MIC_RATE_HZ)


def scene(conditions: Conditions, user: Sequence[Line], others: Sequence[Line], seconds: float, seed: int) -> Scene:
    """Simulate answers of 6 to 15 s, while the user says lines of ``user``, if any. ``others`` speak in the noise."""
    rng = np.random.default_rng(seed)
    count = round(seconds * MIC_RATE_HZ)
    playback, answers = _answers(count, rng)
    spoken, said = _user(user, conditions.pauses_s, count, rng) if user else (np.zeros(count), ())
    if conditions.stops_s is not None:
        for line in said:
            playback[line.start + round(conditions.stops_s * MIC_RATE_HZ) : line.end + MIC_RATE_HZ // 2] = 0
    room = conditions.room
    floor = pink(count, rng)
    alone = LEVEL * (_heard(spoken, room, room.user) + floor / _level(floor) * 10 ** (FLOOR_DB / 20))
    microphone = alone.copy()
    if conditions.echo_db is not None:
        microphone += echo(playback, conditions)
    if conditions.noise is not None:
        noise = _noise(conditions.noise, room, others, count, rng)
        microphone += LEVEL * noise / _level(noise) * 10 ** (conditions.noise_db / 20)
    delay = round(conditions.delay_ms * MIC_RATE_HZ / 1000)
    return Scene(_pcm(microphone), _pcm(playback), _pcm(alone), said, answers, delay)


def echo(playback: Samples, conditions: Conditions) -> Samples:
    """Return the playback as the microphone hears it, as loud as LEVEL and ``echo_db`` while the assistant speaks."""
    late = round(conditions.delay_ms * MIC_RATE_HZ / 1000)
    played = drifted(loudspeaker(playback), conditions.drift_ppm)
    heard = _heard(played, conditions.room, conditions.room.loudspeaker)
    delayed = np.concatenate([np.zeros(late), heard])[: len(playback)]
    return delayed * LEVEL * 10 ** ((conditions.echo_db or 0.0) / 20) / speech_level(delayed)


def loudspeaker(wave: Samples) -> Samples:
    """Return a wave as a small loudspeaker plays it: from 150 Hz to 6.5 kHz, with soft clipping."""
    band = firwin(255, (150, 6500), pass_zero=False, fs=MIC_RATE_HZ)
    limited = fftconvolve(wave, band, "same")
    return np.tanh(_DRIVE * limited) / _DRIVE


def drifted(wave: Samples, ppm: float) -> Samples:
    """Return a wave as a clock plays it that is faster by ``ppm`` millionths, at the same number of samples."""
    fine = resample_poly(wave, 4, 1)
    at = 4 * np.arange(len(wave)) * (1 + ppm * 1e-6)
    return np.interp(at, np.arange(len(fine)), fine)


@cache
def impulse_response(room: Room, source: Place) -> Samples:
    """Return the response from a place to the room's microphone by the image-source method, without its delay."""
    count = round(room.decay_s * MIC_RATE_HZ)
    reach = [int(room.decay_s * _SPEED_M_S / (2 * side)) + 1 for side in room.size]
    reflection = np.sqrt(1 - room.absorption)
    axes = [_images(*one) for one in zip(room.size, source, room.microphone, reach, strict=True)]
    (dx, nx), (dy, ny), (dz, nz) = axes
    distance = np.sqrt(dx[:, None, None] ** 2 + dy[None, :, None] ** 2 + dz[None, None, :] ** 2).ravel()
    bounces = (nx[:, None, None] + ny[None, :, None] + nz[None, None, :]).ravel()
    at = distance * MIC_RATE_HZ / _SPEED_M_S
    near = at < count - 1
    at, gain = at[near], (reflection**bounces / distance)[near]
    whole = at.astype(int)
    response = np.bincount(whole, gain * (1 - at + whole), count) + np.bincount(whole + 1, gain * (at - whole), count)
    response = response[int(at.min()) :]
    return response / np.abs(response).max()


def _images(side: float, source: float, microphone: float, reach: int) -> tuple[Samples, NDArray[np.int64]]:
    """Return the distances of a source's images along one axis, and how often a wall reflected each."""
    order = np.arange(-reach, reach + 1)
    distances = np.concatenate([2 * order * side + source - microphone, 2 * order * side - source - microphone])
    return distances.astype(np.float64), np.concatenate([np.abs(2 * order), np.abs(2 * order - 1)])


def _answers(count: int, rng: np.random.Generator) -> tuple[Samples, tuple[tuple[int, int], ...]]:
    wave, spans, at = np.zeros(count), list[tuple[int, int]](), MIC_RATE_HZ
    sentences = assistant()
    while at < count - 6 * MIC_RATE_HZ:
        start, end = at, at + round(rng.uniform(6, 15) * MIC_RATE_HZ)
        while at < min(end, count):
            line = sentences[int(rng.integers(len(sentences)))][: count - at]
            wave[at : at + len(line)] = 2 * LEVEL * line
            at += len(line) + round(rng.uniform(0.1, 0.4) * MIC_RATE_HZ)
        spans.append((start, min(at, count)))
        at += round(rng.uniform(1.0, 2.5) * MIC_RATE_HZ)
    return np.clip(wave, -1, 1), tuple(spans)


def _user(
    people: Sequence[Line], pauses_s: tuple[float, float], count: int, rng: np.random.Generator
) -> tuple[Samples, tuple[Said, ...]]:
    wave, said, at = np.zeros(count), list[Said](), round(4 * MIC_RATE_HZ)
    while True:
        line = people[int(rng.integers(len(people)))]
        end = at + len(line.wave)
        if end + MIC_RATE_HZ > count:
            return wave, tuple(said)
        wave[at:end] = line.wave
        said.append(Said(line.text, line.speaker, at, end))
        at = end + round(rng.uniform(*pauses_s) * MIC_RATE_HZ)


def _noise(kind: str, room: Room, others: Sequence[Line], count: int, rng: np.random.Generator) -> Samples:
    match kind:
        case "competing":
            speaker = others[int(rng.integers(len(others)))].speaker
            lines = [one for one in others if one.speaker == speaker]
            return _heard(_talking(lines, (0.2, 1.0), count, rng), room, room.other)
        case "television":
            programme = _talking(others, (0.1, 0.6), count, rng) + 0.5 * _music(count, rng)
            return _heard(loudspeaker(0.1 * programme), room, room.television)
        case "babble":
            voices = (_talking(others, (0.0, 0.3), count, rng) for _ in range(_VOICES_IN_BABBLE))
            corners = ((0.3 + 0.5 * n, room.size[1] - 0.4, 1.5) for n in range(_VOICES_IN_BABBLE))
            return sum(
                (_heard(wave, room, place) for wave, place in zip(voices, corners, strict=True)), np.zeros(count)
            )
        case "music":
            return _heard(loudspeaker(0.1 * _music(count, rng)), room, room.television)
        case "steady":
            return pink(count, rng)
        case _:
            raise ValueError(f"unknown noise {kind!r}")


def _talking(lines: Sequence[Line], pauses_s: tuple[float, float], count: int, rng: np.random.Generator) -> Samples:
    """Return voices that say one line after the other."""
    wave, at = np.zeros(count), 0
    while at < count:
        line = lines[int(rng.integers(len(lines)))].wave[: count - at]
        wave[at : at + len(line)] = line
        at += len(line) + round(rng.uniform(*pauses_s) * MIC_RATE_HZ)
    return wave


def _music(count: int, rng: np.random.Generator) -> Samples:
    """Generate four chords, a melody with vibrato, and a beat, at the level 1."""
    wave = np.zeros(count)
    t = np.arange(int(1.2 * MIC_RATE_HZ)) / MIC_RATE_HZ
    decay = np.exp(-3 * t)
    beat = MIC_RATE_HZ // 2
    hit = 2 * np.exp(-60 * t) * rng.standard_normal(len(t))
    chords = ((220.0, 261.6, 329.6), (174.6, 220.0, 261.6), (196.0, 246.9, 293.7), (261.6, 329.6, 392.0))
    for number, at in enumerate(range(0, count, beat)):
        chord = chords[number // 4 % len(chords)]
        tremble = t + 0.004 / (2 * np.pi * 5) * np.sin(2 * np.pi * 5 * t)
        tones = [(f, t, 1.0) for f in chord] + [(2 * chord[rng.integers(3)], tremble, 1.5)]
        note = hit + sum(g * decay * np.sin(2 * np.pi * f * h * when) / h for f, when, g in tones for h in range(1, 7))
        wave[at : at + len(t)] += note[: count - at]
    return wave / _level(wave)


def _heard(wave: Samples, room: Room, source: Place) -> Samples:
    return fftconvolve(wave, impulse_response(room, source))[: len(wave)]


def even(wave: NDArray[Any]) -> Samples:
    """Return a recording at the level 1, without silence around it."""
    wave = np.asarray(wave, np.float64)
    loud = np.flatnonzero(np.abs(wave) > np.abs(wave).max() / 30)
    wave = wave[loud[0] : loud[-1] + 1]
    return wave / speech_level(wave)


def _level(wave: Samples) -> float:
    return float(np.sqrt(np.square(wave).mean()))


def _pcm(wave: Samples) -> Pcm:
    return (np.clip(wave, -1, 1) * 32767).astype(np.int16)


if __name__ == "__main__":
    main()
