"""Measure speech during an answer, through a session's input buffer: backchannels and interruptions.

    python -m benchmarks.overlaps [--held-out] [--texts 25] [--told]
    python -m benchmarks.overlaps --make FOLDER                   # records both lists with neural voices
    python -m benchmarks.overlaps --recordings FOLDER [--held-out] [--ears moonshine-tiny-en]
    python -m benchmarks.overlaps --dialogues FOLDER              # text only, no audio

A hundred of each: 25 texts by four synthetic voices, in white noise 20 and 10 dB below the voice. They pass through the
input buffer of a session with default settings, in pieces like a microphone's, while an answer plays. The speech
recognition stage hears them meanwhile, and its own computing time delays its words. There is no real clock and no echo.

wrongly stopped  a backchannel was taken for a turn
not stopped      an interruption was ignored
silence, call    where the server plays: from the first sound of the speech until the answer is held, and the sound
                 that was sent ahead has been heard
silence, pauses  where the client plays and can pause (`parley.pauses`): from the first sound to the pause
silence, socket  where another client plays: from the first sound of an interruption to `speech_started`
held             how long the answer was held before it continued

The limits and the backchannel vocabulary were tuned on ``LISTENS`` and ``INTERRUPTS``. Without ``--recordings``, nano's
recognizer hears the voices of make_turns (needs Debian's ``flite``, ``festival`` and ``festvox-us-slt-hts``), on which
it was tuned. ``--held-out`` uses other texts, written in advance; without ``--recordings``, also other voices
(``espeak-ng``). ``--told`` passes the correct words instead of recognizing them, which isolates the server's errors.

``--recordings`` also counts the answers that other sounds stop: silence, music, a cough.

FOLDER of ``--dialogues`` contains human dialogues in *.txt files, one utterance per line as ``speaker|words|act``: the
Switchboard Dialogue Act Corpus from github.com/NathanDuran/Switchboard-Corpus (folders train, val and test; see its
terms). The table shows the share of each act that is taken for a backchannel.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import soundfile
from rich.console import Console
from rich.table import Table

from app.realtime.conversation import Utterance
from app.realtime.input import InputAudioBuffer, TurnEvent
from app.realtime.input import backchannel_phrases as phrases
from app.realtime.input.endpointing import SentenceEndOfTurn
from app.realtime.input.turn_detector import Silero
from app.realtime.input.turn_events import OverlapStarted, TurnDropped, TurnPaused, TurnResumed, TurnStarted
from app.realtime.ports import CALL
from app.realtime.protocol.options import SessionOptions
from app.realtime.session_context import SessionContext
from app.settings import Limits, TurnSettings
from app.telemetry import Metrics
from benchmarks import recognizers
from benchmarks.program import spread
from benchmarks.spoken_questions import speech, voice_alone
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ, Engine, ModelInfo, Request
from engine.audio.resampler import resample
from engine.chunk import Transcript
from engine.core import Pcm
from engine.training.nano.eval_ears import run
from engine.training.nano.make_turns import VOICES, speak, synthesized, trimmed
from engine.worker.models.nano.ears import Ears
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.stages.asr.sherpa_offline import SherpaOfflineAsrStage
from tests.real.weights import CACHE

LISTENS = (
    "ooh", "uh-huh", "hmm", "alright", "yeah", "yes", "right", "okay", "I see", "sure", "oh", "wow", "really", "got it",
    "good", "great", "nice", "cool", "ah", "exactly", "true", "of course", "oh okay", "yeah yeah", "that's right",
)  # fmt: skip
INTERRUPTS = (
    "stop", "wait", "no", "hold on", "wait a second", "stop talking", "what time is it", "what is twelve plus thirty",
    "no I meant tomorrow", "can you repeat that", "sorry what did you say", "tell me a joke", "that is wrong",
    "be quiet please", "never mind", "I have a question", "how are you", "okay stop", "what is your name",
    "yeah but what about the weather", "excuse me", "spell hello", "can you speak slower", "not that one",
    "what does that mean",
)  # fmt: skip
WRITTEN = {"hmm": "hum", "mm-hm": "[[@mh'@m]]"}
"""Spellings for synthesizers that would otherwise spell the word out; the second one is for espeak-ng only."""
OTHER_LISTENS = (
    "mm-hm", "huh", "yup", "oh yes", "yeah sure", "okay good", "I understand", "I know", "no way", "go on",
    "fair enough", "sounds good", "that's true", "you're right", "good point", "for sure", "certainly", "correct",
    "perfect", "interesting", "amazing", "awesome", "excellent", "lovely", "oh my",
)  # fmt: skip
OTHER_INTERRUPTS = (
    "hush", "wait wait", "hold it", "stop right there", "that's enough", "forget it", "skip that", "go back",
    "start over", "say that again", "what was that", "just a moment", "actually no", "no not like that", "too fast",
    "speak up", "which one", "yes but why", "let me speak", "I don't understand", "I meant yesterday", "what day is it",
    "who made you", "tell me a story", "what is nine times seven",
)  # fmt: skip
OTHER_VOICES = ("en-us+f3", "en-gb-x-rp+m3", "en-gb-scotland+f2", "en-us+klatt2")
"""espeak-ng's voice names: women and men, with two synthesis methods."""
ACTS = {
    "b": "back-channel", "bk": "acknowledges an answer", "ba": "appreciates", "aa": "agrees", "ny": "says yes",
    "nn": "says no", "ad": "tells to do something", "qy": "asks yes or no", "qw": "asks what or who",
    "qo": "asks openly", "sd": "states", "sv": "has an opinion", "ar": "rejects", "br": "did not hear",
    "^h": "holds the turn",
}  # fmt: skip
"""Acts of the Switchboard Dialogue Act Corpus: backchannels first, then acts that want an answer or continue."""
LEVEL = 2000 / 32768
PIECE = SPEAKER_RATE_HZ // 50
PIECE_MS = 20
START_S = 1.0
"""Noise before a recording's first sound."""
AHEAD_MS = round(1000 * (CALL.lead_s + CALL.packet_s))
"""Sound that a call still plays once the answer is held."""
SPEAKERS = (("piper-joe", ""), ("kokoro-int8", "af_heart"), ("kokoro-int8", "am_michael"), ("kokoro-int8", "af_bella"))
"""Models and voices of ``--make``."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one recording: a turn or not. Times are in ms from its first sound."""

    text: str
    voice: str
    turn: bool
    held_at_ms: int | None = None
    """When the answer was held; None if the sound was ignored."""
    decided_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Material:
    """Texts that are spoken over answers, and their voices."""

    listens: Sequence[str]
    interrupts: Sequence[str]
    voices: Sequence[str]
    speak: Callable[[str, str], Any]
    """Return a text as a voice says it: float32 [n] at MIC_RATE_HZ, without silence before it."""

    def recordings(self, texts: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
        for text, voice in product(texts, self.voices):
            yield text, voice, self.speak(text, voice)


class Model:
    """An engine that only provides its description."""

    model = ModelInfo(name="nano", voices=(), abilities=frozenset({"text", "audio", "speech"}), frame_s=0.08)

    def open(self, request: Any, inputs: Any = None) -> Any:
        raise NotImplementedError

    def prepare(self, request: Request) -> None:
        raise NotImplementedError


class Hearing:
    """One utterance's request to a speech recognition stage. Without a stage, ``text`` is known after a pause."""

    def __init__(self, stage: Any, said: Utterance, text: str) -> None:
        self._stage = stage
        self._said = said
        self._text = text
        self._heard = 0
        self._free_at = 0
        self._due: list[tuple[int, Transcript]] = []
        self._request = self._open()

    def follow(self, number: int, resumed: bool) -> None:
        """Feed the utterance up to the microphone's current piece, and pass on the words that are due."""
        if resumed:
            self._heard = 0
            self._due.clear()
            self._request = self._open()
        if not self._request.done and number >= self._free_at:
            self._hear(number)
        while self._due and self._due[0][0] <= number:
            words = self._due.pop(0)[1]
            self._said.understand(words.text, words.final, words.complete, words.confident)

    def _open(self) -> StageRequest:
        pace: Any = SimpleNamespace()
        request = StageRequest(request=Request(id="r", session="s", messages=(), live=True), slot=0, pace=pace)
        if self._stage is not None:
            self._stage.open(request)
        return request

    def _hear(self, number: int) -> None:
        pcm = self._said.speech
        self._request.pending.append(pcm[self._heard :])
        self._heard = len(pcm)
        self._request.ended = self._said.paused
        began_s = time.thread_time()
        if self._stage is not None:
            words = run(self._stage, self._request)
        else:
            words = [Transcript(self._text, final=True)] if self._request.ended else []
            self._request.done = self._request.ended
        self._free_at = number + math.ceil((time.thread_time() - began_s) * 1000 / PIECE_MS)
        self._due += [(self._free_at, one) for one in words]


def noisy(wave: Any, snr_db: float, seed: int) -> Pcm:
    """Return a sound at a fixed level in noise, with START_S of noise before it: int16 at SPEAKER_RATE_HZ."""
    voiced = wave[np.abs(wave) > 0.05 * np.abs(wave).max()]
    level = LEVEL / max(1e-9, np.sqrt(np.square(voiced).mean())) if len(voiced) else 0.0
    before = np.zeros(round(START_S * MIC_RATE_HZ), np.float32)
    sound = np.concatenate([before, wave * level, before, before])
    sound += np.random.default_rng(seed).normal(0, LEVEL * 10 ** (-snr_db / 20), len(sound)).astype(np.float32)
    pcm = (np.clip(sound, -1, 1) * 32767).astype(np.int16)
    return resample(pcm, MIC_RATE_HZ, SPEAKER_RATE_HZ).astype(np.int16)


async def outcome(stage: Any, text: str, voice: str, pcm: Pcm) -> Outcome:
    """Play a recording over an answer, and return the input buffer's decision."""
    events = list[TurnEvent]()
    context = SessionContext(Model(), Metrics(), Limits(), TurnSettings(), Silero, SentenceEndOfTurn())
    buffer = InputAudioBuffer(context, SessionOptions(), events.append)
    buffer.voice.playing(np.zeros(10 * SPEAKER_RATE_HZ, np.float32))
    held_at_ms = hearing = said = None
    try:
        for number, at in enumerate(range(0, len(pcm), PIECE)):
            seen = len(events)
            await buffer.append(pcm[at : at + PIECE].tobytes())
            now_ms = (number + 1) * PIECE_MS - round(START_S * 1000)
            resumed = False
            for event in events[seen:]:
                match event:
                    case OverlapStarted(said):
                        held_at_ms = now_ms
                        hearing = Hearing(stage, said, text)
                    case TurnStarted() | TurnDropped():
                        return Outcome(text, voice, isinstance(event, TurnStarted), held_at_ms, now_ms)
                    case TurnPaused() if said is not None:
                        said.pause()
                    case TurnResumed() if said is not None:
                        said.resume()
                        resumed = True
                    case _:
                        pass
            if hearing is not None:
                hearing.follow(number, resumed)
    finally:
        await context.decoding.close()
    return Outcome(text, voice, False)


def speak_otherwise(text: str, voice: str) -> Any:
    """Synthesize with espeak-ng, like make_turns' ``speak``."""
    text = WRITTEN.get(text, text)
    return trimmed(synthesized(lambda path: subprocess.run(["espeak-ng", "-v", voice, "-w", path, text], check=True)))


CHOSEN_BY = Material(LISTENS, INTERRUPTS, VOICES, lambda text, voice: speak(WRITTEN.get(text, text), voice))
HELD_OUT = Material(OTHER_LISTENS, OTHER_INTERRUPTS, OTHER_VOICES, speak_otherwise)


def recorded(folder: Path, held_out: bool) -> Material:
    """Return the texts and voices that ``--make`` has recorded."""

    def load(text: str, voice: str) -> Any:
        wave, _ = soundfile.read(recording(folder, text, voice), dtype="float32")
        return wave[int(np.flatnonzero(np.abs(wave) > 0.05 * np.abs(wave).max())[0]) :]

    texts = (OTHER_LISTENS, OTHER_INTERRUPTS) if held_out else (LISTENS, INTERRUPTS)
    return Material(*texts, [voice or model for model, voice in SPEAKERS], load)


def recording(folder: Path, text: str, voice: str) -> Path:
    return folder / voice / f"{text.replace(' ', '_')}.wav"


async def make(folder: Path) -> None:
    """Speak all texts by SPEAKERS, except those that are there already."""
    texts = [*LISTENS, *INTERRUPTS, *OTHER_LISTENS, *OTHER_INTERRUPTS]
    for model, voices in groupby(SPEAKERS, lambda one: one[0]):
        async with Engine(voice_alone(CACHE / model)) as engine:
            for (_, voice), text in product(voices, texts):
                path = recording(folder, text, voice or model)
                if path.exists():
                    continue
                wave = await speech(engine, f"{text[0].upper()}{text[1:]}.", voice or None)
                path.parent.mkdir(parents=True, exist_ok=True)
                soundfile.write(path, recognizers.recorded(wave), MIC_RATE_HZ)


def other_sounds() -> Iterator[tuple[str, Any]]:
    """Yield sounds without speech, by name: float32 [n] at MIC_RATE_HZ."""
    time_s = np.arange(3 * MIC_RATE_HZ) / MIC_RATE_HZ
    yield "silence", np.zeros(3 * MIC_RATE_HZ, np.float32)
    for key in range(5):
        tones = 220 * 2 ** ((key + np.array([0, 4, 7, 12])[(time_s * 4).astype(int) % 4]) / 12)
        phase = 2 * np.pi * np.cumsum(tones) / MIC_RATE_HZ
        chords = sum(np.sin(phase * partial) / partial for partial in range(1, 6))
        yield "music", (chords * np.exp(-3 * (time_s * 4 % 1))).astype(np.float32)
    for seed in range(5):
        burst = np.random.default_rng(seed).normal(0, 1, MIC_RATE_HZ // 4)
        cough = burst * np.exp(-np.arange(len(burst)) / (0.06 * MIC_RATE_HZ))
        yield "cough", np.concatenate([cough, np.zeros(MIC_RATE_HZ // 10), cough]).astype(np.float32)


async def measure(material: Material, texts: int, stage: Any) -> None:
    table = Table(
        "said",
        "noise below",
        "of",
        "wrong",
        "silence, call, ms",
        "silence, pauses, ms",
        "silence, socket, ms",
        "held, ms",
    )
    for kind, listed in (("wrongly stopped", material.listens), ("not stopped", material.interrupts)):
        spoken = list(material.recordings(listed[:texts]))
        for snr_db in (20, 10):
            found = [
                await outcome(stage, text, voice, noisy(wave, snr_db, number))
                for number, (text, voice, wave) in enumerate(spoken)
            ]
            wrong = [one for one in found if one.turn is (kind == "wrongly stopped")]
            table.add_row(kind, f"{snr_db} dB", str(len(found)), str(len(wrong)), *times(found, kind == "not stopped"))
            print(kind, snr_db, sorted({f"{one.text} ({one.voice})" for one in wrong}), flush=True)
    Console(width=120).print(table)


def times(found: Sequence[Outcome], interrupts: bool) -> tuple[str, str, str, str]:
    """Return p50 / p95 of a row's times."""
    paused = [one.held_at_ms for one in found if one.held_at_ms is not None]
    call = [at_ms + AHEAD_MS for at_ms in paused]
    socket = [one.decided_at_ms for one in found if one.turn and one.decided_at_ms is not None and interrupts]
    held = [
        one.decided_at_ms - one.held_at_ms
        for one in found
        if not one.turn and one.held_at_ms is not None and one.decided_at_ms is not None
    ]
    return spread(call), spread(paused), spread(socket), spread(held)


async def measure_other_sounds(stage: Any) -> None:
    """Print how many answers each kind of sound without speech stops."""
    for name, sounds in groupby(other_sounds(), lambda one: one[0]):
        found = [await outcome(stage, name, "", noisy(wave, 20, 0)) for _, wave in sounds]
        stopped = sum(one.turn for one in found)
        held = sum(one.held_at_ms is not None for one in found)
        print(f"{name}: {stopped} of {len(found)} answers stopped, {held} held")


def read(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the utterances of human dialogues, with their acts."""
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_text().splitlines():
            if len(parts := line.split("|")) == 3:
                yield parts[1], parts[2]


def count(folder: Path) -> None:
    """Print the share of each act that is taken for a backchannel."""
    table = Table("act", "of", "a listener's, in %")
    said = list(read(folder))
    for act, name in ACTS.items():
        taken = [phrases.read(words).is_backchannel for words, its in said if its == act]
        table.add_row(name, str(len(taken)), f"{100 * sum(taken) / max(1, len(taken)):.1f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="use texts and voices that were not used for tuning")
    parser.add_argument("--texts", type=int, default=25, help="number of texts per kind")
    parser.add_argument("--told", action="store_true", help="pass the correct words instead of recognizing them")
    parser.add_argument(
        "--make", type=Path, metavar="FOLDER", help="record both lists with Kokoro's and Piper's voices"
    )
    parser.add_argument("--recordings", type=Path, metavar="FOLDER", help="use the recordings of --make")
    parser.add_argument(
        "--ears", default="moonshine-tiny-en", help="recognizer for --recordings: a model of tests.real"
    )
    parser.add_argument("--dialogues", type=Path, metavar="FOLDER", help="judge the words of dialogues, without audio")
    args = parser.parse_args()
    if args.dialogues:
        count(args.dialogues)
    elif args.make:
        asyncio.run(make(args.make))
    elif args.recordings:
        stage = None if args.told else SherpaOfflineAsrStage(StageConfig(weights=CACHE / args.ears, threads=1))
        asyncio.run(measure(recorded(args.recordings, args.held_out), args.texts, stage))
        asyncio.run(measure_other_sounds(stage))
    else:
        stage = None if args.told else Ears(StageConfig())
        asyncio.run(measure(HELD_OUT if args.held_out else CHOSEN_BY, args.texts, stage))


if __name__ == "__main__":
    main()
