"""Put a server under load over HTTP, and check whether each answer is correct (for `benchmarks.serve`).

Users ask simultaneously, each again after its answer; or they arrive at random at a fixed rate (Poisson). Every
question is first asked alone. Under load, an answer must have the same audio as alone, with no audio of another answer,
and none after its end. Spoken texts are played back to the server's speech recognition, if it has any.
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
"""Texts that nano's recognizer knows, so that an unrecognized text was not spoken correctly."""

ASKED = PROMPTS[:-1]
"""Questions with constant answers; the last prompt, which asks for the time, is left out."""

AT_ONCE = (1, 8, 16, 64)
ROUNDS, LEAST = 2, 16
"""Answers per user and load, and the minimum per load."""
SHARE = 0.7
"""Arrival rate relative to the maximum number of answers per second, if no rate is given."""
ALIKE_RMS = 1e-3
"""Maximum difference (root mean square, full scale is 1) of equal audio; batches change rounding."""
PATIENCE_S = 300.0
"""Seconds after which an answer counts as failed; under load, most requests wait in the queue."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question, with its different wordings as requests."""

    name: str
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The questions, and the number of users. If ``rate`` is None, it follows from the server's maximum."""

    voices: tuple[str, ...] = ()
    at_once: tuple[int, ...] = AT_ONCE
    rate: float | None = None
    count: int | None = None

    def kinds(self) -> list[Kind]:
        """Return the questions: texts to speak with the default and the named voices, and questions of a
        conversation.
        """
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
        """Return the number of answers for a load of ``users`` users."""
        return self.count or max(ROUNDS * users, LEAST)


@dataclass(slots=True)
class Answer:
    """One answer with its listener's times."""

    begun_s: float
    question: int
    """Index of the question's wording."""
    ended_s: float = 0.0
    player: Player = field(default_factory=Player)
    late: int = 0
    """Pieces of audio that arrived after the answer's end."""
    failure: str | None = None

    @property
    def complete(self) -> bool:
        return self.failure is None and self.player.audible_s is not None

    @property
    def outcome(self) -> str:
        return self.failure or ("completed" if self.complete else "completed without audio")

    @property
    def first_s(self) -> float:
        """Seconds to the first audible sound of a complete answer."""
        assert self.player.audible_s is not None
        return self.player.audible_s - self.begun_s

    @property
    def whole_s(self) -> float:
        return self.ended_s - self.begun_s

    @property
    def factor(self) -> float:
        """Real-time factor: seconds of waiting per second of audio."""
        return self.whole_s / self.player.seconds


@dataclass(frozen=True, slots=True)
class Load:
    """Answers of one kind under one load; ``alone`` is the audio of each wording without load."""

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
        """Seconds from the first question to the end of the last answer."""
        return max(one.ended_s for one in self.answers) - min(one.begun_s for one in self.answers)

    @property
    def rate(self) -> float:
        """Complete answers per second."""
        return len(self.complete) / self.seconds

    @property
    def sound_s(self) -> float:
        """Seconds of audio per second."""
        return sum(answer.player.seconds for answer in self.complete) / self.seconds

    @property
    def different(self) -> list[Answer]:
        """Complete answers whose audio differs from the one alone."""
        return [one for one in self.complete if not alike(one.player.wave, self.alone[one.question])]

    @property
    def leaked(self) -> list[Answer]:
        """Those of ``different`` whose audio equals the answer to another question."""
        return [one for one in self.different if any(alike(one.player.wave, other) for other in self.alone)]

    @property
    def partings(self) -> list[str]:
        """For each different answer, its question and the second from which it differs."""
        return [
            f"{self.kind.name}, question {one.question + 1} from "
            f"{parting_s(one.player.wave, self.alone[one.question]):.2f} s"
            for one in self.different
        ]


def alike(one: Wave, other: Wave) -> bool:
    """Return whether two sounds, float32 [samples], are equal in length and, except for rounding, in content."""
    return len(one) == len(other) and float(np.sqrt(np.mean((one - other) ** 2, dtype=np.float64))) <= ALIKE_RMS


def parting_s(one: Wave, other: Wave) -> float:
    """Return the second from which two sounds, float32 [samples], differ, or at which the shorter one ends."""
    length = min(len(one), len(other))
    apart = np.flatnonzero(np.abs(one[:length] - other[:length]) > ALIKE_RMS)
    return float(apart[0] if len(apart) else length) / SPEAKER_RATE_HZ


async def ask(server: RemoteServer, kind: Kind, question: int) -> Answer:
    """Return one complete answer; errors are stored in its outcome."""
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
    """Ask alone, then under every load of the plan. Raises EngineError if the server cannot answer such questions.

    Questions with silent answers, as random weights may give, are left out.
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
    """Let ``users`` users ask one question at a time, until ``count`` were asked."""
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
    """Return the server's transcript of a sound, float32 [samples], or None if it has no recognizer."""
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
    """Return whether two texts are equal except for punctuation and case."""
    return _letters(one) == _letters(other)


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
