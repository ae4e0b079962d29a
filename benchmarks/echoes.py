"""Measure echo cancellation in simulated rooms: self-interruptions, interruptions noticed, words, and computing time.

    python -m benchmarks.turn_recordings out/people         # once: recordings of people, 98 MB
    python -m benchmarks.echoes out/people [--minutes 30] [--words out/words] [--libraries pywebrtc-audio,livekit]

The scenes are those of ``benchmarks.rooms``: the echo is as loud as the user. They pass through the input buffer of a
session with default settings, faster than real time. Rows are settings of ``server.turns.echo_cancellation``.
``--fit`` takes other seeds and the other half of the recordings, to tune on.

self-interruptions   times that an answer is held or stopped while the user is silent, in all ``--minutes``
noticed              interruptions that hold or stop the answer within 400 ms of their first sound; p50 and p95
words, barge-in      word errors of Moonshine tiny on sentences that stop an answer after 0.3 s plus the delay, and
                     their ratio to those without echo
words, throughout    the same on sentences during answers that go on
of a core            CPU time of echo cancellation per second of audio

Interruptions are the first 0.8 s of human sentences in five languages; with ``--words``, the word "stop" by the voices
of ``benchmarks.overlaps --make``. Without an echo ("headphones") some are noticed later, too: they begin softly.
Clients in the rows "browser" cancel echo themselves: these rows should not differ.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.realtime.input import InputAudioBuffer, TurnEvent
from app.realtime.input.echo_cancellation import EchoCancellation
from app.realtime.input.endpointing import SentenceEndOfTurn
from app.realtime.input.turn_detector import Silero
from app.realtime.input.turn_events import OverlapStarted, TurnStarted, TurnStopped
from app.realtime.ports import SOCKET, EchoCanceller
from app.realtime.protocol.options import SessionOptions
from app.realtime.session_context import SessionContext
from app.settings import Limits, TurnSettings
from app.telemetry import Metrics
from benchmarks.echo_libraries import LIBRARIES
from benchmarks.overlaps import SPEAKERS, Model, recording
from benchmarks.program import spread
from benchmarks.recognizers import Score, moonshine
from benchmarks.rooms import DELAYS_MS, ROOMS, Conditions, Line, Scene, even, lines, scene, users
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.audio.resampler import resample
from engine.core import Pcm
from tests.real.weights import CACHE

NewCanceller = Callable[[], EchoCanceller]
Hear = Callable[[Pcm], str]
PIECE = MIC_RATE_HZ // 50
PACKET = SPEAKER_RATE_HZ // 10
NOTICED_MS = 400
WORD_S = 0.8
MARGIN = MIC_RATE_HZ // 4
"""Samples around a sentence that are transcribed with it."""
BROWSER_DELAY = MIC_RATE_HZ // 25
"""Samples by which a browser's echo is later than what it knows of its own playback."""
LEAST_MINUTES = 4
SEED = 52


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: a canceller, None for none; ``microphone`` returns the scene as the client sends it."""

    name: str
    new: NewCanceller | None
    always: bool = False
    microphone: Callable[[Scene], Scene] = lambda played: played


@dataclass(frozen=True, slots=True)
class Packet:
    """Audio of an answer: float32 [samples] at SPEAKER_RATE_HZ, sent at a sample of the microphone."""

    due: int
    samples: NDArray[np.float32]
    end: int | None
    """Where the answer's sound ends; None if it is not the last packet."""


@dataclass(frozen=True, slots=True)
class Scenes:
    """The material of all rows."""

    silent: Sequence[Scene]
    """The user says nothing."""
    interrupted: Sequence[Scene]
    barging: Sequence[Scene]
    """The user says sentences, and answers are silent 0.3 s after each one begins, plus the delay."""
    talking: Sequence[Scene]
    """The user says sentences while answers go on."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("people", type=Path, help="folder of benchmarks.turn_recordings")
    parser.add_argument("--minutes", type=float, default=30.0, help="of playback without a user")
    parser.add_argument("--fit", action="store_true", help="scenes for tuning, not the held-out ones")
    parser.add_argument("--words", type=Path, metavar="FOLDER", help="recordings of benchmarks.overlaps --make")
    parser.add_argument("--rows", default="", help="only settings whose names begin like this")
    parser.add_argument("--libraries", default="pywebrtc-audio", help=f"of {', '.join(LIBRARIES)}")
    asked = parser.parse_args()
    if asked.minutes < LEAST_MINUTES:
        parser.error(f"--minutes: give {LEAST_MINUTES} or more, so that every scene has something said")
    people = lines(asked.people, asked.fit)
    made = scenes(
        people,
        60 * asked.minutes / len(DELAYS_MS),
        stops(asked.words) if asked.words else beginnings(people),
        SEED + asked.fit,
    )
    hear = moonshine(CACHE / "moonshine-tiny-en")
    console = Console(width=150)
    columns = "self-interruptions", "noticed, %", "p50 / p95, ms", "words, barge-in, %", "words, throughout, %"
    table = Table("echo cancellation", *columns, "of a core, %")
    clean = [
        words_wrong(Setting("", None), [without_echo(one) for one in kind], hear)
        for kind in (made.barging, made.talking)
    ]
    for setting in settings(asked.libraries.split(",")):
        if not setting.name.startswith(asked.rows):
            continue
        cells = measured(setting, made, hear, clean)
        console.print(setting.name, *cells, sep="; ")  # while the rest is measured
        table.add_row(setting.name, *cells)
    console.print(table)


def settings(libraries: Sequence[str]) -> Iterator[Setting]:
    first = LIBRARIES[libraries[0]]
    yield Setting("headphones", None, microphone=without_echo)
    yield Setting("never", None)
    for name in libraries:
        yield Setting(f"auto, {name}", LIBRARIES[name])
    yield Setting("always", first, always=True)
    yield Setting("browser, never", None, microphone=in_browser)
    yield Setting("browser, auto", first, microphone=in_browser)


def scenes(people: Sequence[Line], silent_s: float, interruptions: Sequence[Line], seed: int) -> Scenes:
    """Simulate each kind of scene with every delay, in alternating rooms."""

    def each(kind: Conditions, user: Sequence[Line], share: float, first: int) -> list[Scene]:
        rooms = (replace(kind, room=ROOMS[n % len(ROOMS)], delay_ms=ms) for n, ms in enumerate(DELAYS_MS))
        return [scene(one, user, (), share * silent_s, first + n) for n, one in enumerate(rooms)]

    user, _ = users(people)
    return Scenes(
        each(Conditions(), (), 1.0, 100 * seed),
        each(Conditions(pauses_s=(2.5, 5.0)), interruptions, 0.5, 200 * seed),
        each(Conditions(pauses_s=(2.0, 3.0), stops_s=0.3), user, 0.33, 300 * seed),
        each(Conditions(pauses_s=(0.5, 2.0)), user, 0.33, 400 * seed),
    )


def beginnings(people: Sequence[Line]) -> list[Line]:
    """Return the first words of everyone's sentences."""
    return [replace(one, text="", wave=one.wave[: round(WORD_S * MIC_RATE_HZ)]) for one in people]


def stops(folder: Path) -> list[Line]:
    """Return the word "stop" by all voices of ``benchmarks.overlaps --make``."""
    voices = [voice or model for model, voice in SPEAKERS]
    return [Line("stop", voice, "en", even(soundfile.read(recording(folder, "stop", voice))[0])) for voice in voices]


def measured(setting: Setting, made: Scenes, hear: Hear, clean: Sequence[float]) -> tuple[str, ...]:
    """Return the cells of one row. ``clean``: the word errors without echo of the two kinds of sentences."""
    silent, interrupted, *spoken = (
        [setting.microphone(one) for one in kind]
        for kind in (made.silent, made.interrupted, made.barging, made.talking)
    )
    false = sum(len(asyncio.run(starts(setting, one))) for one in silent)
    late_ms = [late for one in interrupted for late in lateness_ms(one, asyncio.run(starts(setting, one)))]
    noticed = [late for late in late_ms if late <= NOTICED_MS]
    wrong = [words_wrong(setting, kind, hear) for kind in spoken]
    return (
        f"{false}",
        f"{100 * len(noticed) / len(late_ms):.1f} of {len(late_ms)}",
        spread(noticed),
        *(f"{one:.1f} ({one / base:.2f} x {base:.1f})" for one, base in zip(wrong, clean, strict=True)),
        f"{100 * share_of_a_core(setting, silent[0]):.2f}",
    )


def without_echo(played: Scene) -> Scene:
    return replace(played, microphone=played.user)


def in_browser(played: Scene) -> Scene:
    """Return a scene whose client has removed the echo itself. It knows its own playback and its device's delay."""
    canceller = LIBRARIES["pywebrtc-audio"]()
    delay = played.delay - BROWSER_DELAY
    far = np.concatenate([np.zeros(delay, np.int16), played.playback])[: len(played.playback)]
    pieces = range(0, len(far), PIECE)
    clean = [canceller.process(played.microphone[at : at + PIECE], far[at : at + PIECE]) for at in pieces]
    return replace(played, microphone=np.concatenate(clean))


async def starts(setting: Setting, played: Scene) -> list[int]:
    """Play a scene to a session's input buffer. Return the samples at which speech holds or stops an answer."""
    turns = TurnSettings(echo_cancellation="always" if setting.always else "auto")
    context = SessionContext(
        Model(), Metrics(), Limits(), turns, Silero, SentenceEndOfTurn(), echo_canceller=setting.new
    )
    events: list[TurnEvent] = []
    found: list[int] = []
    buffer = InputAudioBuffer(context, SessionOptions(), events.append)
    waiting = deque(packets(played))
    for at in range(0, len(played.microphone), PIECE):
        while waiting and waiting[0].due <= at:
            packet = waiting.popleft()
            buffer.voice.playing(packet.samples)
            if packet.end is not None:
                buffer.voice.response_ended((packet.end - at) / MIC_RATE_HZ)
        await buffer.add_samples(played.microphone[at : at + PIECE])
        if any(isinstance(event, OverlapStarted | TurnStarted) for event in events):
            found.append(at + PIECE)
        for event in events:
            if isinstance(event, TurnStopped):
                event.utterance.close()
        events.clear()
    buffer.forget()
    await context.decoding.close()
    return found


def packets(played: Scene) -> Iterator[Packet]:
    """Yield the audio of a scene's answers as a server sends it, ahead of the listener."""
    lead = round(SOCKET.lead_s * MIC_RATE_HZ)
    for start, end in played.answers:
        pcm = resample(played.playback[start:end], MIC_RATE_HZ, SPEAKER_RATE_HZ)
        wave = np.divide(pcm, 32768, dtype=np.float32)
        for at in range(0, len(wave), PACKET):
            due = start + max(0, at * MIC_RATE_HZ // SPEAKER_RATE_HZ - lead)
            yield Packet(due, wave[at : at + PACKET], end if at + PACKET >= len(wave) else None)


def lateness_ms(played: Scene, found: Sequence[int]) -> Iterator[float]:
    """Yield the milliseconds after which each interruption was noticed; infinite if it was not."""
    for said in played.said:
        if any(start <= said.start <= end - MIC_RATE_HZ for start, end in played.answers):
            late = [at - said.start for at in found if at > said.start]
            yield 1000 * min(late, default=float("inf")) / MIC_RATE_HZ


def words_wrong(setting: Setting, played: Sequence[Scene], hear: Hear) -> float:
    """Return the word errors in % on what a session passes to speech recognition."""
    score = Score()
    for one in played:
        heard = cancelled(setting, one)
        for said in one.said:
            began_s, cpu_s = time.monotonic(), time.process_time()
            words = hear(heard[max(0, said.start - MARGIN) : said.end + MARGIN])
            score.add(said.text, words, time.monotonic() - began_s, time.process_time() - cpu_s)
    return 100 * score.wrong / score.words


def cancelled(setting: Setting, played: Scene) -> Pcm:
    """Return a scene's microphone after a session's echo cancellation."""
    cancellation = EchoCancellation(setting.new, setting.always)
    waiting = deque(packets(played))
    heard: list[Pcm] = []
    for at in range(0, len(played.microphone), PIECE):
        while waiting and waiting[0].due <= at:
            samples = np.clip(waiting.popleft().samples * 32767, -32768, 32767).astype(np.int16)
            cancellation.playing(resample(samples, SPEAKER_RATE_HZ, MIC_RATE_HZ))
        heard.append(cancellation.process(played.microphone[at : at + PIECE])[1])
    return np.concatenate(heard)


def share_of_a_core(setting: Setting, played: Scene) -> float:
    began_s = time.process_time()
    cancelled(setting, played)
    return (time.process_time() - began_s) * MIC_RATE_HZ / len(played.microphone)


if __name__ == "__main__":
    main()
