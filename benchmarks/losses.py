"""The cost of a lost worker for those who listen: replicas are killed and stopped under load, and each bar is printed.

    python -m benchmarks.losses [--quick] [NAME ...]

kills   kill -9 of one of two replicas of a stage, 100 times at random moments, while eight sessions are spoken to
        one answer after the other: how soon it is noticed, the longest gap of those that were served there, the gaps of
        the others, and every word and frame of all; then the control: the same with replay switched off must fail
stops   SIGSTOP instead, 15 times: how soon the silent one is fenced off; the same words
crowd   nano beside two busy loops for each core: nobody is given up for getting no processor
late    the gap against how far into an answer the loss comes, for the scripted family (a frame takes its talker 8 ms)
        and for nano; and at 30 s without what the stages had left, as control

Everything random follows from seeds. The listener plays from the first sample on; answers are made 0.5 s ahead of them.
"""

from __future__ import annotations

import argparse
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
from benchmarks.fleet import said
from engine import Engine, EngineError, EngineSpec, Message, Request, TextPart, WorkerSpec
from engine.chunk import Audio, Text
from engine.control.recovery import LIVES
from engine.delivered import RecoveryLog
from engine.deployment.config import ChunkSpec
from engine.stream import ReplayBuffer

SESSIONS = 8
WORDS = 12  # words of 240 ms each: an answer lasts 2.9 s
LEAD_S = 0.5  # less than a client's buffer, so that losses hit
NOTICED_S, FENCED_S, GAP_S = 0.1, 1.05, 0.5  # fenced: 1 s of silence, and a turn of a busy loop
STAGES = ("thinker", "talker", "code2wav")
A_FLEET = 20  # losses of one fleet: a place that is lost again and again is filled later and later


def spec() -> EngineSpec:
    """Two replicas of each stage, each alone."""
    workers = [WorkerSpec(stages=("ears",), max_batch=16)]
    workers += [WorkerSpec(stages=(stage,), replicas=2, max_batch=16) for stage in STAGES]
    return EngineSpec(model="script", workers=tuple(workers), balance="round_robin", empty_s=10.0, stall_s=10.0)


@dataclass(slots=True)
class Heard:
    """The part of one answer that its listener got, and how many lost workers had served them."""

    id: str
    words: list[str]
    player: Player = field(default_factory=Player)
    text: str = ""
    error: str = ""
    hits: int = 0

    @property
    def ended(self) -> bool:
        """Whether it was given up as the rule has it: what has lost two replicas does not get a third."""
        return self.hits >= LIVES and "the second one during this request" in self.error

    @property
    def right(self) -> bool:
        """No word, and no frame of any, is repeated or lost: tones depend on a word's letters alone."""
        wave, expected = self.player.wave, expected_sound(self.words)
        same = wave.shape == expected.shape and float(np.abs(wave - expected).max()) < 1e-4
        return not self.error and self.text.split() == self.words and same


def expected_sound(words: list[str]) -> Any:
    """The script family's tones of these words, in one go: its definition, written down a second time."""
    spoken = [word + " " for word in words[:-1]] + words[-1:]
    tones = np.repeat([sum(word.encode()) % 16 for word in spoken], 6 * 960)
    wave = 0.2 * np.sin(np.cumsum(2 * np.pi * 220 * 2 ** (tones / 12) / 24000))
    wave.reshape(len(words), -1)[:, -480:] = 0  # half a frame of silence ends each word
    return wave


@dataclass(slots=True)
class Loss:
    """A worker that was sent a signal, the requests that were on it, and how long it took until the engine knew."""

    stage: str
    hit: set[str]
    noticed_s: float


async def listen(engine: Engine, heard: Heard) -> None:
    """One answer to its end, or to its error."""
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
    """Send a signal to the worker of a replica drawn at random, and wait until it is known to be lost."""
    stage = draw.choice(STAGES)
    host = draw.choice(engine._fleet.pools[stage].members()).replica.host  # pyright: ignore[reportPrivateUsage]
    hit = {run.rpartition("/")[0] for run in host._runs}  # pyright: ignore[reportPrivateUsage]
    began_s = time.monotonic()
    os.kill(host.hello.result().pid, sign)
    async with asyncio.timeout(30):
        await host.gone.wait()
    return Loss(stage, hit, time.monotonic() - began_s)


async def whole_again(engine: Engine) -> None:
    """Wait until the lost are back."""
    expected = {"ears": 1} | dict.fromkeys(STAGES, 2)
    while {name: one["replicas"] for name, one in engine.stats().items()} != expected:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def storm(seed: int, count: int, sign: int) -> tuple[list[Heard], list[Loss]]:
    """One fleet, its listeners, and so many losses among them."""
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
    """Run as many fleets as so many losses take."""
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
        said("the latest notice", max(noticed_ms), "<=", 1000 * NOTICED_S, "ms"),
        said("the longest gap of who was hit", max(gaps_ms), "<=", 1000 * GAP_S, "ms"),
        said("underruns of the others", sum(one.player.underruns for one in others), "<=", 0, ""),
        said("answers with a word or a frame lost or repeated", wrong(answers), "<=", 0, ""),
    ]
    with switched_off(ReplayBuffer, "rewind", lambda self: None):
        control, _ = await storms(1000, 6, signal.SIGKILL)
    return said("control, replay switched off: wrong answers", wrong(control), ">=", 1, "") and all(good)


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
    """Break something of this process for a while."""
    before = getattr(kind, name)
    setattr(kind, name, instead)
    try:
        yield
    finally:
        setattr(kind, name, before)


async def stops(quick: bool) -> bool:
    answers, losses = await storms(2000, 3 if quick else 15, signal.SIGSTOP)
    fenced_s = [loss.noticed_s for loss in losses]
    print(f"{len(losses)} stops: fenced after {statistics.median(fenced_s):.2f} s in the median")
    good = said("the latest fence", max(fenced_s), "<=", FENCED_S, "s")
    return said("answers with a word or a frame lost or repeated", wrong(answers), "<=", 0, "") and good


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
    return said(f"nano beside {len(busy)} busy loops: replicas given up", lost, "<=", 0, "")


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
"""The workers of the deployment; the last has two replicas, one of which is lost."""


async def late(quick: bool) -> bool:
    good, times_s = True, (2, 10) if quick else (2, 15, 30)
    for model in VOICES:
        for at_s in times_s:
            first_ms, gap_ms = await lost_at(model, at_s)
            print(f"{model}, lost after {at_s} s: the next sound {first_ms:.0f} ms later")
            good = said(f"{model}, {at_s} s: gap", gap_ms, "<=", 1000 * GAP_S, "ms") and good
        with switched_off(RecoveryLog, "chunks", lambda self: ()):
            first_ms, gap_ms = await lost_at(model, times_s[-1])
        print(f"     control, with nothing left: the next sound {first_ms:.0f} ms later, gap {gap_ms:.0f} ms")
    return good


async def lost_at(model: str, at_s: float) -> tuple[float, float]:
    """Four listeners, of whom two are hit when they have been hearing for so long: the next sound, and the gap [ms]."""
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


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    results = [await BENCHES[name](arguments.quick) for name in arguments.names or BENCHES]
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
