"""Compare denoisers in simulated rooms: word errors, false turns, missed turns, delay and computing time.

    python -m benchmarks.turn_recordings out/people         # once: recordings of people, 98 MB
    python -m benchmarks.noise out/people [--denoisers none,webrtc-6dB,…] [--sentences 40] [--minutes 3]

The scenes are those of ``benchmarks.rooms`` without an echo. The noise is babble of six people, music, a television or
steady pink noise.

words            word errors of an ASR model in %, on sentences of people at the given distance of user and noise in dB.
false            turns per minute of noise alone, 5 dB below a user's voice; ``open``: seconds with a turn open
missed           sentences in that noise without a turn in their first second
own              sentences in that noise within a turn that contains no other sentence
of a core        CPU time per second of audio; the delay is the maximum of the cross-correlation with the input

The turn detector has its default settings; ``floor`` adds the margin above constant voices (``babble_floor.py``).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from app.realtime.input.noise_reduction import MARGIN_DB
from app.realtime.input.turn_detector import TurnConfig, TurnDetector, VoiceStarted, VoiceStopped
from benchmarks.denoisers import DENOISERS
from benchmarks.recognizers import LIBRARIES, Hear, Score
from benchmarks.rooms import ROOMS, Conditions, Line, Scene, lines, scene, users
from engine.audio.resampler import resample
from engine.core import MIC_RATE_HZ, Pcm
from engine.deployment.model_catalog import model_of
from tests.real.weights import CACHE

KINDS = ("steady", "babble", "music", "television")
MARGINS_DB = (0.0, MARGIN_DB)
LONGEST = MIC_RATE_HZ // 10
"""Samples of the longest delay that is looked for."""
PIECE = MIC_RATE_HZ // 50
MARGIN = MIC_RATE_HZ // 4
"""Samples around a sentence that are transcribed with it."""
SEED = 52


@dataclass(frozen=True, slots=True)
class Denoised:
    """A scene with its microphone's signal after a denoiser."""

    scene: Scene
    pcm: Pcm


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

    def missed(self, sentences: Sequence[tuple[int, int]]) -> int:
        """Return how many sentences have no turn in their first second."""
        return sum(
            not any(start < begin + MIC_RATE_HZ and end > begin for start, end in self.spans) for begin, _ in sentences
        )

    def own(self, sentences: Sequence[tuple[int, int]]) -> int:
        """Return how many sentences lie within one turn that contains no other sentence."""
        middles = [(begin + end) // 2 for begin, end in sentences]
        held = [sum(start <= at <= end for at in middles) for start, end in self.spans]
        return sum(count == 1 for count in held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("people", type=Path, help="folder of benchmarks.turn_recordings")
    parser.add_argument("--denoisers", default="none,webrtc-6dB,webrtc-12dB", help=f"of none, {', '.join(DENOISERS)}")
    parser.add_argument("--ears", default="moonshine-tiny-en", help="ASR models, or nothing")
    parser.add_argument("--sentences", type=int, default=40)
    parser.add_argument("--levels", default="20,10,5,0", help="dB of the user's voice above the noise")
    parser.add_argument("--minutes", type=float, default=3.0, help="of each noise alone, and with a user; or 0")
    asked = parser.parse_args()
    user, others = users(lines(asked.people))
    names = asked.denoisers.split(",")
    console = Console(width=170)
    for ears in filter(None, asked.ears.split(",")):
        levels = [float(one) for one in asked.levels.split(",") if one]
        console.print(words_table(ears, names, user, others, asked.sentences, levels))
    if asked.minutes:
        console.print(turns_table(names, user, others, 60 * asked.minutes))
    console.print(cost_table([name for name in names if name != "none"], user, others))


def words_table(
    ears: str, names: Sequence[str], user: Sequence[Line], others: Sequence[Line], count: int, levels: Sequence[float]
) -> Table:
    hear = LIBRARIES[model_of(ears).use](CACHE / ears)
    conditions = [("clean", None), *product(KINDS, levels)]
    table = Table(f"{ears}: words, %", *(kind if db is None else f"{kind} {db:.0f}" for kind, db in conditions))
    scenes = [spoken(user, others, count, kind, db) for kind, db in conditions]
    for name in names:
        cells = [f"{words_wrong(name, one, hear):.1f}" for one in scenes]
        table.add_row(name, *cells)
        print(name, ears, *cells, flush=True)  # while the rest is measured
    return table


def spoken(user: Sequence[Line], others: Sequence[Line], count: int, kind: str, level_db: float | None) -> Scene:
    """Return ``count`` sentences in the kitchen, the room with the longest reverberation."""
    noise = None if level_db is None else kind
    conditions = Conditions(room=ROOMS[0], echo_db=None, noise=noise, noise_db=-(level_db or 0.0), pauses_s=(1.0, 2.0))
    made = scene(conditions, user, others, seconds=8.0 * count, seed=SEED)
    said = made.said[:count]
    return replace(made, microphone=made.microphone[: said[-1].end + MIC_RATE_HZ], said=said)


def words_wrong(name: str, played: Scene, hear: Hear) -> float:
    score = Score()
    denoised = through(name, played.microphone)
    for said in played.said:
        score.add(said.text, hear(denoised[said.start - MARGIN : said.end + MARGIN]), 0.0, 0.0)
    return 100 * score.wrong / score.words


def turns_table(names: Sequence[str], user: Sequence[Line], others: Sequence[Line], seconds: float) -> Table:
    columns = [f"{kind}: {what}" for kind, what in product(KINDS[1:], ("false", "open", "missed", "own"))]
    table = Table("turns", "floor", *columns)
    made = [noisy(kind, user, others, seconds / len(ROOMS)) for kind in KINDS[1:]]
    for name in names:
        heard = [[Denoised(one, through(name, one.microphone)) for one in kind] for kind in made]
        for margin_db in MARGINS_DB:
            cells = [cell for kind in heard for cell in turn_cells(kind, margin_db)]
            table.add_row(name, f"{margin_db:.0f} dB", *cells)
            print(name, margin_db, *cells, flush=True)
    return table


def noisy(kind: str, user: Sequence[Line], others: Sequence[Line], seconds: float) -> list[Scene]:
    """Return scenes of a noise in each room, without a user and then with one."""
    conditions = [Conditions(room=room, echo_db=None, noise=kind, pauses_s=(4.0, 8.0)) for room in ROOMS]
    return [scene(one, people, others, seconds, SEED + n) for people in ((), user) for n, one in enumerate(conditions)]


def turn_cells(heard: Sequence[Denoised], margin_db: float) -> Iterator[str]:
    """Yield the cells of one noise."""
    found = [(turns(one.pcm, margin_db), [(said.start, said.end) for said in one.scene.said]) for one in heard]
    alone = [one for one, said in found if not said]
    within = [(one, said) for one, said in found if said]
    yield f"{np.mean([one.starts for one in alone]):.1f}"
    yield f"{np.mean([one.open_s for one in alone]):.1f}"
    yield f"{sum(one.missed(said) for one, said in within)}"
    yield f"{sum(one.own(said) for one, said in within)} of {sum(len(said) for _, said in within)}"


def turns(pcm: Pcm, margin_db: float) -> Turns:
    """Detect turns as a session with this margin does."""
    detector = TurnDetector(TurnConfig(margin_db=margin_db))
    spans: list[tuple[int, int]] = []
    start: int | None = None
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


def through(name: str, pcm: Pcm) -> Pcm:
    """Process a recording frame by frame, as a session does."""
    if name == "none":
        return pcm
    denoiser = DENOISERS[name]()
    frame = denoiser.frame
    wave = np.divide(resample(pcm, MIC_RATE_HZ, denoiser.rate_hz), 32768, dtype=np.float32)
    whole = range(0, len(wave) // frame * frame, frame)
    out = np.concatenate([denoiser.process(wave[at : at + frame]) for at in whole])
    narrow = resample((np.clip(out, -1, 1) * 32767).astype(np.int16), denoiser.rate_hz, MIC_RATE_HZ)
    return np.concatenate([narrow, np.zeros(max(0, len(pcm) - len(narrow)), np.int16)])[: len(pcm)]


def cost_table(names: Sequence[str], user: Sequence[Line], others: Sequence[Line]) -> Table:
    played = spoken(user, others, 5, "clean", None).microphone
    table = Table("denoiser", "delay, ms", "of a core, %")
    for name in names:
        through(name, played[:MIC_RATE_HZ])
        began_s = time.process_time()
        after = through(name, played)
        share = (time.process_time() - began_s) * MIC_RATE_HZ / len(played)
        table.add_row(name, f"{1000 * lag(played, after) / MIC_RATE_HZ:.1f}", f"{100 * share:.1f}")
    return table


def lag(before: Pcm, after: Pcm) -> int:
    """Return the delay of the second signal in samples."""
    x = before.astype(np.float64)
    y = after.astype(np.float64)
    return int(np.argmax([np.dot(x[: len(x) - late], y[late:]) for late in range(LONGEST)]))


if __name__ == "__main__":
    main()
