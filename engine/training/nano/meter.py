"""Measures intelligibility: word and phone accuracy of one recognizer (pocketsphinx with its own English models).

    python -m engine.training.nano.meter teacher --work DIR          needs the teacher; writes eval/teacher.json
    python -m engine.training.nano.meter nano [--weights FOLDER] [--speed 1.4] [--guidance 2]
                                                                    nano's streaming path, relative to the teacher

Both take [--voice slt] and [--sets prose numbers].

There are five genres of 40 sentences each and a set with rare words. One old recognizer gives a lower bound of
intelligibility and says nothing about naturalness; figures are only compared with the teacher's on the same sentences.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pocketsphinx
from numpy.typing import NDArray
from scipy.signal import resample_poly

from engine.english.speller import Speller
from engine.training.nano import teach
from engine.training.nano.corpus import dictionary
from engine.training.nano.distance import edits
from engine.worker.models.nano.voice import VOICES

RATE_HZ = 16000
EVAL = Path(__file__).parent / "eval"
TEACHER = EVAL / "teacher.json"
GENRES = ("assistant", "numbers", "questions", "names", "prose")
SETS = (*GENRES, "rare")
# The recogniser's spelling of what the front end writes otherwise: no error of the voice.
SPELLINGS = {"dr": ["doctor"], "mr": ["mister"], "mrs": ["missus"], "cannot": ["can", "not"]}
Wave = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Score:
    """Numbers of errors (including insertions), and of words and phones in the reference."""

    words: int = 0
    word_errors: int = 0
    phones: int = 0
    phone_errors: int = 0

    @property
    def word_accuracy(self) -> float:
        return 1 - self.word_errors / self.words

    @property
    def phone_accuracy(self) -> float:
        return 1 - self.phone_errors / self.phones

    def __add__(self, other: Score) -> Score:
        return Score(
            self.words + other.words,
            self.word_errors + other.word_errors,
            self.phones + other.phones,
            self.phone_errors + other.phone_errors,
        )


def sentences(name: str) -> list[str]:
    """Return the written sentences of a set."""
    return (EVAL / f"{name}.txt").read_text().splitlines()


def spoken(text: str) -> str:
    """Return a text as the front end normalizes it, in letters."""
    speller = Speller()
    return (speller.feed(text) + speller.flush()).letters


def score(text: str, wave: Wave) -> Score:
    """Compare a written text with 16 kHz speech."""
    return compare(re.findall(r"[a-z']+", spoken(text)), hear(wave))


def compare(said: Sequence[str], heard: Sequence[str]) -> Score:
    phones = phones_of(said)
    return Score(len(said), edits(said, heard), len(phones), edits(phones, phones_of(heard)))


def hear(wave: Wave) -> list[str]:
    """Recognize the words in float samples at 16 kHz, with a little noise and silence added as pocketsphinx expects."""
    padded = np.pad(wave, 4000) + np.random.default_rng(0).normal(0, 1e-4, len(wave) + 8000)
    pcm = (padded / max(1e-3, np.abs(padded).max()) * 0.6 * 32767).astype("<i2")
    decoder = _decoder()
    decoder.start_utt()
    decoder.process_raw(pcm.tobytes(), full_utt=True)
    decoder.end_utt()
    best = decoder.hyp()
    words = re.sub(r"\(\d+\)", "", best.hypstr).split() if best else []
    return [same for word in words for same in SPELLINGS.get(word, [word])]


def phones_of(words: Iterable[str]) -> list[str]:
    """Return dictionary phones; a word outside the dictionary counts as its letters."""
    lexicon = _lexicon()
    return [phone for word in words for phone in lexicon.get(word, list(word))]


@cache
def _lexicon() -> dict[str, list[str]]:
    return dictionary()


@cache
def _decoder() -> pocketsphinx.Decoder:
    return pocketsphinx.Decoder(samprate=RATE_HZ, loglevel="FATAL")


def teacher_waves(work: Path, texts: Sequence[str], voice: str = VOICES[0]) -> list[Wave]:
    """Return the teacher's speech of the same normalized texts."""
    lines = "".join(f"{index}\t{spoken(text)}\n" for index, text in enumerate(texts))
    scale = np.float32(32768)
    with TemporaryDirectory() as folder:
        command = [*teach.program(work, voice), folder]
        subprocess.run(command, input=lines, text=True, check=True, capture_output=True)
        return [
            np.fromfile(Path(folder, f"{index}.s16"), "<i2").astype(np.float32) / scale for index in range(len(texts))
        ]


def nano_waves(
    weights: Path | None, texts: Sequence[str], voice: str = VOICES[0], speed: float = 1.0, guidance: float = 1.0
) -> list[Wave]:
    """Return nano's speech, fed word by word and rendered in chunks as for a listener."""
    from engine.training.nano.speak import Voice

    speaker = Voice(weights, voice)
    said = (speaker.say(text, speed=speed, guidance=guidance) for text in texts)
    return [resample_poly(sound, 2, 3).astype(np.float32) for sound in said]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("who", choices=("teacher", "nano"))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--voice", choices=VOICES, default=VOICES[0])
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--guidance", type=float, default=1.0)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    args = parser.parse_args()
    sums: dict[str, tuple[Score, Score]] = {}
    for name in args.sets:
        texts = sentences(name)
        if args.who == "teacher":
            waves = teacher_waves(args.work, texts, args.voice)
            scores = [score(text, wave) for text, wave in zip(texts, waves, strict=True)]
            store(args.voice, name, scores)
            print(f"{name}: {described(sum(scores, Score()))}", flush=True)
            continue
        waves = nano_waves(args.weights, texts, args.voice, args.speed, args.guidance)
        scores = [score(text, wave) for text, wave in zip(texts, waves, strict=True)]
        sums[name] = sum(scores, Score()), sum(teacher_scores(name, args.voice), Score())
        print(f"{name}: {described(*sums[name])}", flush=True)
    genres = [pair for name, pair in sums.items() if name in GENRES]
    if len(genres) == len(GENRES):
        made, known = (sum((pair[side] for pair in genres), Score()) for side in (0, 1))
        print(f"the five genres: {described(made, known)}")


def described(made: Score, known: Score | None = None) -> str:
    """Describe a score, and its ratio to a known one."""
    shown = f"words {made.word_accuracy:.4f} of {made.words}, phones {made.phone_accuracy:.4f}"
    if known is None:
        return shown
    words, phones = made.word_accuracy / known.word_accuracy, made.phone_accuracy / known.phone_accuracy
    return f"{shown}; of the teacher's: words {words:.4f}, phones {phones:.4f}"


def store(voice: str, name: str, scores: Sequence[Score]) -> None:
    """Store a teacher's scores of a set, so that later runs need no teacher."""
    known = json.loads(TEACHER.read_text()) if TEACHER.exists() else {}
    known.setdefault(voice, {})[name] = [list(astuple(one)) for one in scores]
    TEACHER.write_text(json.dumps(known) + "\n")


def teacher_scores(name: str, voice: str = VOICES[0]) -> list[Score]:
    """Return the scores of a voice's teacher, one per sentence of a set, in order."""
    return [Score(*one) for one in json.loads(TEACHER.read_text())[voice][name]]


if __name__ == "__main__":
    main()
