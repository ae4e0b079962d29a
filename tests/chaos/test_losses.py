"""Workers are killed and stopped at random moments under load: others notice nothing, the affected hear no break.

Everything random follows from a seed, which a failure names. The default suite has a short version without the bars of
time, which a busy machine could not keep.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from engine import Chunk, Engine, EngineSpec, Message, Request, TextPart, WorkerSpec
from tests.chaos.player import Player
from tests.engine.fakes import until

SESSIONS = 8
KILLS = 100
WORDS = 12  # of 240 ms each: an answer lasts 2.9 s
LEAD_S = 0.5  # how far ahead of its listener an answer is made: less than the client's buffer, so that losses hit
NOTICED_S = 0.1
GAP_S = 0.5
STAGES = ("thinker", "talker", "code2wav")


def spec() -> EngineSpec:
    workers = [WorkerSpec(stages=("ears",), max_batch=16)]
    workers += [WorkerSpec(stages=(stage,), replicas=2, max_batch=16) for stage in STAGES]
    return EngineSpec(model="script", workers=tuple(workers), balance="round_robin", empty_s=10.0)


def asked(i: int, seed: int) -> Request:
    text = "say: " + " ".join(f"{seed}x{i}x{n}" for n in range(WORDS))
    return Request(id=f"{seed}/{i}", session=f"{i}", messages=(Message("user", (TextPart(text),)),), lead_s=LEAD_S)


@dataclass(slots=True)
class Heard:
    """What one listener got, when it came too late, and whether a lost worker had served him."""

    player: Player = field(default_factory=Player)
    text: str = ""
    sounds: list[Any] = field(default_factory=list[Any])
    hit: bool = False

    def take(self, chunk: Chunk) -> None:
        if chunk.kind == "text":
            self.text += chunk.data
        elif chunk.kind == "audio":
            self.sounds.append(chunk.data)
            self.player.hear(len(chunk.data), time.monotonic())

    @property
    def sound(self) -> Any:
        return np.concatenate(self.sounds)


@dataclass(slots=True)
class Loss:
    """A worker that was sent a signal, the runs that were on it, and how long it took until the engine knew."""

    stage: str
    hit: set[str]
    noticed_s: float


async def listen(engine: Engine, request: Request, heard: Heard) -> None:
    async with engine.open(request) as chunks:
        async for chunk in chunks:
            heard.take(chunk)


async def lose(engine: Engine, draw: random.Random, sign: int) -> Loss:
    """Send a signal to the worker of a replica drawn at random, and wait until it is known to be lost."""
    stage = draw.choice(STAGES)
    host = draw.choice(engine._fleet.pools[stage].members()).replica.host
    hit = set(host._runs)
    began_s = time.monotonic()
    os.kill(host.hello.result().pid, sign)
    async with asyncio.timeout(30):
        await host.gone.wait()
    return Loss(stage, hit, time.monotonic() - began_s)


async def whole_again(engine: Engine) -> None:
    """Wait until the lost are back and nothing of any request is left."""
    expected = {"ears": 1} | dict.fromkeys(STAGES, 2)
    await until(lambda: {name: s["replicas"] for name, s in engine.stats().items()} == expected, 30_000)
    await until(lambda: not any(s["leased"] or s["waiting"] for s in engine.stats().values()))


async def round_(engine: Engine, seed: int, sign: int | None) -> tuple[list[Heard], Loss | None]:
    """All sessions at once, and one loss among them."""
    draw = random.Random(seed)
    heard = [Heard() for _ in range(SESSIONS)]
    loss: Loss | None = None
    async with asyncio.TaskGroup() as tasks:
        for i in range(SESSIONS):
            tasks.create_task(listen(engine, asked(i, seed), heard[i]), name=f"listen{i}")
        if sign is not None:
            await asyncio.sleep(draw.uniform(0.05, 0.24 * WORDS - LEAD_S))
            loss = await lose(engine, draw, sign)
    for i, one in enumerate(heard):
        one.hit = loss is not None and any(run.startswith(f"{seed}/{i}/") for run in loss.hit)
    return heard, loss


def check_words(heard: list[Heard], seed: int, reference: list[Heard]) -> None:
    """No word, and no frame of any, is repeated or lost: tones depend on a word's letters alone."""
    for i, (one, other) in enumerate(zip(heard, reference, strict=True)):
        words = one.text.split()
        assert words == [f"{seed}x{i}x{n}" for n in range(WORDS)], f"seed {seed}, session {i}"
        assert one.sound.shape == other.sound.shape, f"seed {seed}, session {i}"
        assert np.abs(one.sound - expected_sound(words)).max() < 1e-4, f"seed {seed}, session {i}"


def expected_sound(words: list[str]) -> Any:
    """The script family's tones of these words, in one go: its definition, written down a second time."""
    spoken = [word + " " for word in words[:-1]] + words[-1:]
    tones = np.repeat([sum(word.encode()) % 16 for word in spoken], 6 * 960)
    return 0.2 * np.sin(np.cumsum(2 * np.pi * 220 * 2 ** (tones / 12) / 24000))


async def test_lost_workers_cost_nobody_a_word() -> None:
    """The short version: a kill and a stop."""
    async with Engine(spec()) as engine:
        reference, _ = await round_(engine, 0, None)
        check_words(reference, 0, reference)
        for seed, sign in enumerate((signal.SIGKILL, signal.SIGSTOP), 1):
            heard, loss = await round_(engine, seed, sign)
            assert loss is not None
            check_words(heard, seed, reference)
            await whole_again(engine)


def test_the_check_of_words_sees_a_lost_and_a_repeated_frame() -> None:
    words = [f"7x0x{n}" for n in range(WORDS)]
    good = expected_sound(words).astype(np.float32)
    for bad in (np.delete(good, range(9600, 10560)), np.insert(good, 9600, good[8640:9600])):
        heard = Heard(text=" ".join(words), sounds=[bad])
        with pytest.raises(AssertionError):
            check_words([heard], 7, [Heard(sounds=[good])])
    check_words([Heard(text=" ".join(words), sounds=[good])], 7, [Heard(sounds=[good])])


@pytest.mark.chaos
async def test_a_hundred_kills_at_random_moments() -> None:
    """Noticed in 100 ms; no underrun of those who were elsewhere; at most half a second of a break for the others."""
    late, broken, disturbed, gaps = list[str](), list[str](), list[str](), list[float]()
    noticed = list[float]()
    async with Engine(spec()) as engine:
        reference, _ = await round_(engine, 0, None)
        for seed in range(1, KILLS + 1):
            heard, loss = await round_(engine, seed, signal.SIGKILL)
            assert loss is not None
            check_words(heard, seed, reference)
            noticed.append(loss.noticed_s)
            late += [f"seed {seed}: {loss.noticed_s:.3f} s"] * (loss.noticed_s > NOTICED_S)
            gaps += [one.player.longest_s for one in heard if one.hit]
            broken += [
                f"seed {seed}: {one.player.longest_s:.3f} s"
                for one in heard
                if one.hit and one.player.longest_s > GAP_S
            ]
            disturbed += [
                f"seed {seed}: {one.player.longest_s:.3f} s" for one in heard if not one.hit and one.player.gaps
            ]
            await whole_again(engine)
    print(
        f"\n{len(noticed)} kills, {len(gaps)} answers hit: noticed after {max(noticed) * 1000:.0f} ms at most, "
        f"longest gap {max(gaps) * 1000:.0f} ms; others disturbed: {len(disturbed)}"
    )
    assert (late, broken, disturbed) == ([], [], [])
    assert gaps


@pytest.mark.chaos
async def test_stopped_workers_are_fenced_within_two_seconds() -> None:
    """A worker that is stopped says nothing: 1 s of silence, and the time until somebody looks."""
    async with Engine(spec()) as engine:
        reference, _ = await round_(engine, 0, None)
        for seed in range(1000, 1015):
            heard, loss = await round_(engine, seed, signal.SIGSTOP)
            assert loss is not None
            assert loss.noticed_s < 2, f"seed {seed}"
            check_words(heard, seed, reference)
            await whole_again(engine)
