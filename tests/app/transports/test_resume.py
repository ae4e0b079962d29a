"""A client that comes back to its session over another connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.principal import Principal
from app.realtime.protocol.client_events import ClearAudio
from app.settings import Limits
from app.transports import resumable_session as resumable_module
from app.transports.channel import Channel
from app.transports.disconnect import Disconnect
from app.transports.resumable_session import EventLog, ResumableSession
from tests.app.realtime.test_session import check_order
from tests.app.rig import Client, Running, eventually, talking


@asynccontextmanager
async def back(server: Running, token: str, after: int) -> AsyncGenerator[Client]:
    async with connect(f"{server.ws}?resume={token}&after={after}", max_size=None, max_queue=None) as socket:
        yield Client(socket)


async def ticket(client: Client) -> str:
    return (await client.configure(parley={"resume": True}))["parley"]["resume_token"]


def numbers(events: list[Any]) -> list[int]:
    return [event["parley"]["seq"] for event in events if "parley" in event]


async def test_who_comes_back_is_told_what_he_missed_and_the_answer_goes_on(server: Running) -> None:
    async with talking(server) as client:
        token = await ticket(client)
        await (await client.say("long 200")).send("response.create")
        for _ in range(5):
            await client.until("response.output_audio.delta")
        client.socket.transport.abort()
    seen = numbers(client.events)
    assert seen == list(range(1, len(seen) + 1))
    async with back(server, token, seen[-1]) as again:
        updated = await again.until("session.updated")
        assert updated["session"]["id"] == client.of("session.updated")[0]["session"]["id"]
        assert updated["session"]["parley"]["resume_token"] != token
        await again.until("response.output_audio.delta")
        await again.send("response.cancel")
        assert (await again.until("response.done"))["response"]["status"] == "cancelled"
        await again.alive()
    assert numbers(again.events) == list(range(seen[-1] + 1, seen[-1] + 1 + len(again.events)))
    check_order([*client.events, *again.events])


async def test_nothing_is_said_to_an_empty_room(server: Running) -> None:
    """Nor is anything lost: to one who is back the answer goes on."""
    async with talking(server) as client:
        token = await ticket(client)
        await (await client.say("long 400")).send("response.create")
        await client.until("response.output_audio.delta")
        client.socket.transport.abort()
        gone_s = asyncio.get_running_loop().time()
        last = numbers(client.events)[-1]
    await asyncio.sleep(1.0)  # what is measured is what does not happen meanwhile
    away_s = asyncio.get_running_loop().time() - gone_s
    async with back(server, token, last) as again:
        await again.until("session.updated")
        missed_s = again.audio_s()
        assert missed_s <= 1.5 + away_s / 2  # what had been sent ahead when the server saw that the connection broke
        await asyncio.sleep(1.0)
        for _ in range(10):
            await again.until("response.output_audio.delta")
        assert again.audio_s() > missed_s


async def test_a_connection_that_is_left_behind_is_let_go(server: Running) -> None:
    async with talking(server) as client:
        token = await ticket(client)
        async with back(server, token, 0) as again:
            assert (await again.until("session.updated"))["parley"]["seq"] == 1
            await client.socket.wait_closed()
            await again.alive()
    await server.empty()


@pytest.mark.fault("S5.3")
async def test_a_token_is_good_once(server: Running) -> None:
    async with talking(server) as client:
        token = await ticket(client)
        async with back(server, token, 0) as again:
            await again.until("session.updated")
            await refused(server, f"resume={token}&after=0", 404)
    await server.empty()


async def test_without_the_wish_a_session_ends_with_its_connection(server: Running) -> None:
    async with talking(server) as client:
        session = client.of("session.created")[0]["session"]
        assert "resume_token" not in session["parley"]
        assert not numbers(client.events)
    await server.empty()


@pytest.mark.parametrize("query", ["resume=resume_1&after=0", "resume=&after=0", "resume=%00&after=x"])
@pytest.mark.fault("S5.3")
async def test_unknown_tokens_are_refused(query: str, server: Running) -> None:
    await refused(server, query, 404)


@pytest.mark.parametrize("after", ["", "-1", "999", "x", "1e3", "9" * 40])
async def test_events_that_are_not_kept_are_a_gap(after: str, server: Running) -> None:
    async with talking(server) as client:
        token = await ticket(client)
        await refused(server, f"resume={token}&after={after}", 410)
        await client.alive()


async def test_who_stays_away_loses_the_session(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_module, "LINGER_S", 0.05)
    async with talking(server) as client:
        token = await ticket(client)
        await (await client.say("long 400")).send("response.create")
        await client.until("response.output_audio.delta")
        client.socket.transport.abort()
    await server.empty()
    await refused(server, f"resume={token}&after=0", 404)


async def test_a_session_that_waits_ends_with_the_server(server: Running) -> None:
    async with talking(server) as client:
        await ticket(client)
        await (await client.say("long 400")).send("response.create")
        await client.until("response.output_audio.delta")
        client.socket.transport.abort()
    await eventually(lambda: server.metric("parley_sessions") == 1)


async def test_who_said_goodbye_is_not_waited_for(server: Running) -> None:
    async with talking(server) as client:
        token = await ticket(client)
    await server.empty()
    await refused(server, f"resume={token}&after=0", 404)


class Wire:
    """A transport whose client's messages come from the test; None: the client says goodbye."""

    def __init__(self) -> None:
        self.says = asyncio.Queue[str | None]()
        self.channel = Channel(self, Limits(), LoopTimeBudget(FairScheduler()))

    async def messages(self) -> AsyncGenerator[str]:
        while (one := await self.says.get()) is not None:
            yield one

    async def send(self, text: str) -> None:
        """Send nothing."""

    async def run(self) -> None:
        """Do nothing."""

    async def close(self, disconnect: Disconnect) -> None:
        """Hold nothing."""


async def test_who_says_goodbye_on_the_connection_before_stays_on_the_next_one() -> None:
    """Both may be read in any order, as after a pause of the server."""
    before, after = Wire(), Wire()
    session = ResumableSession(before.channel, Principal())
    session.keep()
    received = session.received()
    reading = asyncio.create_task(anext(received))
    back = asyncio.create_task(session.come_back(after.channel, 0))
    await eventually(lambda: before.channel.over.is_set())
    before.says.put_nowait(None)
    after.says.put_nowait('{"type": "input_audio_buffer.clear"}')
    assert (await reading).event == ClearAudio()
    await received.aclose()
    session.end(Disconnect())
    await back


async def refused(server: Running, query: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as answer:
        await connect(f"{server.ws}?{query}")
    assert answer.value.response.status_code == status
    assert json.loads(answer.value.response.body or b"{}")["error"]["code"].startswith("resume_")


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(-2, 45))
def test_a_journal_gives_all_that_follows_or_nothing(sizes: list[int], after: int) -> None:
    journal, texts = EventLog(limit_chars=100), [f"{n}:{'x' * size}" for n, size in enumerate(sizes, start=1)]
    for text in texts:
        journal.add(text)
    got = journal.after(after)
    assert journal.last == len(texts)
    if 0 <= after <= len(texts) and sum(map(len, texts[after:])) <= 100:
        assert got == texts[after:]
    else:
        assert got is None
