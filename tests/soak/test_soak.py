"""Hours of users in minutes: sessions opened, spoken to, interrupted and dropped at random, and nothing left of them.

``make soak`` takes two minutes, half of them for each model; ``PARLEY_SOAK_MINUTES`` says otherwise. The soak of an
hour, with faults, figures and a report, is ``python -m tests.soak``; its parts are tried here and in the files beside.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from app.bench import subject
from app.bench.subject import Subject
from app.client import Client, Response, connect, webrtc
from tests.app.transports.webrtc.relay import relaying
from tests.soak import keeper
from tests.soak.flat import Sample, sample, swollen
from tests.soak.journal import Answer
from tests.soak.lives import LIVES, User, calls, only
from tests.soak.users import SPOKEN, as_line, voice

MINUTES = float(os.environ.get("PARLEY_SOAK_MINUTES", "2"))
USERS = 4
ROUNDS = 4
"""After each, everyone is gone and the server is looked at; the first two are what it takes to warm up."""

REST = Sample(memory_mb=300.0, files=40, threads=12, tasks=9, sessions=0, leased=0)


class Strict:
    """A diary that counts what was done, and takes no answer that is not whole."""

    def __init__(self) -> None:
        self.ways: Counter[str] = Counter()

    def did(self, user: str, way: str) -> None:
        self.ways[way] += 1

    def heard(self, user: str, way: str, answer: Response) -> None:
        assert answer.complete, answer.response

    def lost(self, user: str, until_s: float, note: str) -> None:
        pass


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 * 3 + 600)
@pytest.mark.parametrize("config", ["script", "nano"])
def test_nothing_grows(config: str) -> None:
    done = Strict()
    with subject.running(config) as server:
        samples = [_round(server, number, done) for number in range(ROUNDS + 2)][1:]
    print(config, dict(done.ways), *samples, sep="\n")
    assert done.ways.keys() == {life.__name__ for life in (*LIVES, calls)}
    assert not swollen(samples)


def _round(server: Subject, number: int, done: Strict) -> Sample:
    asyncio.run(_users(server, number, MINUTES * 60 / 2 / (ROUNDS + 2), done))
    return sample(server)


async def _users(server: Subject, number: int, seconds: float, done: Strict) -> None:
    url = server.url.replace("ws", "http", 1)
    until_s = asyncio.get_running_loop().time() + seconds
    voices = [voice(SPOKEN / name) for name in ("in_020.ogg", "in_023.ogg", "in_026.ogg")]
    async with asyncio.TaskGroup() as tasks:
        for user in range(USERS):
            tasks.create_task(User(url, number * USERS + user, voices, done).live(until_s), name=f"user:{user}")
        tasks.create_task(User(url, number, voices, done, "caller").once(calls), name="caller")


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


@pytest.fixture(scope="module")
def scripted() -> Generator[Subject]:
    with subject.running("script") as server:
        yield server


async def test_a_client_that_stalls_runs_dry(scripted: Subject) -> None:
    """The listener's own fault, or the server's: an underrun is what the listener hears. Beside it, one who reads."""
    found: dict[str, list[Answer]] = {"reads": [], "stalls": []}

    class Heard(Strict):
        def heard(self, user: str, way: str, answer: Response) -> None:
            found[user].append(as_line(0, user, way, answer))

    for name, answers in found.items():
        user = User(scripted.url, 0, [], Heard(), name)
        async with user.session() as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(user.hear("asks", client.ask("long 12")))
            async with asyncio.timeout(60):
                while not client.audible:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            if name == "stalls":
                time.sleep(2.5)  # noqa: ASYNC251 - that is what is tried
        assert [one.outcome for one in answers] == ["completed"]
    longest_s = {name: max((b - a for a, b in one[0].gaps), default=0.0) for name, one in found.items()}
    assert longest_s["stalls"] > 0.7, "the server is 1.5 s ahead of its listeners, and no more"
    assert longest_s["stalls"] > longest_s["reads"] + 0.5


async def test_a_call_goes_through_the_relay_and_no_other_way(scripted: Subject) -> None:
    async with (
        relaying() as relay,
        webrtc.opened(scripted.url, through=only(relay)) as channel,
        Client(channel) as client,
    ):
        before, answer = relay.passed, await client.ask("say: good morning")
        assert answer.complete
        packets = answer.player.seconds / 0.02
        assert relay.passed - before > 2 * packets - 4, "one of the answer and one of the microphone, each 20 ms"


def test_who_starts_a_soak_twice_is_told(tmp_path: Path) -> None:
    assert keeper.running_in(tmp_path) is None
    with keeper.alone(tmp_path):
        assert keeper.running_in(tmp_path) == os.getpid()
        with pytest.raises(keeper.Busy, match="a soak is running"):
            keeper.soak(keeper.Plan(tmp_path, 1.0))
    assert keeper.running_in(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "growth"), [("memory", {"memory_mb": 340.0}), ("threads", {"threads": 20}), ("leased", {"leased": 1})]
)
def test_what_grows_is_named(name: str, growth: dict[str, float]) -> None:
    assert not swollen([REST] * 4)
    grown = dataclasses.replace(REST, **growth)
    assert swollen([REST, REST, grown, grown]).keys() == {name}
