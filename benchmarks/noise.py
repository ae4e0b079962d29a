"""Measure the benefit and cost of ``noise_reduction``: false turns, recognized words, delay and computing time.

    python -m benchmarks.noise [--minutes 3] [--part 1/12] [--seed 2]

Noise is 5 dB below the voice and generated here: babble of 3, 8 and 16 recorded voices, music (chords, a melody with
vibrato, a beat) and typing. A single reading voice is not noise, so its turns should not change. Each sound first plays
alone for minutes: false starts per minute, and seconds per minute in which a turn is open. Then a user speaks every few
seconds: how many sentences lie in a turn of their own, the number of turns, and the seconds per minute with an open
turn. Words are recognized by nano on every n-th recording of tests/data/spoken, in noise and clean. The delay is the
maximum of the cross-correlation with the input, for several piece sizes; the time is that of 10 ms of audio.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.realtime.input.frames import FRAME
from app.realtime.input.noise_reduction import MARGIN_DB, Cleaner, Field, cleaner
from app.realtime.input.turn_detector import TurnConfig, TurnDetector, VoiceStarted, VoiceStopped
from engine.core import MIC_RATE_HZ, Pcm
from engine.training.nano.conditions import level, speech_level, with_noise
from engine.training.nano.eval_ears import SPOKEN, Recording, alone, read
from engine.worker.models.nano.ears import Ears
from engine.worker.stage import StageConfig

Samples = NDArray[np.float64]
VOICE = 0.05 * 32768  # the level of a user's voice, 26 dB below full scale
SNR_DB = 5.0
PIECE = MIC_RATE_HZ // 50
PIECES = (FRAME, PIECE, 128, 310, 512, 1024)
"""Samples that clients send at once: multiples of 10 ms, and the sizes of some browsers and drivers."""
SETTINGS: dict[str, Field | None] = {"off": None, "near_field": "near_field", "far_field": "far_field"}


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns that a detector found, as spans in samples."""

    spans: tuple[tuple[int, int], ...]
    minutes: float

    @property
    def starts(self) -> float:
        """Turns per minute."""
        return len(self.spans) / self.minutes

    @property
    def open_s(self) -> float:
        """Seconds per minute in which a turn is open."""
        return sum(end - start for start, end in self.spans) / MIC_RATE_HZ / self.minutes

    def holding(self, sentences: Sequence[tuple[int, int]]) -> int:
        """Return how many sentences lie within one turn that contains no other sentence."""
        held = [[s for s in sentences if start <= s[0] and s[1] <= end] for start, end in self.spans]
        return sum(len(one) == 1 for one in held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0, help="of each sound")
    parser.add_argument("--seed", type=int, default=2, help="of the noise; the settings were chosen with 1")
    parser.add_argument("--part", default="1/12", help="i/n: the words of every n-th recording, from the i-th")
    args = parser.parse_args()
    recordings = read(SPOKEN)
    first, every = map(int, args.part.split("/"))
    noises = made(recordings, int(args.minutes * 60) * MIC_RATE_HZ, args.seed)
    console = Console(width=150)
    console.print(turns_table(noises, recordings))
    console.print(words_table(noises, [r for r in recordings[first - 1 :: every] if r.expect is not None]))
    console.print(cost_table(recordings[0].pcm))


def made(recordings: Sequence[Recording], count: int, seed: int) -> dict[str, Samples]:
    """Return each noise at its level; deterministic."""
    rng = np.random.default_rng(seed)
    sounds = {f"babble of {voices}": babble(recordings, voices, count, rng) for voices in (3, 8, 16)}
    sounds["one who reads"] = babble(recordings, 1, count, rng)
    sounds |= {"music": music(count, rng), "keys": keys(count, rng)}
    return {name: sound * VOICE * 10 ** (-SNR_DB / 20) / level(sound) for name, sound in sounds.items()}


def babble(recordings: Sequence[Recording], voices: int, count: int, rng: np.random.Generator) -> Samples:
    """Mix several equally loud voices that read the recordings with short pauses."""
    sound = np.zeros(count)
    for _ in range(voices):
        at = -int(3 * MIC_RATE_HZ * rng.random())  # starts before the beginning
        while at < count:
            line = recordings[int(rng.integers(len(recordings)))].pcm.astype(np.float64)
            line /= speech_level(line)
            begin, end = max(at, 0), min(at + len(line), count)
            if begin < end:
                sound[begin:end] += line[begin - at : end - at]
            at += len(line)
    return sound


def music(count: int, rng: np.random.Generator) -> Samples:
    """Generate four chords, a melody with vibrato, and a beat."""
    sound = np.zeros(count)
    t = np.arange(int(1.2 * MIC_RATE_HZ)) / MIC_RATE_HZ
    decay, beat = np.exp(-3 * t), MIC_RATE_HZ // 2
    hit = 2 * np.exp(-60 * t) * rng.standard_normal(len(t))
    chords = ((220.0, 261.6, 329.6), (174.6, 220.0, 261.6), (196.0, 246.9, 293.7), (261.6, 329.6, 392.0))
    for number, at in enumerate(range(0, count, beat)):
        chord = chords[number // 4 % len(chords)]
        tremble = t + 0.004 / (2 * np.pi * 5) * np.sin(2 * np.pi * 5 * t)
        tones = [(f, t, 1.0) for f in chord] + [(2 * chord[rng.integers(3)], tremble, 1.5)]
        note = hit + sum(g * decay * np.sin(2 * np.pi * f * h * when) / h for f, when, g in tones for h in range(1, 7))
        sound[at : at + len(t)] += note[: count - at]
    return sound


def keys(count: int, rng: np.random.Generator) -> Samples:
    """Generate typing: a click for each key press, a softer one for its release, and the desk's resonance."""
    sound = np.zeros(count)
    t = np.arange(int(0.03 * MIC_RATE_HZ)) / MIC_RATE_HZ
    at = 0
    while at < count - MIC_RATE_HZ:
        for delay_s, loud in ((0.0, 1.0), (rng.uniform(0.06, 0.12), 0.5)):
            begin = at + int(delay_s * MIC_RATE_HZ)
            click = np.exp(-t / 0.004) * rng.standard_normal(len(t)) * rng.uniform(0.5, 1)
            desk = 0.6 * np.exp(-t / 0.008) * np.sin(2 * np.pi * rng.uniform(300, 900) * t)
            sound[begin : begin + len(t)] += loud * (click + desk)
        at += int(rng.uniform(0.08, 0.3) * MIC_RATE_HZ)
    return sound


def turns_table(noises: dict[str, Samples], recordings: Sequence[Recording]) -> Table:
    count = len(next(iter(noises.values())))
    user, sentences = speaking(recordings, count)
    table = Table("sound", "noise_reduction", "starts/min", "open s/min", "sentences in a turn", "turns", "open s/min")
    for name, noise in {"no noise": np.zeros(count), **noises}.items():
        for setting, margin_db in (("off", 0.0), ("on", MARGIN_DB)):
            without, within = turns(pcm_of(noise), margin_db), turns(pcm_of(noise + user), margin_db)
            held = f"{within.holding(sentences)} of {len(sentences)}"
            shown = (
                f"{without.starts:.1f}",
                f"{without.open_s:.1f}",
                held,
                str(len(within.spans)),
                f"{within.open_s:.1f}",
            )
            table.add_row(name, setting, *shown)
    return table


def speaking(recordings: Sequence[Recording], count: int) -> tuple[Samples, list[tuple[int, int]]]:
    """Return a user who speaks a sentence every two seconds, and the position of each sentence."""
    user, at, sentences = np.zeros(count), 5 * MIC_RATE_HZ, list[tuple[int, int]]()
    for recording in recordings[::14]:
        line = recording.pcm.astype(np.float64)
        loud = np.flatnonzero(np.abs(line) > np.abs(line).max() / 50)
        line = line[loud[0] : loud[-1] + 1]
        if at + len(line) + MIC_RATE_HZ > count:
            break
        user[at : at + len(line)] = line * VOICE / level(line)
        sentences.append((at + MIC_RATE_HZ // 5, at + len(line) - MIC_RATE_HZ // 5))  # without a soft beginning or end
        at += len(line) + 2 * MIC_RATE_HZ
    return user, sentences


def turns(pcm: Pcm, margin_db: float) -> Turns:
    """Detect turns as a session with this margin does."""
    detector = TurnDetector(TurnConfig(margin_db=margin_db))
    spans, start = list[tuple[int, int]](), None
    for at in range(0, len(pcm), PIECE):
        for event in detector.feed(pcm[at : at + PIECE]):
            match event:
                case VoiceStarted(audio_start_ms=ms):
                    start = ms * MIC_RATE_HZ // 1000
                case VoiceStopped(audio_end_ms=ms) if start is not None:
                    spans.append((start, ms * MIC_RATE_HZ // 1000))
                    start = None
                case _:
                    pass
    if start is not None:
        spans.append((start, len(pcm)))
    return Turns(tuple(spans), len(pcm) / MIC_RATE_HZ / 60)


def words_table(noises: dict[str, Samples], recordings: Sequence[Recording]) -> Table:
    ears = Ears(StageConfig())
    crowd = noises["babble of 8"]

    def in_babble(pcm: Pcm) -> Pcm:
        noise = crowd[: len(pcm)]
        return pcm_of(pcm + noise * speech_level(pcm.astype(np.float64)) / level(noise) * 10 ** (-SNR_DB / 20))

    conditions: dict[str, Callable[[Pcm], Pcm]] = {
        "clean": lambda pcm: pcm,
        "steady noise, 10 dB": lambda pcm: with_noise(pcm, 10),
        "steady noise, 5 dB": lambda pcm: with_noise(pcm, 5),
        "babble of 8, 5 dB": in_babble,
        "clean, 30 dB softer": lambda pcm: pcm_of(pcm * 10**-1.5),
    }
    table = Table(f"of {len(recordings)} requests, right", *SETTINGS)
    for name, worsened in conditions.items():
        right = [
            sum(alone(ears, cleaned(worsened, field, one)).right for one in recordings) for field in SETTINGS.values()
        ]
        table.add_row(name, *map(str, right))
    return table


def cleaned(worsened: Callable[[Pcm], Pcm], field: Field | None, recording: Recording) -> Recording:
    return replace(recording, pcm=through(cleaner(field), worsened(recording.pcm)))


def through(one: Cleaner, pcm: Pcm, piece: int = PIECE) -> Pcm:
    """Process a recording in pieces, as a session does."""
    return np.concatenate([one.clean(pcm[at : at + piece]) for at in range(0, len(pcm), piece)])


def cost_table(pcm: Pcm) -> Table:
    delays = (f"delay in pieces of {piece}" for piece in PIECES)
    table = Table("noise_reduction", *delays, "µs for 10 ms, median", "p99")
    for setting, field in SETTINGS.items():
        late = (lag(pcm, through(cleaner(field), pcm, piece)) for piece in PIECES)
        middle, slow = np.quantile(times_us(cleaner(field), pcm), (0.5, 0.99))
        shown = (f"{1000 * samples / MIC_RATE_HZ:.1f} ms" for samples in late)
        table.add_row(setting, *shown, f"{middle:.0f}", f"{slow:.0f}")
    return table


def times_us(one: Cleaner, pcm: Pcm) -> list[float]:
    """Return the computing time of each frame in microseconds."""
    took = list[float]()
    for at in range(0, len(pcm) - FRAME, FRAME):
        begun_s = time.perf_counter()
        one.clean(pcm[at : at + FRAME])
        took.append(1e6 * (time.perf_counter() - begun_s))
    return took


def lag(before: Pcm, after: Pcm) -> int:
    """Return the delay of the second signal in samples."""
    x, y = before.astype(np.float64), after.astype(np.float64)
    return int(np.argmax([np.dot(x[: len(x) - late], y[late:]) for late in range(2 * FRAME)]))


def pcm_of(wave: NDArray[np.floating]) -> Pcm:
    return np.clip(wave, -32768, 32767).astype(np.int16)


if __name__ == "__main__":
    main()
