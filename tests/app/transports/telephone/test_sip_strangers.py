"""What a SIP peer must prove: a dialog's tags and address, its confirmation of a call, and the password."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from app.transports.telephone import unconfirmed
from app.transports.telephone.unconfirmed import UnconfirmedCalls, most_unconfirmed
from tests.app.rig import LoudnessVad, Running, eventually, keys_file, running, script_spec
from tests.app.transports.telephone.exchanges import SDP, Reached, SipPhone, reached, sip, sip_phone
from tests.app.transports.telephone.test_sip import TURNS, a_turn_is_answered
from tests.app.transports.telephone.test_sip_digest import authorization

pytestmark = pytest.mark.asyncio(loop_scope="module")

PASSWORD = "a-password-of-callers"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[Running]:
    telephone = {"sip": "127.0.0.1:0", "session": TURNS, "greeting": "Say hello."}
    async with running(script_spec(telephone=telephone, limits={"sessions": 4}), vad=LoudnessVad) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(server: Running) -> Reached:
    return reached(server)


@asynccontextmanager
async def stranger(server: Running, phone: SipPhone, host: str = "127.0.0.1") -> AsyncGenerator[SipPhone]:
    """Another SIP peer that knows a call's Call-ID, with a place for audio of its own."""
    loop, other = asyncio.get_running_loop(), SipPhone(phone.name)
    address = phone.transport.get_extra_info("peername")
    await loop.create_datagram_endpoint(lambda: other, (host, 0), remote_addr=address)
    await loop.create_datagram_endpoint(lambda: other.rtp, (host, 0))
    try:
        yield other
    finally:
        other.transport.close()
        other.rtp.transport.close()


def sockets() -> set[int]:
    """Return the UDP ports of this process."""
    return {one.laddr.port for one in psutil.Process().net_connections("inet4") if one.type == socket.SOCK_DGRAM}


async def is_active(phone: SipPhone) -> bool:
    """Whether a call still answers requests within it."""
    phone.put("NOTIFY", 60)
    while "cseq: 60 NOTIFY" not in (answer := await phone.answer()):
        pass
    return answer.startswith("SIP/2.0 200")


@pytest.mark.parametrize("method", ["BYE", "CANCEL", "NOTIFY", "INVITE"])
@pytest.mark.parametrize(
    ("host", "tag"),
    [("127.0.0.1", "wrong"), ("127.0.0.1", ""), ("127.0.0.2", "right")],
    ids=["wrong tag", "no tag", "another address"],
)
async def test_a_call_s_id_is_no_proof(server: Running, door: Reached, method: str, host: str, tag: str) -> None:
    """Neither ends the call nor moves its audio; a request without the tag may begin a call of its own."""
    async with sip(door) as phone, stranger(server, phone, host) as other:
        await eventually(lambda: bool(phone.rtp.packets))
        other.tag = phone.tag if tag == "right" else tag
        other.put(method, 50, SDP.format(port=other.rtp.port, law=0) if method == "INVITE" else "")
        answer = await other.answer()
        assert answer.startswith("SIP/2.0 481" if method != "INVITE" or tag else "SIP/2.0 482")
        assert await is_active(phone)
        if method == "INVITE":
            await a_turn_is_answered(phone.rtp)
        assert other.rtp.packets == []
        await phone.hang_up()
        await server.empty()


@pytest.mark.parametrize("tag", ["wrong", ""])
async def test_an_ack_of_a_stranger_confirms_nothing(server: Running, door: Reached, tag: str) -> None:
    async with sip_phone(door) as phone, stranger(server, phone) as other:
        phone.invite()
        answer = await phone.answer()
        other.tag = tag
        other.put("ACK")
        other.put("OPTIONS", 3)
        await other.answer()
        assert not server.metric("parley_sessions")
        phone.ack(answer)
        await eventually(lambda: server.metric("parley_sessions") == 1)
        await phone.hang_up()
        await server.empty()


async def test_a_response_of_a_stranger_answers_no_request_of_the_server(server: Running, door: Reached) -> None:
    async with sip(door) as phone, stranger(server, phone, "127.0.0.2") as other:
        forged = f"SIP/2.0 200 OK\r\nVia: x;branch=z9\r\nFrom: <a>;tag={phone.tag}\r\nTo: <b>;tag=caller\r\n"
        other.transport.sendto(f"{forged}Call-ID: {phone.name}\r\nCSeq: 2 BYE\r\n\r\n".encode())
        assert await is_active(phone)
        await phone.hang_up()
        await server.empty()


async def test_a_bug_in_one_call_ends_no_other(
    server: Running, door: Reached, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*args: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("app.transports.telephone.sip.Sip._changed", fails)
    async with sip(door) as phone:
        phone.put("INVITE", 2, SDP.format(port=phone.rtp.port, law=0))
        assert await is_active(phone)
        assert "sip.bug" in caplog.text
        await phone.hang_up()
        await server.empty()


async def test_telephones_leave_sessions_to_others(server: Running, door: Reached) -> None:
    """Two of four sessions are theirs. One that confirms when there is no place any more is hung up."""
    async with sip_phone(door) as late:
        late.invite()
        answer = await late.answer()
        async with sip(door) as one, sip(door) as two:
            await eventually(lambda: server.metric("parley_sessions") == 2)
            async with sip_phone(door) as third:
                third.invite()
                assert (await third.answer()).startswith("SIP/2.0 503")
            late.ack(answer)
            await late.ended.wait()
            assert server.metric("parley_sessions") == 2
            await one.hang_up()
            await two.hang_up()
        await server.empty()


async def test_a_flood_of_calls_that_nobody_confirms_keeps_out_no_real_one(
    server: Running, door: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.transports.telephone.sip.CONFIRM_S", 0.5)
    before = sockets()
    async with sip_phone(door) as flood:
        for number in range(3 * unconfirmed.EACH):
            flood.name = f"{number}@flood"
            flood.invite()
            await asyncio.sleep(0)
        async with sip(door) as phone:
            await eventually(lambda: bool(phone.rtp.packets))
            assert server.metric("parley_sessions") == 1
            await phone.hang_up()
        assert flood.rtp.packets == []
    await eventually(lambda: sockets() <= before)


async def test_no_response_is_repeated_for_ever(
    server: Running, door: Reached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.transports.telephone.sip_dialog.T1_S", 0.01)
    monkeypatch.setattr("app.transports.telephone.sip.CONFIRM_S", 0.5)
    before = sockets()
    async with sip_phone(door) as phone:
        phone.invite()
        await asyncio.sleep(0.3)
        assert len(phone.seen) == 4
        phone.invite()
        await eventually(lambda: len(phone.seen) == 5)
    await eventually(lambda: sockets() <= before)


async def test_with_a_password_only_who_knows_it_may_call(door: Reached, tmp_path: Path) -> None:
    account = {"sip_user": "trunk", "sip_password_file": keys_file(tmp_path, PASSWORD, name="password")}
    spec = script_spec(telephone={"sip": "127.0.0.1:0", "greeting": "Say hello.", **account})
    async with running(spec, vad=LoudnessVad) as strict:
        strict_door = reached(strict, door)
        async with sip_phone(strict_door) as phone:
            phone.invite()
            challenge = await phone.answer()
            assert challenge.startswith("SIP/2.0 401")
            assert [line for line in challenge.split("\r\n") if "algorithm=SHA-256" in line]
            proof = authorization(challenge, "trunk", PASSWORD)
            phone.put("INVITE", 2, SDP.format(port=phone.rtp.port, law=0), Authorization=proof)
            answer = await phone.answer()
            assert answer.startswith("SIP/2.0 200"), answer
            phone.put("ACK", 2)
            phone.ack(answer)
            await eventually(lambda: strict.metric("parley_sessions") == 1)
            phone.put("BYE", 3)
            await strict.empty()
        await a_wrong_password_is_refused(strict_door)


async def a_wrong_password_is_refused(door: Reached) -> None:
    """And after some attempts, every attempt."""
    async with sip_phone(door) as phone:
        number = 1
        for number in range(1, 44, 2):
            phone.invite(number=number)
            if (answer := await phone.answer()).startswith("SIP/2.0 403"):
                break
            proof = authorization(answer, "trunk", "a guess")
            phone.put("INVITE", number + 1, SDP.format(port=phone.rtp.port, law=0), Authorization=proof)
            assert (await phone.answer()).startswith(("SIP/2.0 401", "SIP/2.0 403"))
        assert number > 30


async def test_the_oldest_unconfirmed_call_gives_way() -> None:
    calls, ended, opened = UnconfirmedCalls(each=2, all=3), list[str](), asyncio.Event()

    async def waits(name: str, address: str) -> None:
        try:
            async with calls.confirming(address, 60):
                await opened.wait()
        except TimeoutError:
            ended.append(name)

    async with asyncio.TaskGroup() as tasks:
        for name, address in (("a", "192.0.2.1"), ("b", "192.0.2.1"), ("c", "192.0.2.1"), ("d", "192.0.2.2")):
            tasks.create_task(waits(name, address))
            await asyncio.sleep(0)
        await eventually(lambda: ended == ["a"])
        tasks.create_task(waits("e", "192.0.2.3"))
        await eventually(lambda: ended == ["a", "b"])
        assert len(calls) == 3
        opened.set()
    assert len(calls) == 0


async def test_a_call_whose_time_is_just_over_gives_way_too() -> None:
    calls, confirmed = UnconfirmedCalls(each=1), asyncio.Event()

    async def late() -> None:
        await asyncio.sleep(0.01)
        async with calls.confirming("192.0.2.1", 60):
            confirmed.set()

    async def waits() -> None:
        with pytest.raises(TimeoutError):
            async with calls.confirming("192.0.2.1", 0.02):
                await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(late())
        tasks.create_task(waits())
        await asyncio.sleep(0)
        time.sleep(0.05)  # noqa: ASYNC251 - both timers are due in one step of the event loop
    assert confirmed.is_set()
    assert len(calls) == 0


async def test_unconfirmed_calls_hold_a_quarter_of_the_ports_at_most() -> None:
    assert most_unconfirmed(()) == (unconfirmed.EACH, unconfirmed.ALL)
    assert most_unconfirmed((50_000, 50_039)) == (10, 10)
    assert most_unconfirmed((50_000, 50_000)) == (1, 1)
