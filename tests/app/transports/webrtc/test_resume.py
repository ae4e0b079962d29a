"""A caller who comes back to his call over another connection."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from app.transports import resumable_session as resumable_module
from tests.app.realtime.test_session import check_order
from tests.app.rig import Running, eventually
from tests.app.transports.webrtc.caller import Caller, calling
from tests.app.transports.webrtc.relay import relaying

WORD_S = 0.08
"""How long the scripted family speaks a word."""
OURS = {"output_audio_buffer.started", "output_audio_buffer.stopped", "output_audio_buffer.cleared"}


async def ticket(call: Caller) -> str:
    await call.send("session.update", session={"type": "realtime", "parley": {"resume": True}})
    return (await call.until("session.updated"))["session"]["parley"]["resume_token"]


def last(call: Caller) -> int:
    return max(event["parley"]["seq"] for event in call.events if "parley" in event)


async def test_who_comes_back_is_told_what_he_missed_and_the_answer_is_heard_on(server: Running) -> None:
    """His first connection hangs, as on a network that changed: it is let go when the second one is there."""
    async with relaying() as relay:
        call = Caller(server, through=relay)
        await call.connect()
        token = await ticket(call)
        await call.say("long 100")
        await call.sound()
        relay.loss = 1.0
        again, after = Caller(server), last(call)
        await again.connect(resume=token, after=after)
        assert again.id == call.id
        updated = await again.until("session.updated")
        assert updated["session"]["parley"]["resume_token"] != token
        await again.sound()
        await again.send("response.cancel")
        assert (await again.until("response.done"))["response"]["status"] == "cancelled"
        before = [event for event in call.events if event.get("parley", {}).get("seq", 0) <= after]  # some came later
        numbers = [event["parley"]["seq"] for event in [*before, *again.events] if "parley" in event]
        assert numbers == list(range(1, len(numbers) + 1))
        check_order([event for event in [*before, *again.events] if event["type"] not in OURS])
        await again.say("say: still here")
        await again.until("output_audio_buffer.stopped")
        await call.hang_up()
        assert server.metric("parley_sessions") == 1
        async with httpx.AsyncClient(base_url=server.http) as http:
            assert (await http.post(f"/v1/realtime/calls/{call.id}/hangup")).status_code == 200
        await again.hang_up()
        await server.empty()


def loud_s(call: Caller) -> float:
    """For how long something was said: a frame is 20 ms."""
    return 0.02 * sum(frame.peak > 500 for frame in call.heard)


@pytest.mark.parametrize(("words", "over"), [(50, False), (20, True)], ids=["it goes on", "it was over meanwhile"])
async def test_what_was_said_into_a_dead_connection_is_said_again(server: Running, words: int, over: bool) -> None:
    async with relaying() as relay:
        call = Caller(server, through=relay)
        await call.connect()
        token = await ticket(call)
        await call.say(f"long {words}")
        await call.sound()
        relay.loss = 1.0
        await asyncio.sleep(words * WORD_S + 1.0 if over else 1.5)
        again = Caller(server)
        await again.connect(resume=token, after=last(call))
        await again.until("session.updated")
        await again.until("output_audio_buffer.started" if over else "response.done")
        await again.until("output_audio_buffer.stopped")
        await asyncio.sleep(0.2)
        assert loud_s(call) + loud_s(again) == pytest.approx(words * WORD_S, abs=0.4)
        assert loud_s(call) < words * WORD_S / 2  # what this is about
        await call.hang_up()
        await hang_up(server, again)


async def test_a_second_socket_on_the_call_goes_on_over_both(server: Running, talk: Any) -> None:
    call = await Caller(server).connect()
    async with talk(server, query=f"?call_id={call.id}") as backend:
        token = await ticket(call)
        await call.hang_up()
        again = Caller(server)
        await again.connect(resume=token, after=last(call))
        await backend.say("say: by the back door")
        await backend.send("response.create")
        await again.until("output_audio_buffer.started")
        await backend.until("response.done")
        await hang_up(server, again)


async def test_a_call_waits_for_its_client_only_where_he_asked_for_it(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable_module, "LINGER_S", 0.3)
    async with calling(server):
        pass
    await server.empty()
    async with calling(server) as call:
        await ticket(call)
    await asyncio.sleep(0.1)
    await eventually(lambda: server.metric("parley_sessions") == 0)
    await server.empty()


async def test_a_token_is_good_once_and_for_calls_only(server: Running, talk: Any) -> None:
    call = await Caller(server).connect()
    token, seq = await ticket(call), last(call)
    other = Caller(server)
    offer = await other.offer()
    async with httpx.AsyncClient(base_url=server.http) as http:

        async def refused(token: str, after: str) -> tuple[int, str]:
            sdp = {"content-type": "application/sdp"}
            query = {"resume": token, "after": after}
            answer = await http.post("/v1/realtime/calls", params=query, content=offer, headers=sdp)
            return answer.status_code, answer.json()["error"]["code"]

        assert await refused("resume_none", "1") == (404, "resume_not_found")
        assert await refused(token, "9999") == (410, "resume_gap")
        assert await refused(token, "") == (410, "resume_gap")
        async with talk(server) as client:
            socket_token = (await client.configure(parley={"resume": True}))["parley"]["resume_token"]
            assert await refused(socket_token, "1") == (404, "resume_not_found")
        again = Caller(server)
        await again.connect(resume=token, after=seq)
        await again.until("session.updated")
        assert await refused(token, str(seq)) == (404, "resume_not_found")
    await other.hang_up()
    await call.hang_up()
    await hang_up(server, again)


async def test_an_offer_that_is_none_leaves_the_call_where_it_is(server: Running) -> None:
    async with calling(server) as call:
        token = await ticket(call)
        async with httpx.AsyncClient(base_url=server.http) as http:
            query = {"resume": token, "after": str(last(call))}
            sdp = {"content-type": "application/sdp"}
            answer = await http.post("/v1/realtime/calls", params=query, content="hello", headers=sdp)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_offer")
        await call.say("say: still here", output_modalities=["text"])
        await call.until("response.done")
        await hang_up(server, call)


async def hang_up(server: Running, call: Caller) -> None:
    async with httpx.AsyncClient(base_url=server.http) as http:
        assert (await http.post(f"/v1/realtime/calls/{call.id}/hangup")).status_code == 200
    await call.hang_up()
    await server.empty()
