"""Hours of users in minutes: sessions opened, spoken to, interrupted and dropped at random, and nothing left of them.

``PARLEY_SOAK_MINUTES=60 make soak`` takes an hour; two minutes are the default, half of them for each model.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from app.bench import subject
from app.bench.subject import Subject
from app.client import connect
from app.media import decode_audio
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.core import Pcm
from engine.resampler import resample
from tests.soak.flat import Sample, sample, swollen
from tests.soak.lives import LIVES, User

MINUTES = float(os.environ.get("PARLEY_SOAK_MINUTES", "2"))
USERS = 4
ROUNDS = 4
"""After each, everyone is gone and the server is looked at; the first two are what it takes to warm up."""

SPOKEN = Path(__file__).parents[1] / "data" / "spoken"
REST = Sample(memory_mb=300.0, files=40, threads=12, tasks=9, sessions=0, leased=0)


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 * 3 + 600)
@pytest.mark.parametrize("config", ["script", "nano"])
def test_nothing_grows(config: str) -> None:
    done: Counter[str] = Counter()
    with subject.running(config) as server:
        samples = [_round(server, number, done) for number in range(ROUNDS + 2)][1:]
    print(config, dict(done), *samples, sep="\n")
    assert done.keys() == {life.__name__ for life in LIVES}
    assert not swollen(samples)


def _round(server: Subject, number: int, done: Counter[str]) -> Sample:
    asyncio.run(_users(server, number, MINUTES * 60 / 2 / (ROUNDS + 2), done))
    return sample(server)


async def _users(server: Subject, number: int, seconds: float, done: Counter[str]) -> None:
    url = server.url.replace("ws", "http", 1)
    until_s = asyncio.get_running_loop().time() + seconds
    voices = [_voice(SPOKEN / name) for name in ("in_020.ogg", "in_023.ogg", "in_026.ogg")]
    async with asyncio.TaskGroup() as tasks:
        for user in range(USERS):
            tasks.create_task(User(url, number * USERS + user, voices, done).live(until_s), name=f"user:{user}")


def _voice(path: Path) -> Pcm:
    return resample(decode_audio(path.read_bytes(), 10.0), MIC_RATE_HZ, SPEAKER_RATE_HZ).astype(np.int16)


def test_sessions_that_stay_are_seen() -> None:
    """The gate goes red on a real server whose clients do not leave."""
    with subject.running("script") as server:
        before = sample(server)
        assert not swollen([before, sample(server)])
        assert swollen([before, asyncio.run(_with_guests(server, 5))]).keys() == {"files", "tasks", "sessions"}


async def _with_guests(server: Subject, count: int) -> Sample:
    if not count:
        return await asyncio.to_thread(sample, server, 0.2)
    async with connect(server.url, model="soak"):
        return await _with_guests(server, count - 1)


@pytest.mark.parametrize(
    ("name", "growth"), [("memory", {"memory_mb": 340.0}), ("threads", {"threads": 20}), ("leased", {"leased": 1})]
)
def test_what_grows_is_named(name: str, growth: dict[str, float]) -> None:
    assert not swollen([REST] * 4)
    grown = dataclasses.replace(REST, **growth)
    assert swollen([REST, REST, grown, grown]).keys() == {name}
