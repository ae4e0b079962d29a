"""The best length of an answer's first clause: the first sound against what a voice that takes whole texts costs.

    python -m benchmarks.clauses [--words-a-second 25] [--voice FOLDER]

For each length of the first clause, of voices whose call costs so many milliseconds and then so much of each second of
its sound: the time from the thinker's first word to the first sound, and how many answers in a hundred run dry, and
for how long. Time is simulated: the machine's speed makes no difference. "whole" waits for the whole answer.
With a voice of sherpa-onnx its costs are measured first, on this machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from engine.config import ChunkSpec
from engine.worker.clauses import WORDS, Clause, Clauses

EVAL = Path(__file__).parents[1] / "engine" / "training" / "nano" / "eval"
LETTERS_A_SECOND = 15.0
FIRST = (1, 2, 4, 6, 8, 12, 20, 10_000)
VOICES = {
    "10 ms + 0.05": (0.010, 0.05),
    "50 ms + 0.2": (0.050, 0.2),
    "150 ms + 0.3": (0.150, 0.3),
    "50 ms + 0.6": (0.050, 0.6),
}


@dataclass(slots=True)
class Listening:
    """One answer on its way to its listener: a voice that makes a clause at a time, and a player without prebuffer."""

    fixed_s: float
    share: float
    free_s: float = 0.0
    first_s: float | None = None
    ends_s: float = 0.0
    dry_s: float = 0.0
    costs: list[float] = field(default_factory=list[float])

    def say(self, clause: Clause, now_s: float) -> None:
        length_s = len(clause.text.strip()) / LETTERS_A_SECOND
        self.costs.append(self.fixed_s + self.share * length_s)
        self.free_s = max(now_s, self.free_s) + self.costs[-1]
        if self.first_s is None:
            self.first_s = self.ends_s = self.free_s
        self.dry_s += max(0.0, self.free_s - self.ends_s)
        self.ends_s = max(self.ends_s, self.free_s) + length_s

    def in_need(self, now_s: float) -> bool:
        """Whether it would run dry if the next clause were waited for longer: the rule of ``ListenerPace``."""
        return self.first_s is not None and self.ends_s - max(now_s, self.free_s) < 2 * max(self.costs)


def heard(words: Sequence[str], every_s: float, first: int, voice: tuple[float, float]) -> Listening:
    """An answer whose words come one after the other."""
    steady = max(first, WORDS.steady)
    cutter, listening = Clauses(ChunkSpec(first=first, growth=WORDS.growth, steady=steady)), Listening(*voice)
    at, now_s = 0, 0.0
    for word in words:
        for clause in cutter.feed(word, at):
            listening.say(clause, now_s)
        if listening.in_need(now_s) and (clause := cutter.hurry()):
            listening.say(clause, now_s)
        at, now_s = at + len(word), now_s + every_s
    if last := cutter.flush():
        listening.say(last, now_s)
    return listening


def answers() -> list[list[str]]:
    """Answers of one to eight sentences."""
    lines = [line for name in ("assistant.txt", "prose.txt") for line in (EVAL / name).read_text("utf-8").splitlines()]
    found: list[list[str]] = []
    while lines:
        count = 1 + len(found) % 8
        found.append([word + " " for line in lines[:count] for word in line.split()])
        del lines[:count]
    return found


def measured(folder: Path) -> tuple[float, float]:
    """Measure what a call of a voice costs, in seconds, and then each second of its sound: a line through many
    calls."""
    from engine.worker.host import make
    from engine.worker.stage import StageConfig

    stage: Any = make("tts.sherpa", "voice", 0, StageConfig(weights=folder))
    lengths_s, took_s = list[float](), list[float]()
    for words in [words for words in answers() for _ in range(3)]:
        for count in (3, 6, 12, 24):
            began_s = time.perf_counter()
            pieces = stage._generate("".join(words[:count]), 0, 1.0, lambda: False)
            took_s.append(time.perf_counter() - began_s)
            lengths_s.append(sum(len(wave) for wave, _ in pieces) / stage._voice.rate_hz)
    share, fixed_s = np.polyfit(lengths_s, took_s, 1)
    return max(0.0, float(fixed_s)), max(0.0, float(share))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words-a-second", type=float, default=25.0, help="how fast the thinker writes")
    parser.add_argument("--voice", type=Path, help="the folder of a voice of sherpa-onnx")
    given = parser.parse_args()
    every_s, voices = 1 / given.words_a_second, dict(VOICES)
    if given.voice:
        fixed_s, share = measured(given.voice)
        voices[f"{given.voice.name}: {1000 * fixed_s:.0f} ms + {share:.2f}"] = (fixed_s, share)
    table = Table("first clause, words", *voices, title="first sound, p50, ms; answers that run dry; for how long, p50")
    for first in FIRST:
        cells = [str(first) if first < FIRST[-1] else "whole"]
        for voice in voices.values():
            found = [heard(words, every_s, first, voice) for words in answers()]
            dry = [one.dry_s for one in found if one.dry_s > 0.02]
            first_ms = statistics.median(1000 * (one.first_s or 0) for one in found)
            cells.append(f"{first_ms:.0f}; {len(dry) / len(found):.0%}; {statistics.median(dry or [0.0]):.2f} s")
        table.add_row(*cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
