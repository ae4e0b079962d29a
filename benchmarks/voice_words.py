"""Check a TTS model by transcribing 20 texts with Whisper, once through Parley and once from the library alone.

    pip install faster-whisper
    python -m benchmarks.voice_words --weights FOLDER --whisper FOLDER [--use tts.sherpa] [--threads N] [--texts N]

words wrong    percent, of plain texts and of hard ones (numbers, abbreviations, names): clause by clause through
               Parley, and from the library, called once per text
first sound    from a text to its first audio, p50 and worst
speed          seconds of computing per second of speech
joints         between clauses within a phrase: their number, the longest pause, and the largest jump between samples
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recognizers import Hear, faster_whisper, recorded, words_of
from benchmarks.voices import VoiceWorker
from engine.audio.resampler import resample
from engine.core import SPEAKER_RATE_HZ, Wave
from engine.english.clause import in_words
from engine.training.nano.distance import edits
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig
from engine.worker.tts.clause_voice import Saying
from engine.worker.tts.clauses import Clauses
from engine.worker.tts.joints import ends_within_phrase

PLAIN = (
    "Hello, it is a pleasure to meet you.",
    "The weather is nice today, so let us go for a walk in the park.",
    "I would like to order two large pizzas with mushrooms and extra cheese.",
    "She opened the old wooden door, and a cold wind blew into the room.",
    "Could you please tell me where the nearest train station is?",
    "Yes, of course.",
    "Sure! First, fill the pot with water. Then bring it to a boil, add the pasta, and stir it from time to time. "
    "After ten minutes, it is ready.",
    "The museum opens at nine in the morning and closes at six in the evening, except on Mondays, when it stays closed "
    "all day long, and on Fridays, when visitors are welcome until ten at night.",
    "My brother's children don't like vegetables, but they'll eat carrots if we're having soup.",
    "Thank you for calling. How may I help you today?",
)
HARD = (
    "On March 3rd, 2024, Dr. Smith paid $12.50 for 3 kg of apples.",
    "The meeting is at 10:30 a.m. in room 204.",
    "Call 555-0199 or visit our shop at 12 Main Street.",
    "In 1999, about 45% of the 1,200 members voted.",
    "It's -5 °C outside, for example in Oslo.",
    "The U.S. president met the CEO of IBM and NASA's director.",
    "Elara and Zyx went to Kathmandu with Nguyen and Siobhan.",
    "The file is called report_final.pdf, 3.5 MB large.",
    "Add half a cup of sugar & two spoons of oil.",
    "He scored three goals in the 2nd half, and that's his 7th of the season.",
)
LONGEST_S = 60.0


@dataclass(frozen=True, slots=True)
class Spoken:
    """A text and its audio, as emitted by Parley."""

    text: str
    wave: Wave
    first_s: float
    took_s: float
    marks: Mapping[int, int]
    """Number of characters -> the sample by which they have been spoken."""

    def joints(self, stage: Any) -> list[int]:
        """Return the samples at which a clause ends within a phrase."""
        cutter = Clauses(stage.words, phrases=stage.phrases)
        clauses = [*cutter.feed(self.text, 0)]
        return [self.marks[one.end] for one in clauses if one.end in self.marks and ends_within_phrase(one.text)]


async def through_parley(stage: Any, texts: Sequence[str]) -> list[Spoken]:
    found: list[Spoken] = []
    async with VoiceWorker(stage, LONGEST_S).serving() as worker:
        for text in texts:
            run = worker.begin(text)
            await run.over.wait()
            took_s = time.perf_counter() - run.began_s
            wave = np.concatenate([audio.wave for _, audio in run.audio])
            marks = {characters: sample for _, audio in run.audio for sample, characters in audio.marks}
            found.append(Spoken(text, wave, run.first_s, took_s, marks))
    return found


def library_alone(stage: Any, text: str) -> Wave:
    voice = stage.info.facets.voices[0].id
    waves = [wave for wave, _ in stage.pieces(Saying(stage.wording(text), voice))]
    return resample(np.concatenate(waves), stage.rate_hz, SPEAKER_RATE_HZ)


def pause_s(wave: Wave, at: int) -> float:
    quiet = np.abs(wave) < 0.01
    before = at - int(np.flatnonzero(~quiet[:at])[-1]) if (~quiet[:at]).any() else at
    after = int(np.argmax(~quiet[at:])) if (~quiet[at:]).any() else 0
    return (before + after) / SPEAKER_RATE_HZ


def jump(wave: Wave, at: int) -> float:
    return float(np.abs(np.diff(wave[max(0, at - 2) : at + 2])).max(initial=0.0))


def share(hear: Hear, texts: Sequence[str], waves: Sequence[Wave]) -> float:
    """Return the percentage of words that Whisper transcribes wrongly."""
    wrong = words = 0
    for text, wave in zip(texts, waves, strict=True):
        meant = words_of(in_words(text))
        heard = words_of(in_words(hear(recorded(wave))))
        wrong += edits(meant, heard)
        words += len(meant)
    return 100 * wrong / words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--use", default="tts.sherpa")
    parser.add_argument("--weights", type=Path, required=True, help="folder with the model of the voice")
    parser.add_argument("--whisper", type=Path, required=True, help="a folder of Whisper for CTranslate2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--texts", type=int, default=10, help="of each kind")
    given = parser.parse_args()
    stage: Any = make(given.use, "voice", 0, StageConfig(weights=given.weights, threads=given.threads, slots=2))
    kinds = {"plain": PLAIN[: given.texts], "hard": HARD[: given.texts]}
    texts = [text for kind in kinds.values() for text in kind]
    spoken = asyncio.run(through_parley(stage, texts))
    firsts = [1000 * one.first_s for one in spoken]
    speech_s = sum(len(one.wave) for one in spoken) / SPEAKER_RATE_HZ
    joints = [(pause_s(one.wave, at), jump(one.wave, at)) for one in spoken for at in one.joints(stage)]
    longest, largest = (max(column) for column in zip(*joints, strict=True)) if joints else (0.0, 0.0)
    print(f"first sound   {statistics.median(firsts):.0f} ms, worst {max(firsts):.0f} ms")
    print(f"speed         {sum(one.took_s for one in spoken) / speech_s:.3f}")
    print(f"joints        {len(joints)}, longest pause {longest:.3f} s, largest jump {largest:.3f}")
    hear = faster_whisper(given.whisper)
    for kind, said in kinds.items():
        waves = [one.wave for one in spoken if one.text in said]
        alone = [library_alone(stage, text) for text in said]
        print(f"words wrong   {kind}: {share(hear, said, waves):.1f} %, alone {share(hear, said, alone):.1f} %")


if __name__ == "__main__":
    main()
