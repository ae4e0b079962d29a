"""Measure vision on scenes with surfaces, lamps, clutter and typefaces that training did not have.

    python -m engine.training.nano.eval_eyes

Prints rates with their bars, confusions, and (``--speed``) the time of one look. Strict: a thing that was not found, or
"?", counts as wrong in every row. ``--familiar`` draws scenes like those of training instead.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.training.nano import fonts
from engine.training.nano.scenes import Artist, Drawn, Example
from engine.worker.models.nano.eyes import Eyes, Look
from engine.worker.models.nano.scene import UNSURE, Group, Thing
from engine.worker.models.nano.thinker import WEIGHTS

BARS = {"colours": 0.95, "shapes": 0.9, "counts": 0.9, "characters": 0.9}


@dataclass(slots=True)
class Score:
    """Counts of right and all answers by question; ``confused`` counts (truth, said)."""

    right: Counter[str] = field(default_factory=Counter[str])
    all: Counter[str] = field(default_factory=Counter[str])
    confused: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def note(self, row: str, truth: str, said: str) -> None:
        self.all[row] += 1
        self.right[row] += truth == said
        if truth != said:
            self.confused[truth, said] += 1

    def rate(self, row: str) -> float:
        return self.right[row] / max(1, self.all[row])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder with eyes_find.onnx and eyes_read.onnx")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--fonts", type=Path, default=fonts.FOLDER)
    parser.add_argument("--familiar", action="store_true")
    parser.add_argument("--speed", action="store_true")
    args = parser.parse_args()
    eyes = Eyes(args.weights)
    typefaces = fonts.learned(args.fonts) if args.familiar else fonts.held_out(args.fonts)
    artist = Artist(args.seed, typefaces, held_out=not args.familiar)
    _report(measure(eyes, (artist.example() for _ in range(args.count))))
    if args.speed:
        _print_speed(eyes, Artist(args.seed + 1, typefaces))


def measure(eyes: Eyes, examples: Iterator[Example]) -> Score:
    """Look at every example once."""
    score = Score()
    for example in examples:
        judge(score, example, eyes.look(example.pixels))
    return score


def judge(score: Score, example: Example, look: Look) -> None:
    """Score the description of an example."""
    truth, said = example.scene, look.scene
    score.note("light", truth.light, said.light)
    score.note("whole line", str(truth), str(said))
    score.note("background", truth.background, said.background)
    _note_colour(score, truth.light, truth.background, said.background)
    height, width = example.pixels.shape[:2]
    for drawn in example.shapes:
        thing = nearest(drawn, [t for t in look.things if len(t.shape) > 1 or t.shape == UNSURE], width, height)
        score.note("shapes", drawn.name, thing.shape if thing else "missed")
        _note_colour(score, truth.light, drawn.colour, thing.colour if thing else "missed")
    for group in truth.groups:
        score.note("counts", f"{group.count} {group.colour} {group.shape}", _counted(said.groups, group))
    if truth.text:
        for letter in example.letters:
            thing = nearest(letter, look.things, width, height)
            score.note("characters", letter.name, thing.shape if thing else "missed")
        score.note("one character" if len(truth.text) == 1 else "whole text", truth.text, said.text or "nothing")
    else:
        score.note("nothing printed", "", said.text)
    if not truth.groups:
        score.note("no shapes", "", ", ".join(map(str, said.groups)))


def _note_colour(score: Score, light: str, truth: str, said: str) -> None:
    score.note("colours", truth, said)
    score.note(f"colours, {light}", truth, said)


def _counted(said: Sequence[Group], group: Group) -> str:
    """Describe a group as it was reported; equal to the truth if the number is right."""
    same = [one.count for one in said if (one.colour, one.shape) == (group.colour, group.shape)]
    return f"{same[0] if same else 0} {group.colour} {group.shape}"


def nearest(drawn: Drawn, things: Sequence[Thing], width: int, height: int) -> Thing | None:
    """Return the thing at a drawn thing's position, or None."""
    x, y, wide, high = drawn.box
    near = [(np.hypot(thing.x * width - x, thing.y * height - y), thing) for thing in things]
    far, thing = min(near, key=lambda pair: pair[0], default=(np.inf, None))
    return thing if far < max(wide, high) / 2 else None


def _report(score: Score) -> None:
    for row in sorted(score.all):
        bar = f"  bar {BARS[row]:.0%}" if row in BARS else ""
        print(f"{row:18} {score.right[row]:5} of {score.all[row]:5}: {score.rate(row):6.1%}{bar}", flush=True)
    words = [(truth, said, n) for (truth, said), n in score.confused.most_common() if truth and " " not in truth + said]
    print("taken for another:", "; ".join(f"{truth} as {said} {n}" for truth, said, n in words[:40]))


def _print_speed(eyes: Eyes, artist: Artist) -> None:
    frames = [np.kron(artist.example().pixels, np.ones((3, 3, 1), np.uint8))[:480, :640] for _ in range(50)]
    times: list[float] = []
    for frame in frames:
        start = time.perf_counter()
        eyes.look(frame)
        times.append((time.perf_counter() - start) * 1000)
    print(f"one look at 640 x 480 on one thread: p50 {np.median(times):.1f} ms, p95 {np.quantile(times, 0.95):.1f} ms")


if __name__ == "__main__":
    main()
