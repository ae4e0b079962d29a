"""Simulate sessions whose wait adapts to the speaker (`turn_detection.target_cuts`), in three styles of pausing.

    python -m benchmarks.tuned_waits [--target 0.02] [--sessions 400]

Each turn has at least one pause, of a log-normal length as in recordings of conversations. The end-of-turn model always
waits 600 ms before tuning. A pause longer than the wait is a cut; the tuner learns its length when the user goes on.
``uniform`` has the pauses of the recordings of people (0.3 to 1.2 s), which the tuner's distribution does not fit.

*Best fixed* is the shortest wait that cuts only the target share of these turns, which only the simulation knows.
All figures are of turns 21 to 60. Nothing is timed, so a busy machine changes no figure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from app.realtime.input.wait_tuner import WaitTuner
from benchmarks.program import parser

UNTUNED_MS = 600.0
LEARNING = 20
TURNS = 60

Draw = Callable[[np.random.Generator], float]


@dataclass(frozen=True, slots=True)
class Style:
    """How a speaker pauses within a turn."""

    pause_ms: Draw
    more: float
    """Mean number of pauses in a turn beyond the first (Poisson)."""

    def turn(self, rng: np.random.Generator) -> list[float]:
        return [self.pause_ms(rng) for _ in range(1 + rng.poisson(self.more))]


def log_normal(median_ms: float, spread: float) -> Draw:
    return lambda rng: median_ms * float(np.exp(spread * rng.normal()))


STYLES = {
    "brisk": Style(log_normal(220, 0.25), 0.0),
    "usual": Style(log_normal(350, 0.3), 0.3),
    "hesitant": Style(log_normal(550, 0.3), 0.6),
    "uniform": Style(lambda rng: rng.uniform(300, 1_200), 0.0),
}


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of one style after the first turns."""

    cuts: float
    wait_ms: float
    best_ms: float
    untuned_cuts: float


def simulate(style: Style, target: float, sessions: int, seed: int = 1) -> Result:
    """Run sessions of one style."""
    rng = np.random.default_rng(seed)
    cuts: list[bool] = []
    waits_ms: list[float] = []
    longest_ms: list[float] = []
    for _ in range(sessions):
        tuner = WaitTuner(target)
        for n in range(TURNS):
            pauses_ms, wait_ms = style.turn(rng), tuner.factor * UNTUNED_MS
            if n >= LEARNING:
                cuts.append(max(pauses_ms) > wait_ms)
                waits_ms.append(wait_ms)
                longest_ms.append(max(pauses_ms))
            for pause_ms in pauses_ms:
                tuner.add_pause(pause_ms, UNTUNED_MS)
            tuner.add_turn()
    best_ms = float(np.quantile(longest_ms, 1 - target))
    untuned = float(np.mean(np.array(longest_ms) > UNTUNED_MS))
    return Result(float(np.mean(cuts)), float(np.mean(waits_ms)), best_ms, untuned)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--target", type=float, default=0.02, help="share of turns that may be cut")
    options.add_argument("--sessions", type=int, default=400)
    args = options.parse_args()
    table = Table("pauses", "cut, untuned", "cut", "wait ms", "best fixed ms", "above ms")
    for name, style in STYLES.items():
        one = simulate(style, args.target, args.sessions)
        above_ms = one.wait_ms - one.best_ms
        shares = [f"{share:.1%}" for share in (one.untuned_cuts, one.cuts)]
        table.add_row(name, *shares, *(f"{ms:.0f}" for ms in (one.wait_ms, one.best_ms, above_ms)))
    Console().print(table)


if __name__ == "__main__":
    main()
