"""Loads on a server over HTTP, and whether each answer under them is the right one (`benchmarks.serve`).

Users ask at once, each again when its answer is over; or they come at random, at a fixed rate (Poisson).
Every question is asked alone first. An answer under load must bring the same sound as that, its own and nobody else's,
and none behind its end. What is said as it stands is said back to the server's ears, where it has some.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import structs

from app.bench.sessions import PROMPTS
from app.client.player import Player
from app.commands.server import RemoteServer
from benchmarks.arrivals import poisson
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ, Audio, AudioPart, EngineError, Message, Request, Sampling, TextPart
from engine.audio.resampler import resample
from engine.chunk import Transcript
from engine.core import Wave

SAID = (
    "What is twelve plus thirty?",
    "Good morning.",
    "What is ninety minus forty five?",
    "Tell me a joke.",
    "What time is it?",
    "Count to five.",
    "What is your name?",
    "What is two times six?",
)
"""Texts that nano's ears know, so that what they do not hear was not said."""

ASKED = PROMPTS[:-1]
"""Questions whose answers stay the same: the last one's, the time, is another one a minute later."""

AT_ONCE = (1, 8, 16, 64)
ROUNDS, LEAST = 2, 16
"""A load has so many answers for each of its users, and so many at the least."""
SHARE = 0.7
"""The part of the most answers a second at which users come, where no rate is given."""
ALIKE_RMS = 1e-3
"""Sound that differs by less (root mean square, full scale is 1) is the same, computed beside others."""
PATIENCE_S = 300.0
"""Seconds after which an answer counts as failed: under load most of them wait in line."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of question, in as many wordings as there are requests."""

    name: str
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The questions, and how many users ask. A ``rate`` of None is chosen by what the server gave at best."""

    voices: tuple[str, ...] = ()
    at_once: tuple[int, ...] = AT_ONCE
    rate: float | None = None
    count: int | None = None

    def kinds(self) -> list[Kind]:
        """Return the questions: a text to be said, by the default voice and by those that are named, and a
        conversation's."""
        said = tuple(Request(id="", session="", messages=(), say=text) for text in SAID)
        asked = tuple(
            Request(id="", session="", messages=(Message("user", (TextPart(text),)),), sampling=Sampling(seed=number))
            for number, text in enumerate(ASKED)
        )
        voices = [
            Kind(f"voice {name}", tuple(structs.replace(one, voice=name) for one in said)) for name in self.voices
        ]
        return [Kind("default voice", said), *voices, Kind("answers", asked)]

    def answers(self, users: int) -> int:
        """Return how many answers a load of so many users has."""
        return self.count or max(ROUNDS * users, LEAST)


@dataclass(slots=True)
class Answer:
    """One answer as its listener gets it, in the listener's clock."""

    begun_s: float
    question: int
    """The index of the wording that it answers."""
    ended_s: float = 0.0
    player: Player = field(default_factory=Player)
    late: int = 0
    """Pieces of sound that came behind the answer's end."""
    failure: str | None = None

    @property
    def complete(self) -> bool:
        return self.failure is None and self.player.audible_s is not None

    @property
    def outcome(self) -> str:
        return self.failure or ("completed" if self.complete else "completed without audio")

    @property
    def first_s(self) -> float:
        """Return seconds to the first audible sound, of a complete answer."""
        assert self.player.audible_s is not None
        return self.player.audible_s - self.begun_s

    @property
    def whole_s(self) -> float:
        return self.ended_s - self.begun_s

    @property
    def factor(self) -> float:
        """Return the real-time factor: seconds of waiting for a second of sound."""
        return self.whole_s / self.player.seconds


@dataclass(frozen=True, slots=True)
class Load:
    """The answers of one kind under one load, against ``alone``, the sound of each wording without any."""

    kind: Kind
    """The kind, with the wordings that were answered."""
    name: str
    replicas: int
    answers: tuple[Answer, ...]
    alone: tuple[Wave, ...]

    @property
    def complete(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.complete]

    @property
    def seconds(self) -> float:
        """Return how long it took, from the first question to the end of the last answer."""
        return max(one.ended_s for one in self.answers) - min(one.begun_s for one in self.answers)

    @property
    def rate(self) -> float:
        """Return complete answers a second."""
        return len(self.complete) / self.seconds

    @property
    def sound_s(self) -> float:
        """Return seconds of sound a second."""
        return sum(answer.player.seconds for answer in self.complete) / self.seconds

    @property
    def different(self) -> list[Answer]:
        """Return the complete answers that do not sound as they do alone."""
        return [one for one in self.complete if not alike(one.player.wave, self.alone[one.question])]

    @property
    def leaked(self) -> list[Answer]:
        """Return those of them that sound as the answer to another question."""
        return [one for one in self.different if any(alike(one.player.wave, other) for other in self.alone)]

    @property
    def partings(self) -> list[str]:
        """Return which answer is none that it has alone, and from which second on."""
        return [
            f"{self.kind.name}, question {one.question + 1} from "
            f"{parting_s(one.player.wave, self.alone[one.question]):.2f} s"
            for one in self.different
        ]


def alike(one: Wave, other: Wave) -> bool:
    """Whether two sounds, float32 [samples], are as long as each other, and the same but for rounding."""
    return len(one) == len(other) and float(np.sqrt(np.mean((one - other) ** 2, dtype=np.float64))) <= ALIKE_RMS


def parting_s(one: Wave, other: Wave) -> float:
    """Return the second from which two sounds, float32 [samples], differ; where none does, that at which one ends."""
    length = min(len(one), len(other))
    apart = np.flatnonzero(np.abs(one[:length] - other[:length]) > ALIKE_RMS)
    return float(apart[0] if len(apart) else length) / SPEAKER_RATE_HZ


async def ask(server: RemoteServer, kind: Kind, question: int) -> Answer:
    """One answer to its end. What goes wrong is its outcome."""
    answer = Answer(time.monotonic(), question)
    try:
        async with asyncio.timeout(PATIENCE_S), server.open(kind.requests[question]) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Audio):
                    answer.late += chunks.ended
                    answer.player.receive(time.monotonic(), chunk.wave)
    except TimeoutError:
        answer.failure = f"no complete answer within {PATIENCE_S:g} s"
    except EngineError as error:
        answer.failure = str(error)
    answer.ended_s = time.monotonic()
    return answer


async def loads(server: RemoteServer, plan: Plan, kind: Kind, replicas: int = 1) -> list[Load]:
    """Ask alone, then under every load of the plan. Raises EngineError where the server does not answer such questions.

    An answer of no sound, as random weights give them, is no question for a load: it is left out.
    """
    first = [await ask(server, kind, question) for question in range(len(kind.requests))]
    if not any(answer.complete for answer in first):
        raise EngineError(f"{kind.name}: {first[0].outcome}")
    spoken = [answer for answer in first if answer.complete]
    kind = replace(kind, requests=tuple(kind.requests[answer.question] for answer in spoken))
    alone = tuple(answer.player.wave for answer in spoken)
    found: list[Load] = []
    for users in plan.at_once:
        answers = await _at_once(server, kind, users, plan.answers(users))
        found.append(Load(kind, f"{users} at once", replicas, tuple(answers), alone))
    rate = plan.rate or SHARE * max(load.rate for load in found)
    answers = await _at_rate(server, kind, rate, plan.answers(LEAST))
    return [*found, Load(kind, f"{rate:.3g} a second", replicas, tuple(answers), alone)]


async def _at_once(server: RemoteServer, kind: Kind, users: int, count: int) -> list[Answer]:
    """Let so many users ask, each one question at a time, until ``count`` were asked."""
    answers: list[Answer] = []
    left = iter(range(count))

    async def user() -> None:
        answers.extend([await ask(server, kind, number % len(kind.requests)) for number in left])

    async with asyncio.TaskGroup() as group:
        for number in range(users):
            group.create_task(user(), name=f"user {number}")
    return answers


async def _at_rate(server: RemoteServer, kind: Kind, rate: float, count: int) -> list[Answer]:
    left = iter(range(count))
    return await poisson(lambda: ask(server, kind, next(left) % len(kind.requests)), rate, count)


async def transcribed(server: RemoteServer, sound: Wave) -> str | None:
    """Return the words that the server hears in a sound, float32 [samples]; None if it writes down nothing."""
    pcm = resample((sound * 32767).astype("<i2"), SPEAKER_RATE_HZ, MIC_RATE_HZ)
    request = Request(id="", session="", messages=(Message("user", (AudioPart(pcm),)),))
    try:
        async with server.open(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Transcript):
                    return chunk.text
    except EngineError:
        pass
    return None


def same_words(one: str, other: str) -> bool:
    """Whether two texts are the same but for their marks and capitals."""
    return _letters(one) == _letters(other)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
