"""Measure speech during an answer, through a session's input buffer: backchannels and interruptions.

    python -m benchmarks.overlaps [--held-out] [--texts 25] [--told]
    python -m benchmarks.overlaps --dialogues FOLDER              # text only, no audio

A hundred of each: 25 texts by four synthetic voices, in white noise 20 and 10 dB below the voice. They pass through the
input buffer of a session with Live settings, in pieces like a microphone's, while an answer plays. nano's recognizer
hears them up to each pause. There is no real clock and no echo. *Wrongly stopped*: a backchannel was taken for a turn.
*Not stopped*: an interruption was ignored. *Held*: how long the answer paused before it continued.

The limits and the backchannel vocabulary were tuned on ``LISTENS`` and ``INTERRUPTS`` with the voices of make_turns
(needs Debian's ``flite``, ``festival`` and ``festvox-us-slt-hts``). ``--held-out`` uses other texts, written in
advance, and other voices (``espeak-ng``), neither of which was used for training or tuning. ``--told`` passes the
correct words instead of recognizing them, which isolates the server's errors.

FOLDER contains human dialogues in *.txt files, one utterance per line as ``speaker|words|act``: the Switchboard
Dialogue Act Corpus from github.com/NathanDuran/Switchboard-Corpus (folders train, val and test; see its terms). The
table shows the share of each act that is taken for a backchannel.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from app.live.config import started
from app.live.sound import OVERLAP_MS
from app.realtime.input import InputAudioBuffer, TurnEvent
from app.realtime.input.backchannel import is_back_channel
from app.realtime.input.endpointing import SentenceEndOfTurn
from app.realtime.input.turn_detector import Silero
from app.realtime.input.turn_events import OverlapStarted, TurnDropped, TurnPaused, TurnStarted
from app.realtime.protocol.options import SessionOptions, session_options
from app.realtime.session_context import SessionContext
from app.settings import Limits, TurnSettings
from app.telemetry import Metrics
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ, ModelInfo
from engine.audio.resampler import resample
from engine.chunk import Transcript
from engine.core import Pcm
from engine.training.nano.eval_ears import hear
from engine.training.nano.make_turns import VOICES, speak, synthesized, trimmed
from engine.worker.models.nano.ears import Ears
from engine.worker.stage import StageConfig

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
HEARD = 6
"""Pieces after a pause (120 ms) until the recognizer has answered."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one recording: a turn or not. ``held_ms`` is the time from the first event to the decision."""

    text: str
    voice: str
    turn: bool
    held_ms: int


@dataclass(frozen=True, slots=True)
class Material:
    """Texts that are spoken over answers, and their voices."""

    listens: Sequence[str]
    interrupts: Sequence[str]
    voices: Sequence[str]
    speak: Callable[[str, str], Any]
    """Synthesizes a text with a voice: float32 [n] at MIC_RATE_HZ, at a fixed level, trimmed."""

    def recordings(self, texts: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
        for text, voice in product(texts, self.voices):
            yield text, voice, self.speak(WRITTEN.get(text, text), voice)


class Model:
    """An engine that only provides its description."""

    model = ModelInfo(name="nano", voices=(), abilities=frozenset({"text", "audio", "speech"}), frame_s=0.08)

    def open(self, request: Any, inputs: Any = None) -> Any:
        raise NotImplementedError


def noisy(wave: Any, snr_db: float, seed: int) -> Pcm:
    """Return the voice at a fixed level in noise, with a second of noise around it: int16 at SPEAKER_RATE_HZ."""
    voiced = wave[np.abs(wave) > 0.05 * np.abs(wave).max()]
    second = np.zeros(MIC_RATE_HZ, np.float32)
    sound = np.concatenate([second, wave * (LEVEL / np.sqrt(np.square(voiced).mean())), second, second])
    sound += np.random.default_rng(seed).normal(0, LEVEL * 10 ** (-snr_db / 20), len(sound)).astype(np.float32)
    pcm = (np.clip(sound, -1, 1) * 32767).astype(np.int16)
    return resample(pcm, MIC_RATE_HZ, SPEAKER_RATE_HZ).astype(np.int16)


async def outcome(ears: Ears | None, text: str, voice: str, pcm: Pcm) -> Outcome:
    """Play a recording over an answer, and return the input buffer's decision. Without ``ears``, the words are passed
    on.
    """
    events = list[TurnEvent]()
    context = SessionContext(Model(), Metrics(), Limits(), TurnSettings(), Silero, SentenceEndOfTurn())
    buffer = InputAudioBuffer(context, live_options(), events.append, OVERLAP_MS)
    buffer.voice.playing(np.zeros(10 * SPEAKER_RATE_HZ, np.float32))
    began, due, said = None, None, None
    for number, at in enumerate(range(0, len(pcm), PIECE)):
        seen = len(events)
        await buffer.append(pcm[at : at + PIECE].tobytes())
        for event in events[seen:]:
            match event:
                case OverlapStarted(said):
                    began = number
                case TurnStarted() | TurnDropped() if began is not None:
                    await context.decoding.close()
                    return Outcome(text, voice, isinstance(event, TurnStarted), (number - began) * 20)
                case TurnPaused():
                    due = number + HEARD
                case _:
                    due = None
        if due == number and said is not None:
            for one in hear(ears, said.pcm)[0] if ears else [Transcript(text, final=True, confident=True)]:
                said.understand(one.text, one.final, one.complete, one.confident)
    await context.decoding.close()
    return Outcome(text, voice, False, 0)


def live_options() -> SessionOptions:
    """Return a Live session's default settings."""
    return session_options(SessionOptions(), started({"model": "nano"}).patch())[0]


def speak_otherwise(text: str, voice: str) -> Any:
    """Synthesize with espeak-ng, like make_turns' ``speak``."""
    return trimmed(synthesized(lambda path: subprocess.run(["espeak-ng", "-v", voice, "-w", path, text], check=True)))


CHOSEN_BY = Material(LISTENS, INTERRUPTS, VOICES, speak)
HELD_OUT = Material(OTHER_LISTENS, OTHER_INTERRUPTS, OTHER_VOICES, speak_otherwise)


async def measure(material: Material, texts: int, ears: Ears | None) -> None:
    table = Table("said", "noise below", "of", "wrong", "held, p50 / p95")
    for kind, listed in (("wrongly stopped", material.listens), ("not stopped", material.interrupts)):
        spoken = list(material.recordings(listed[:texts]))
        for snr_db in (20, 10):
            found = [await outcome(ears, text, voice, noisy(wave, snr_db, n)) for n, (text, voice, wave) in
                     enumerate(spoken)]  # fmt: skip
            wrong = [one for one in found if one.turn is (kind == "wrongly stopped")]
            held = [one.held_ms for one in found if not one.turn and one.held_ms] or [0]
            waits = " / ".join(f"{np.percentile(held, q):.0f} ms" for q in (50, 95))
            table.add_row(kind, f"{snr_db} dB", str(len(found)), str(len(wrong)), waits)
            print(kind, snr_db, sorted({f"{one.text} ({one.voice})" for one in wrong}), flush=True)
    Console().print(table)


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
        taken = [is_back_channel(words) for words, its in said if its == act]
        table.add_row(name, str(len(taken)), f"{100 * sum(taken) / max(1, len(taken)):.1f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="use texts and voices that were not used for tuning")
    parser.add_argument("--texts", type=int, default=25, help="number of texts per kind")
    parser.add_argument("--told", action="store_true", help="pass the correct words instead of recognizing them")
    parser.add_argument("--dialogues", type=Path, metavar="FOLDER", help="judge the words of dialogues, without audio")
    args = parser.parse_args()
    if args.dialogues:
        count(args.dialogues)
    else:
        ears = None if args.told else Ears(StageConfig())
        asyncio.run(measure(HELD_OUT if args.held_out else CHOSEN_BY, args.texts, ears))


if __name__ == "__main__":
    main()
