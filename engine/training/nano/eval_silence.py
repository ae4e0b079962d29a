"""Measure whether silence around and between the words changes recognition.

    python -m engine.training.nano.eval_silence --part 1/5 [--resume FILE]

Correctly recognized requests of tests/data/spoken get seconds of silence before, after and between two words (at a word
end found by the recognizer): digital silence, room noise, mains hum, breath. Prints how many were recognized
differently, and which; exits with 1 if any was. ``--resume`` stores the results in a file, so that the command can be
interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, sosfilt

from engine.chunk import Chunk
from engine.core import MIC_RATE_HZ, Pcm
from engine.training.nano.conditions import level, pink, speech_level
from engine.training.nano.eval_ears import SPOKEN, Recording, alone, read
from engine.worker.models.nano.ears import CEPSTRUM, Ears
from engine.worker.models.nano.utterance import FRAME, NanoUtterance
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

Samples = NDArray[np.floating]
BREATH_S = 1.8  # seconds per breath
PLACES_S = ((3.0, 0.0, 0.0), (8.0, 0.0, 8.0), (0.0, 4.0, 0.0))  # before, between, after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/5", help="i/n: every n-th recording, from the i-th")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="keep there what was heard; a new file after changes"
    )
    args = parser.parse_args()
    first, every = map(int, args.part.split("/"))
    sys.exit(table(Watched(StageConfig()), read(SPOKEN)[first - 1 :: every], Kept(args.resume)))


def table(ears: Watched, recordings: list[Recording], kept: Kept) -> bool:
    """Print how many requests are recognized differently with each silence. Returns whether any is."""
    requests = [one for recording in recordings if (one := split(ears, recording))]
    print(f"| silence around {len(requests)} requests that are heard rightly without | heard otherwise |\n|---|---|")
    rows = [_row(ears, requests, silence, kept) for silence in silences()]
    return any(rows)


def _row(ears: Ears, requests: list[Split], silence: Silence, kept: Kept) -> bool:
    heard = [(one.heard, kept.words(ears, one, silence)) for one in requests]
    others = [(before, now) for before, now in heard if now != before]
    print(f"| {silence.name} | {len(others)} |", flush=True)
    for before, now in others:
        print(f"    {before!r} -> {now!r}", file=sys.stderr)
    return bool(others)


@dataclass(slots=True)
class Kept:
    """Stored results, one JSON line per recording and silence; without a file, nothing is stored."""

    file: Path | None = None
    heard: dict[tuple[str, str, str], str] = field(default_factory=dict[tuple[str, str, str], str])

    def __post_init__(self) -> None:
        if self.file and self.file.exists():
            lines = (json.loads(line) for line in self.file.read_text().splitlines())
            self.heard = {(voice, text, silence): heard for voice, text, silence, heard in lines}

    def words(self, ears: Ears, split: Split, silence: Silence) -> str:
        """Return the words recognized with the silence; "" if not understood."""
        key = (split.recording.voice, split.recording.text, silence.name)
        if key not in self.heard:
            self.heard[key] = alone(ears, replace(split.recording, pcm=silence.around(split))).heard
            if self.file:
                with self.file.open("a") as file:
                    print(json.dumps([*key, self.heard[key]]), file=file)
        return self.heard[key]


@dataclass(frozen=True, slots=True)
class Split:
    """A recording, its recognized words, and the sample at which one of its words (or the recording) ends."""

    recording: Recording
    heard: str
    between: int


@dataclass(frozen=True, slots=True)
class Silence:
    """Seconds of a filler around the words and between two of them; the words themselves stay unchanged."""

    filler: str
    below_db: int = 0
    """Level relative to the speech."""
    ahead_s: float = 0.0
    middle_s: float = 0.0
    behind_s: float = 0.0

    @property
    def name(self) -> str:
        below = f" at -{self.below_db} dB" if self.below_db else ""
        return (
            f"{self.filler}{below}: {self.ahead_s:g} s ahead, {self.middle_s:g} s between, {self.behind_s:g} s behind"
        )

    def around(self, split: Split) -> Pcm:
        """Return the recording with the silence inserted."""
        pcm = split.recording.pcm
        ahead, middle, behind = (self._filled(pcm, s) for s in (self.ahead_s, self.middle_s, self.behind_s))
        return np.concatenate([ahead, pcm[: split.between], middle, pcm[split.between :], behind])

    def _filled(self, pcm: Pcm, seconds: float) -> Pcm:
        if not seconds:
            return pcm[:0]
        filler = FILLERS[self.filler](round(seconds * MIC_RATE_HZ))
        loud = speech_level(pcm.astype(np.float64)) * 10 ** (-self.below_db / 20)
        return np.clip(np.round(filler / level(filler) * loud), -32768, 32767).astype(np.int16)


def silences() -> Iterator[Silence]:
    """Yield the rows of the table."""
    for filler in FILLERS:
        for below_db in (30, 20) if filler != "zeros" else (0,):
            yield from (Silence(filler, below_db, *seconds) for seconds in PLACES_S)


class Watched(Ears):
    """Recognizer that reports where the words of its last recording ended, in samples of the kept audio."""

    ends: tuple[int, ...] = ()

    def _final(self, req: StageRequest) -> list[Chunk]:
        search = self._held.get(req.slot)
        chunks = super()._final(req)
        words = (search.requests.seg() if search else None) or ()
        self.ends = tuple((word.end_frame + 1) * CEPSTRUM for word in words if word.word[0] not in "<[(")
        return chunks


def split(ears: Watched, recording: Recording) -> Split | None:
    """Return the end of the middle word as the recognizer found it; None if the request is not recognized correctly."""
    outcome = alone(ears, recording)
    if recording.expect is None or not outcome.right:
        return None
    between = _begin(recording.pcm) + ears.ends[len(ears.ends) // 2 - 1] if len(ears.ends) > 1 else len(recording.pcm)
    return Split(recording, outcome.heard, between)


def _begin(pcm: Pcm) -> int:
    """Return the first sample of a recording that the recognizer keeps."""
    utterance = NanoUtterance()
    for at in range(0, len(pcm), FRAME):
        utterance.push(pcm[at : at + FRAME])
        if len(utterance):
            return at + FRAME - len(utterance)
    return 0


def _room(count: int) -> Samples:
    """Return steady noise with -3 dB per octave."""
    return pink(count, np.random.default_rng(5))


def _hum(count: int) -> Samples:
    """Return mains hum with overtones."""
    t = np.arange(count) / MIC_RATE_HZ
    return np.sum([np.sin(2 * np.pi * 50 * n * t + n) / n for n in (1, 2, 3, 5, 8)], axis=0)


def _breath(count: int) -> Samples:
    """Return breath noise, in and out."""
    air = np.asarray(sosfilt(butter(2, (400, 3500), "band", fs=MIC_RATE_HZ, output="sos"), _room(count)))
    return air * np.sin(np.pi * np.arange(count) / MIC_RATE_HZ / BREATH_S) ** 2


FILLERS: dict[str, Callable[[int], Samples]] = {"zeros": np.zeros, "room": _room, "hum": _hum, "breath": _breath}

if __name__ == "__main__":
    main()
