"""The users of a soak, in a process of their own, so that what they take of the machine is known.

Each lives one life after another. Some are callers. What goes wrong in a life is a line of the journal, and the user
goes on. Knows no server but its address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.bench.client import outcome
from app.client import Response
from app.media.audio import decode_audio
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.aio.event_loop import settle
from engine.audio.resampler import resample
from engine.core import Pcm
from tests.soak import journal
from tests.soak.lives import QUESTION, Life, User, calls, speaks

LONG = "Repeat after me: the blue car is late and the red house is big, the old river is long."
"""Three seconds of nano's speech."""

OPEN_QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "open_questions.txt"
SPOKEN = Path(__file__).parents[1] / "data" / "spoken"
CHORUS = 12
"""Two replicas of the ears hear four at once each; what one has no room for goes to the other, or waits."""
BEAT_S, LAG_EVERY_S = 0.02, 5.0
PAUSE_S = 0.5
"""Between two lives of a user."""


class Lines:
    """A diary whose lines go to the journal."""

    def __init__(self, life: int, to: journal.Journal) -> None:
        self._life, self._to = life, to

    def did(self, user: str, way: str) -> None:
        self._to.add(journal.Done(self._life, time.monotonic(), user, way))

    def heard(self, user: str, way: str, answer: Response) -> None:
        self._to.add(as_line(self._life, user, way, answer))

    def failed(self, user: str, way: str, why: str) -> None:
        """A life that ended in an error."""
        self._to.add(journal.Answer(self._life, time.monotonic(), user, way, why))

    def lost(self, user: str, until_s: float, note: str) -> None:
        self._to.add(journal.Fault(self._life, time.monotonic(), "loss", until_s, user, note))

    def lag(self, longest_s: float) -> None:
        self._to.add(journal.Lag(self._life, time.monotonic(), round(longest_s, 4)))


async def chorus(url: str, life: int, to: journal.Journal) -> None:
    """So many speak at once that the ears have loaded all that they ever load."""
    lines, words = Lines(life, to), voice(SPOKEN / "in_020.ogg")
    async with asyncio.TaskGroup() as tasks:
        for number in range(CHORUS):
            user = User(url.replace("ws", "http", 1), number, [words], lines, f"singer{number}")
            tasks.create_task(_once(user, speaks, lines), name=user.name)


def as_line(life: int, user: str, way: str, answer: Response) -> journal.Answer:
    """What a listener had of an answer, now that it was heard out."""
    first_s, player = answer.ttfa_s, answer.player
    gaps = tuple((round(begun_s, 4), round(ended_s, 4)) for begun_s, ended_s in player.gaps)
    first_s = None if first_s is None else round(first_s, 4)
    return journal.Answer(life, time.monotonic(), user, way, outcome(answer), first_s, round(player.seconds, 3), gaps)


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many users come at once, and how many of them call."""

    users: int
    callers: int
    open: bool = False
    """Whether they ask open questions, which need a language model; otherwise what nano knows."""

    @property
    def questions(self) -> Sequence[str]:
        return OPEN_QUESTIONS.read_text(encoding="utf-8").splitlines() if self.open else (QUESTION,)

    @property
    def long(self) -> str:
        return "Tell me a long story about a river." if self.open else LONG


async def users(url: str, crowd: Crowd, seconds: float, life: int, to: journal.Journal) -> None:
    """So many users at once, for so long; then each ends what they are at."""
    lines, voices = Lines(life, to), [voice(SPOKEN / name) for name in ("in_020.ogg", "in_023.ogg", "in_026.ogg")]
    questions = crowd.questions
    root = url.replace("ws", "http", 1)
    until_s = asyncio.get_running_loop().time() + seconds
    settle()  # a search through all that is loaded would stop all players at once
    beating = asyncio.create_task(_beat(lines), name="beat")
    async with asyncio.TaskGroup() as tasks:
        for number in range(crowd.users):
            caller = number >= crowd.users - crowd.callers
            name = f"{'caller' if caller else 'user'}{number}"
            user = User(root, 1000 * life + number, voices, lines, name, crowd.long, questions)
            tasks.create_task(_live(user, calls if caller else None, until_s, lines), name=name)
    beating.cancel()
    await asyncio.wait([beating])


async def _live(user: User, always: Life | None, until_s: float, lines: Lines) -> None:
    """Begin at a moment of one's own, and go on whatever happens."""
    await asyncio.sleep(user.random.uniform(0.0, 3.0))
    while asyncio.get_running_loop().time() < until_s:
        life = always or user.draw()
        await _once(user, life, lines)
        await asyncio.sleep(PAUSE_S)


async def _once(user: User, life: Life, lines: Lines) -> None:
    try:
        await user.once(life)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a line of the report
        lines.failed(user.name, life.__name__, _why(error))


def _why(error: BaseException) -> str:
    """An error in a sentence; of several in one task group, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


async def _beat(lines: Lines) -> None:
    """Notice when this process comes late to everything: its players run dry by its own fault then."""
    told_s = last_s = time.monotonic()
    longest_s = 0.0
    while True:
        await asyncio.sleep(BEAT_S)
        now_s = time.monotonic()
        longest_s = max(longest_s, now_s - last_s - BEAT_S)
        last_s = now_s
        if now_s - told_s >= LAG_EVERY_S:
            lines.lag(longest_s)
            told_s, longest_s = now_s, 0.0


def voice(path: Path) -> Pcm:
    """A recording: int16 [samples] at SPEAKER_RATE_HZ."""
    return resample(decode_audio(path.read_bytes(), 10.0), MIC_RATE_HZ, SPEAKER_RATE_HZ).astype(np.int16)
