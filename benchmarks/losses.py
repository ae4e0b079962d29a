"""Measure what listeners notice of lost workers: replicas are killed and stopped under load.

    python -m benchmarks.losses [--quick] [NAME ...]

kills   kill -9 of one of two replicas of a stage, 100 times at random moments, while eight sessions receive answers:
        the time until it is noticed, the longest gap of the affected listeners, the gaps of the others, and every word
        and frame of all; then a control: with replay disabled, the check must fail
stops   SIGSTOP instead, 15 times: the time until the silent worker is replaced, and the same check
crowd   nano with two busy loops per core: no replica may be declared lost for lack of CPU time
late    the gap depending on the position of the loss in an answer, for the scripted family (8 ms per frame) and nano;
        as a control, at 30 s without the stages' checkpoints

All randomness follows from seeds. The listener plays from the first sample on; answers are generated 0.5 s ahead.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.client.player import Player
from benchmarks import program
from engine import Engine, EngineError, EngineSpec, Message, Request, TextPart, WorkerSpec
from engine.chunk import Audio, Text
from engine.control.membership import MOST_PATIENCE_S
from engine.control.recovery import LIVES
from engine.delivered import RecoveryLog
from engine.deployment.config import ChunkSpec
from engine.stream import ReplayBuffer

SESSIONS = 8
WORDS = 12  # words of 240 ms each: an answer lasts 2.9 s
LEAD_S = 0.5  # less than a client's buffer, so that losses are audible
NOTICED_S, FENCED_S, GAP_S = 0.1, 1.05, 0.5  # fenced: 1 s of silence, and one turn of a busy loop
STAGES = ("thinker", "talker", "code2wav")
A_FLEET = 20  # losses per fleet, because repeated losses delay the replacement more and more


def spec() -> EngineSpec:
    """Return a deployment with two replicas of each stage, each in its own worker."""
    workers = [WorkerSpec(stages=("ears",), max_batch=16)]
    workers += [WorkerSpec(stages=(stage,), replicas=2, max_batch=16) for stage in STAGES]
    return EngineSpec(model="script", workers=tuple(workers), balance="round_robin", empty_s=10.0, stall_s=10.0)


@dataclass(slots=True)
class Heard:
    """One answer as its listener received it, and the number of lost workers that served it."""

    id: str
    words: list[str]
    player: Player = field(default_factory=Player)
    text: str = ""
    error: str = ""
    hits: int = 0

    @property
    def ended(self) -> bool:
        """Whether it ended with the documented error: a request that has lost two replicas does not get a third."""
        return self.hits >= LIVES and "the second one during this request" in self.error

    @property
    def right(self) -> bool:
        """Whether no word and no frame is repeated or lost; the tones depend only on a word's letters."""
        wave, expected = self.player.wave, expected_sound(self.words)
        same = wave.shape == expected.shape and float(np.abs(wave - expected).max()) < 1e-4
        return not self.error and self.text.split() == self.words and same


def expected_sound(words: list[str]) -> Any:
    """Return the script family's tones of these words, from an independent implementation."""
    spoken = [word + " " for word in words[:-1]] + words[-1:]
    tones = np.repeat([sum(word.encode()) % 16 for word in spoken], 6 * 960)
    wave = 0.2 * np.sin(np.cumsum(2 * np.pi * 220 * 2 ** (tones / 12) / 24000))
    wave.reshape(len(words), -1)[:, -480:] = 0  # half a frame of silence ends each word
    return wave


@dataclass(slots=True)
class Loss:
    """A worker that received a signal, its requests, and the time until the engine noticed."""

    stage: str
    hit: set[str]
    noticed_s: float


async def listen(engine: Engine, heard: Heard) -> None:
    """Receive one answer until its end or error."""
    message = Message("user", (TextPart(f"say: {' '.join(heard.words)}"),))
    request = Request(id=heard.id, session=heard.id.partition("-")[0], messages=(message,), lead_s=LEAD_S)
    try:
        async with engine.open(request) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Text):
                    heard.text += chunk.text
                elif isinstance(chunk, Audio):
                    heard.player.receive(time.monotonic(), chunk.wave)
    except EngineError as error:
        heard.error = str(error)


async def lose(engine: Engine, draw: random.Random, sign: int) -> Loss:
    """Send a signal to the worker of a random replica, and wait until the engine knows that it is lost."""
    stage = draw.choice(STAGES)
    host = draw.choice(engine._fleet.pools[stage].members()).replica.host  # pyright: ignore[reportPrivateUsage]
    hit = {run.rpartition("/")[0] for run in host._runs}  # pyright: ignore[reportPrivateUsage]
    began_s = time.monotonic()
    os.kill(host.hello.result().pid, sign)
    async with asyncio.timeout(30):
        await host.gone.wait()
    return Loss(stage, hit, time.monotonic() - began_s)


async def whole_again(engine: Engine) -> None:
    """Wait until all replicas are available again."""
    expected = {"ears": 1} | dict.fromkeys(STAGES, 2)
    while {name: one["replicas"] for name, one in engine.stats().items()} != expected:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def storm(seed: int, count: int, sign: int) -> tuple[list[Heard], list[Loss]]:
    """Run one fleet with its listeners and ``count`` losses."""
    draw, answers, losses = random.Random(seed), list[Heard](), list[Loss]()

    async def session(i: int) -> None:
        for n in range(10**6):
            heard = Heard(f"{seed}x{i}-{n}", [f"{seed}x{i}x{n}x{word}" for word in range(WORDS)])
            answers.append(heard)
            await listen(engine, heard)
            if over:
                return

    over = False
    async with Engine(spec()) as engine, asyncio.TaskGroup() as tasks:
        for i in range(SESSIONS):
            tasks.create_task(session(i), name=f"session{i}")
        for _ in range(count):
            await asyncio.sleep(draw.uniform(0.3, 2.0))
            losses.append(await lose(engine, draw, sign))
            await whole_again(engine)
        over = True
    for heard in answers:
        heard.hits = sum(heard.id in loss.hit for loss in losses)
    return answers, losses


async def storms(seed: int, count: int, sign: int) -> tuple[list[Heard], list[Loss]]:
    """Run as many fleets as needed for ``count`` losses."""
    answers, losses = list[Heard](), list[Loss]()
    for first in range(0, count, A_FLEET):
        more = await storm(seed + first, min(A_FLEET, count - first), sign)
        answers += more[0]
        losses += more[1]
    return answers, losses


async def kills(quick: bool) -> bool:
    answers, losses = await storms(1, 10 if quick else 100, signal.SIGKILL)
    hit, others = [one for one in answers if one.hits], [one for one in answers if not one.hits]
    noticed_ms = [1000 * loss.noticed_s for loss in losses]
    gaps_ms = [1000 * one.player.longest_dry_s for one in hit]
    print(f"{len(losses)} kills, {len(answers)} answers, {len(hit)} of them hit; with a gap {sum(map(bool, gaps_ms))}")
    print(f"noticed after {statistics.median(noticed_ms):.1f} ms in the median; gap {statistics.median(gaps_ms):.0f}")
    print(f"others ran dry for {max((1000 * one.player.longest_dry_s for one in others), default=0):.0f} ms at most")
    good = [
        program.check_bar("the latest notice", max(noticed_ms), "<=", 1000 * NOTICED_S, "ms"),
        program.check_bar("the longest gap of who was hit", max(gaps_ms), "<=", 1000 * GAP_S, "ms"),
        program.check_bar("underruns of the others", sum(one.player.underruns for one in others), "<=", 0, ""),
        program.check_bar("answers with a word or a frame lost or repeated", wrong(answers), "<=", 0, ""),
    ]
    with switched_off(ReplayBuffer, "rewind", lambda self: None):
        control, _ = await storms(1000, 6, signal.SIGKILL)
    return program.check_bar("control, replay switched off: wrong answers", wrong(control), ">=", 1, "") and all(good)


def wrong(answers: list[Heard]) -> int:
    ended, bad = sum(one.ended for one in answers), [one for one in answers if not (one.right or one.ended)]
    if ended:
        print(f"     {ended} answers lost two replicas, and ended with an error that says so")
    for one in bad[:5]:
        sound = f"{len(one.player.wave)} samples of {len(expected_sound(one.words))}"
        print(f"     wrong: {one.id}: {one.error or one.text!r}, {sound}")
    return len(bad)


@contextmanager
def switched_off(kind: type[Any], name: str, instead: Callable[..., Any]) -> Generator[None]:
    """Replace an attribute of a class for the duration of the block."""
    before = getattr(kind, name)
    setattr(kind, name, instead)
    try:
        yield
    finally:
        setattr(kind, name, before)


async def stops(quick: bool) -> bool:
    answers, losses = await storms(2000, 3 if quick else 15, signal.SIGSTOP)
    fenced_s = [loss.noticed_s for loss in losses]
    print(f"{len(losses)} stops")
    good = [
        program.check_bar("a fence, in the median", statistics.median(fenced_s), "<=", FENCED_S, "s"),
        # A worker that was lost before may be silent for longer.
        program.check_bar("the latest fence", max(fenced_s), "<=", FENCED_S + MOST_PATIENCE_S, "s"),
        program.check_bar("answers with a word or a frame lost or repeated", wrong(answers), "<=", 0, ""),
    ]
    return all(good)


async def crowd(quick: bool) -> bool:
    burn = (sys.executable, "-c", "while True: pass")
    busy = [await asyncio.create_subprocess_exec(*burn) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        async with talking("nano") as engine:
            end_s = asyncio.get_running_loop().time() + (5 if quick else 40)
            async with asyncio.TaskGroup() as tasks:
                for i in range(6):
                    tasks.create_task(hear_until(engine, i, end_s), name=f"hear{i}")
            lost = sum(replica.incarnation - 1 for replica in engine.replicas())
    finally:
        for process in busy:
            process.kill()
            await process.wait()
    return program.check_bar(f"nano beside {len(busy)} busy loops: replicas given up", lost, "<=", 0, "")


async def hear_until(engine: Engine, i: int, end_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout_at(end_s):
            while True:
                await hear(engine, i, Player())


SENTENCES = " ".join(f"This is sentence number {n}, and there are more of them to come." for n in range(1, 20))
VOICES = {
    "script": (("ears", "thinker"), ("talker", "code2wav")),
    "nano": (("ears",), ("thinker", "talker", "code2wav")),
}
"""Workers of the deployment; the last one has two replicas, one of which is lost."""


async def late(quick: bool) -> bool:
    good, times_s = True, (2, 10) if quick else (2, 15, 30)
    for model in VOICES:
        for at_s in times_s:
            first_ms, gap_ms = await lost_at(model, at_s)
            print(f"{model}, lost after {at_s} s: the next sound {first_ms:.0f} ms later")
            good = program.check_bar(f"{model}, {at_s} s: gap", gap_ms, "<=", 1000 * GAP_S, "ms") and good
        with switched_off(RecoveryLog, "chunks", lambda self: ()):
            first_ms, gap_ms = await lost_at(model, times_s[-1])
        print(f"     control, with nothing left: the next sound {first_ms:.0f} ms later, gap {gap_ms:.0f} ms")
    return good


async def lost_at(model: str, at_s: float) -> tuple[float, float]:
    """Kill a replica that serves two of four listeners after ``at_s``. Returns the next audio and the gap in ms."""
    async with talking(model) as engine:
        players = [Player() for _ in range(4)]
        heard = [asyncio.create_task(hear(engine, i, one), name=f"hear{i}") for i, one in enumerate(players)]
        await asyncio.sleep(at_s)
        pool = engine._fleet.pools["code2wav"]  # pyright: ignore[reportPrivateUsage]
        host = next(member for member in pool.members() if member.leases).replica.host
        hit = [players[int(run.partition("/")[0])] for run in host._runs]  # pyright: ignore[reportPrivateUsage]
        had, began_s = [one.samples for one in hit], time.monotonic()
        os.kill(host.hello.result().pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            while any(one.samples == before for one, before in zip(hit, had, strict=True)):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        first_ms = 1000 * (time.monotonic() - began_s)
        for task in heard:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    return first_ms, 1000 * max(one.longest_dry_s for one in hit)


@asynccontextmanager
async def talking(model: str) -> AsyncGenerator[Engine]:
    *front, voice = (WorkerSpec(stages=stages) for stages in VOICES[model])
    workers = (*front, WorkerSpec(stages=voice.stages, replicas=2))
    options = {"request_s": 0.008} if model == "script" else {}
    chunks = ChunkSpec(first=1, growth=1.5, steady=12)
    async with Engine(EngineSpec(model=model, workers=workers, chunks=chunks, options=options)) as engine:
        yield engine


async def hear(engine: Engine, i: int, player: Player) -> None:
    async with engine.open(Request(id=str(i), session=str(i), messages=(), say=SENTENCES, lead_s=LEAD_S)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Audio):
                player.receive(time.monotonic(), chunk.wave)


BENCHES: dict[str, Callable[[bool], Awaitable[bool]]] = {"kills": kills, "stops": stops, "crowd": crowd, "late": late}


if __name__ == "__main__":
    sys.exit(asyncio.run(program.run_named(__doc__, BENCHES)))
