"""Measure the speaker gate: errors of the voice embedding, and turns with a competing talker in simulated rooms.

    parley pull campplus
    python -m benchmarks.speakers PEOPLE [--fit] [--minutes 10]

PEOPLE contains a folder of recordings for each speaker, such as LibriSpeech's ``test-other``. The gate's thresholds
were chosen with ``--fit``, on every second speaker. Without it, the rows are of the other speakers.

errors         equal error rate of 0.3 to 3 s of speech against a voice learned from 3 s: clean, in a room, and with
               another voice as loud. Likeness: percentiles of the user's and of other people's speech
false turns    per minute in which another person talks as loud as the user, whose voice is known from 3 s: alone, and
               over an answer
lost           phrases of the user that opened no turn: alone, 0.6 to 1.5 s after another person has spoken for 3 s, and
               over a person who talks as loud all the time
started        milliseconds from a phrase's beginning to ``speech_started``, p50 and p95, with the gate and without
last word      milliseconds by which the gate delays a turn's end, p50 and p95
of a core      CPU time of the gate per second of audio

Phrases last 0.6 to 4 s. The scenes use the rooms of ``benchmarks.rooms``. They pass through the input buffer of a
session with ``speaker: enrolled``, faster than real time. An embedding arrives 100 ms after it was requested.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import soundfile
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.signal import fftconvolve

from app.realtime.inference_thread import InferenceThread
from app.realtime.input import InputAudioBuffer, TurnEvent
from app.realtime.input.endpointing import SentenceEndOfTurn
from app.realtime.input.speaker_encoder import INSTALL, speaker_encoder
from app.realtime.input.turn_detector import Silero
from app.realtime.input.turn_events import OverlapStarted, TurnStarted, TurnStopped
from app.realtime.input.voiceprint import written
from app.realtime.ports import SpeakerEncoder
from app.realtime.protocol.options import SessionOptions, session_options
from app.realtime.session_context import SessionContext
from app.settings import Limits, TurnSettings
from app.telemetry import Metrics
from benchmarks.overlaps import Model
from benchmarks.rooms import LEVEL, ROOMS, Place, Room, even, impulse_response
from engine import MIC_RATE_HZ
from engine.core import Pcm
from engine.training.nano.conditions import pink

T = TypeVar("T")
Samples = NDArray[np.float64]
People = dict[str, list[Samples]]
"""Recordings of each speaker, at the level 1 while they speak."""

SEED = 52
PIECE = MIC_RATE_HZ // 50
LATE = MIC_RATE_HZ // 10
"""Samples after which an embedding arrives."""
LENGTHS_S = (0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0)
LEARNED = 3 * MIC_RATE_HZ
PHRASE_S = (0.6, 4.0)
FLOOR_DB = -40.0
SILENT_PACKET = np.zeros(2400, np.float32)
"""100 ms of an answer without sound: no echo, but an answer plays."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("people", type=Path)
    parser.add_argument("--fit", action="store_true", help="measure the speakers for the choice of thresholds")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of each row of turns")
    asked = parser.parse_args()
    encoder = speaker_encoder()
    if encoder is None:
        raise SystemExit(f"The model of voices is not on this machine. {INSTALL}")
    people = half(read(asked.people), asked.fit)
    console = Console(width=150)
    console.print(errors(people, encoder))
    console.print(turns(people, encoder, asked.minutes))


def read(folder: Path) -> People:
    """Return the recordings of all speakers."""
    found: People = {}
    for path in sorted([*folder.rglob("*.flac"), *folder.rglob("*.wav")]):
        wave, rate_hz = soundfile.read(path, dtype="float64")
        if rate_hz != MIC_RATE_HZ or wave.ndim > 1:
            raise SystemExit(f"{path}: must be mono at {MIC_RATE_HZ} Hz")
        found.setdefault(path.relative_to(folder).parts[0], []).append(even(wave))
    return found


def half(people: People, fit: bool) -> People:
    """Return every second speaker: the first ones for fitting, the others for the test."""
    return {name: people[name] for name in sorted(people)[0 if fit else 1 :: 2]}


def errors(people: People, encoder: SpeakerEncoder) -> Table:
    """Return the errors of embeddings by the seconds of speech."""
    rng = np.random.default_rng(SEED)
    table = Table("speech", *(f"{condition}: {what}" for condition in CONDITIONS for what in ("EER", "user", "others")))
    for seconds in LENGTHS_S:
        cells = [cell for condition in CONDITIONS for cell in likeness(people, encoder, seconds, condition, rng)]
        table.add_row(f"{seconds} s", *cells)
    table.caption = "user: percentiles 1, 5, 50 of the likeness; others: 50, 95, 99"
    return table


Condition = Literal["clean", "room", "talker"]
CONDITIONS: tuple[Condition, ...] = ("clean", "room", "talker")


def likeness(
    people: People, encoder: SpeakerEncoder, seconds: float, condition: Condition, rng: np.random.Generator
) -> tuple[str, str, str]:
    """Return the equal error rate, and percentiles of the likeness of the user's and of others' speech."""
    room = None if condition == "clean" else ROOMS[1]
    voices = {name: encoder.embed(_pcm(_in(room, lines[0][:LEARNED], "user"))) for name, lines in people.items()}
    own: list[float] = []
    others: list[float] = []
    count = round(seconds * MIC_RATE_HZ)
    for name, lines in people.items():
        for line in (one for one in lines[1:] if len(one) >= count):
            at = int(rng.integers(0, len(line) - count + 1))
            sound = _in(room, line[at : at + count], "user")
            known = [one for one in people if one != name]
            if condition == "talker":
                talker = known.pop(int(rng.integers(len(known))))
                sound = sound + _in(room, _excerpt(people[talker], count, rng), "other")
            heard = encoder.embed(_pcm(sound))
            own.append(float(heard @ voices[name]))
            others += [float(heard @ voices[one]) for one in known]
    return f"{100 * equal_error(own, others):.1f} %", _spread(own, (1, 5, 50)), _spread(others, (50, 95, 99))


def equal_error(own: Sequence[float], others: Sequence[float]) -> float:
    """Return the error rate at the threshold where as many of the user's are refused as of others are accepted."""
    mine, theirs = np.sort(own), np.sort(others)
    limits = np.concatenate([mine, theirs])
    refused = np.searchsorted(mine, limits) / len(mine)
    accepted = 1 - np.searchsorted(theirs, limits) / len(theirs)
    best = int(np.abs(refused - accepted).argmin())
    return float(refused[best] + accepted[best]) / 2


def _spread(values: Sequence[float], percentiles: Sequence[int]) -> str:
    return " ".join(f"{value:.2f}" for value in np.percentile(values, percentiles))


@dataclass(frozen=True, slots=True)
class Scene:
    """A microphone in a room with a user."""

    microphone: Pcm
    user: str
    phrases: tuple[tuple[int, int], ...] = ()
    """The samples where each phrase of the user begins and ends."""
    answer: bool = False
    """Whether an answer plays all the time."""


@dataclass(slots=True)
class Found:
    """The turns of a scene, as the samples at which they were reported."""

    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    work_s: float = 0.0


def turns(people: People, encoder: SpeakerEncoder, minutes: float) -> Table:
    """Return what the gate does to other people's turns and to the user's."""
    table = Table("row", "gate", "false turns/min", "lost", "started p50 p95", "last word p50 p95", "of a core")
    rows: dict[str, Callable[[str, str, np.random.Generator, float], Scene]] = {
        "another talks": lambda user, other, rng, s: talks(people, user, other, rng, s),
        "another talks over an answer": lambda user, other, rng, s: talks(people, user, other, rng, s, answer=True),
        "the user alone": lambda user, _, rng, s: speaks(people, user, None, rng, s),
        "the user after another": lambda user, other, rng, s: speaks(people, user, other, rng, s, over=False),
        "the user over another": lambda user, other, rng, s: speaks(people, user, other, rng, s),
    }
    pairs = [(user, other) for user in people for other in people if user != other]
    chosen = [pairs[n] for n in np.random.default_rng(SEED).permutation(len(pairs))[:10]]
    voices = {
        name: written(encoder.embed(_pcm(_in(ROOMS[1], lines[0][:LEARNED], "user")))) for name, lines in people.items()
    }
    for row, make in rows.items():
        seconds = 60 * minutes / len(chosen)
        made = [make(user, other, np.random.default_rng(n), seconds) for n, (user, other) in enumerate(chosen)]
        without = [asyncio.run(found(scene, None)) for scene in made]
        gated = [asyncio.run(found(scene, encoder, voices[scene.user])) for scene in made]
        table.add_row(row, "off", *cells(made, without, without))
        table.add_row(row, "on", *cells(made, gated, without))
    return table


def talks(
    people: People, user: str, other: str, rng: np.random.Generator, seconds: float, answer: bool = False
) -> Scene:
    """Another person talks, with pauses of 0.2 to 1 s."""
    sound = _in(ROOMS[1], _talking(people[other], round(seconds * MIC_RATE_HZ), rng), "other")
    return Scene(_microphone(sound, rng), user, answer=answer)


def speaks(
    people: People, user: str, other: str | None, rng: np.random.Generator, seconds: float, over: bool = True
) -> Scene:
    """The user says phrases: alone, after 3 s of another person, or over a person who talks all the time."""
    count = round(seconds * MIC_RATE_HZ)
    wave = np.zeros(count)
    between = np.zeros(count)
    phrases: list[tuple[int, int]] = []
    at = 2 * MIC_RATE_HZ
    while (end := at + round(rng.uniform(*PHRASE_S) * MIC_RATE_HZ)) < count - 2 * MIC_RATE_HZ:
        wave[at:end] = _excerpt(people[user], end - at, rng)
        phrases.append((at, end))
        at = end + round(rng.uniform(1.5, 3.0) * MIC_RATE_HZ)
        if other is not None and not over:
            talk = _excerpt(people[other], 3 * MIC_RATE_HZ, rng)[: max(0, count - at)]
            between[at : at + len(talk)] = talk
            at += len(talk) + round(rng.uniform(0.6, 1.5) * MIC_RATE_HZ)
    sound = _in(ROOMS[1], wave, "user")
    if other is not None:
        sound = sound + _in(ROOMS[1], _talking(people[other], count, rng) if over else between, "other")
    return Scene(_microphone(sound, rng), user, tuple(phrases))


async def found(scene: Scene, encoder: SpeakerEncoder | None, voiceprint: str | None = None) -> Found:
    """Play a scene to a session's input buffer, without the gate if there is no encoder."""
    inference, result, events = LateInference(), Found(), list[TurnEvent]()
    context = SessionContext(
        Model(), Metrics(), Limits(), TurnSettings(), Silero, SentenceEndOfTurn(), inference=inference,
        speaker_encoder=encoder,
    )  # fmt: skip
    speaker = {"speaker": "any" if encoder is None else "enrolled", "voiceprint": voiceprint}
    detection = {"turn_detection": {"type": "server_vad", **speaker}}
    options, _ = session_options(SessionOptions(), {"audio": {"input": detection}})
    buffer = InputAudioBuffer(context, options, events.append)
    last = -1  # a voice is counted once, even if it first holds the answer and then stops it
    for at in range(0, len(scene.microphone), PIECE):
        inference.advance(at)
        if scene.answer and at % (5 * PIECE) == 0:
            buffer.voice.playing(SILENT_PACKET)
        await buffer.add_samples(scene.microphone[at : at + PIECE])
        for event in events:
            if isinstance(event, TurnStarted | OverlapStarted) and event.utterance.start > last:
                last = event.utterance.start
                result.starts.append(at + PIECE)
            if isinstance(event, TurnStopped):
                event.utterance.close()
                result.ends.append(at + PIECE)
        events.clear()
    buffer.forget()
    inference.close()
    await context.decoding.close()
    result.work_s = inference.work_s
    return result


class LateInference(InferenceThread):
    """Computes results at once, and releases them LATE samples after they were requested."""

    def __init__(self) -> None:
        super().__init__()
        self.work_s = 0.0
        self._position = 0
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def run(self, work: Callable[[Pcm], T], pcm: Pcm) -> Future[T]:
        known = Future[T]()
        before = time.thread_time()
        result = work(pcm)
        self.work_s += time.thread_time() - before

        def release() -> None:
            if known.set_running_or_notify_cancel():
                known.set_result(result)

        self._waiting.append((self._position + LATE, release))
        return known

    def advance(self, position: int) -> None:
        self._position = position
        due = [release for at, release in self._waiting if at <= position]
        self._waiting = [one for one in self._waiting if one[0] > position]
        for release in due:
            release()


def cells(scenes: Sequence[Scene], gated: Sequence[Found], without: Sequence[Found]) -> tuple[str, ...]:
    """Return a row's cells. Delays count phrases that opened a turn with and without the gate."""
    minutes = sum(len(scene.microphone) for scene in scenes) / MIC_RATE_HZ / 60
    core = f"{sum(one.work_s for one in gated) / minutes / 0.6:.1f} %"
    if not scenes[0].phrases:
        return f"{sum(len(one.starts) for one in gated) / minutes:.2f}", "", "", "", core
    late: list[int] = []
    later: list[int] = []
    lost = 0
    for scene, one, reference in zip(scenes, gated, without, strict=True):
        for start, end in scene.phrases:
            opened = _first(one.starts, start, end + MIC_RATE_HZ)
            lost += opened is None
            if opened is not None:
                late.append(opened - start)
            ended, before = (_first(turns.ends, end, end + 3 * MIC_RATE_HZ) for turns in (one, reference))
            if ended is not None and before is not None:
                later.append(ended - before)
    count = sum(len(scene.phrases) for scene in scenes)
    return "", f"{lost} of {count} ({100 * lost / count:.1f} %)", _ms(late), _ms(later), core


def _first(positions: Sequence[int], start: int, end: int) -> int | None:
    return next((position for position in positions if start <= position <= end), None)


def _ms(samples: Sequence[int]) -> str:
    return (
        " ".join(f"{value / MIC_RATE_HZ * 1000:.0f}" for value in np.percentile(samples, (50, 95))) if samples else ""
    )


def _excerpt(lines: Sequence[Samples], count: int, rng: np.random.Generator) -> Samples:
    """Return speech of that many samples, none of it from the first line."""
    long = [line for line in lines[1:] if len(line) >= count]
    line = long[int(rng.integers(len(long)))]
    at = int(rng.integers(0, len(line) - count + 1))
    return line[at : at + count]


def _talking(lines: Sequence[Samples], count: int, rng: np.random.Generator) -> Samples:
    wave = np.zeros(count)
    at = 0
    while at < count:
        line = lines[int(rng.integers(len(lines)))][: count - at]
        wave[at : at + len(line)] = line
        at += len(line) + round(rng.uniform(0.2, 1.0) * MIC_RATE_HZ)
    return wave


def _in(room: Room | None, wave: Samples, who: Literal["user", "other"]) -> Samples:
    if room is None:
        return wave
    place: Place = room.user if who == "user" else room.other
    response = impulse_response(room, place)
    return fftconvolve(wave, response)[: len(wave)] / float(np.sqrt(np.square(response).sum()))


def _microphone(sound: Samples, rng: np.random.Generator) -> Pcm:
    floor = pink(len(sound), rng)
    return _pcm(sound + floor / np.sqrt(np.square(floor).mean()) * 10 ** (FLOOR_DB / 20))


def _pcm(wave: Any) -> Pcm:
    return (np.clip(LEVEL * np.asarray(wave), -1, 1) * 32767).astype(np.int16)


if __name__ == "__main__":
    main()
