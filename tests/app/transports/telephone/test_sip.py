"""SIP's own rules: what is sent again, what is refused and how, who is not answered at all; and its sound as RTP."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from app.media import g711
from app.refusal import Refusal
from app.transports.telephone import sip as sip_module
from app.transports.telephone.sdp import RtpOffer, answer_to, offer_of
from app.transports.telephone.sip import Sip
from app.transports.telephone.sip_message import NotSip, SipMessage, response, tag_of, uri_of
from app.transports.telephone.telephones import Telephones
from tests.app.rig import LoudnessVad, Running, eventually, running, script_spec
from tests.app.transports.telephone.exchanges import SDP, Rtp, SipPhone, frames, heard, reached, sip, sip_phone

OFFER = SDP.format(port=4000, law=0)
TURNS = {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncGenerator[Running]:
    telephone = {"sip": "127.0.0.1:0", "session": TURNS, "greeting": "Say hello."}
    async with running(script_spec(telephone=telephone, limits={"sessions": 1}), vad=LoudnessVad) as one:
        yield one


@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_that_is_lost_is_sent_again_until_it_is_confirmed(server: Running) -> None:
    async with sip_phone(reached(server)) as phone:
        phone.drop_answers = 2
        phone.invite()
        answer = await phone.answer()
        assert answer.startswith("SIP/2.0 200")
        assert len([one for one in phone.seen if one.startswith("SIP/2.0 200")]) == 3
        phone.ack(answer)
        await phone.hang_up()
        assert (await phone.answer()).startswith("SIP/2.0 200")
        await server.empty()


@pytest.mark.asyncio(loop_scope="module")
async def test_an_invitation_that_comes_twice_is_one_call(server: Running) -> None:
    async with sip_phone(reached(server)) as phone:
        phone.invite()
        first = await phone.answer()
        phone.invite()
        assert await phone.answer() == first
        phone.ack(first)
        phone.invite(number=2)  # within the call: a session timer, or a hold
        again = await phone.answer()
        assert again.startswith("SIP/2.0 200")
        phone.put("ACK", 2)
        assert again.partition("\r\n\r\n")[2] == first.partition("\r\n\r\n")[2]
        assert server.metric("parley_sessions") == 1
        await phone.hang_up()
        await server.empty()


@asynccontextmanager
async def elsewhere() -> AsyncGenerator[Rtp]:
    """Another place for a telephone's sound, on another host."""
    rtp = Rtp()
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: rtp, ("127.0.0.2", 0))
    yield rtp
    rtp.transport.close()


async def a_turn_is_answered(caller: Rtp, law: int = 0) -> None:
    """Say something, and hear something."""
    tone = 8000 * np.sin(2 * np.pi * 300 * np.arange(4800) / 8000)
    encode = g711.encode_alaw if law else g711.encode_ulaw
    for one in frames(np.concatenate([tone, np.zeros(8000)]).astype(np.int16)):
        caller.put(law, encode(one))
        await asyncio.sleep(0)  # a socket's buffer holds some two hundred
    before = len(caller.sound)
    await eventually(lambda: any(np.abs(pcm).max() > 1000 for _, pcm in caller.sound[before:]))


def moved(to: Rtp, law: int = 0) -> str:
    return SDP.replace("127.0.0.1", "127.0.0.2").format(port=to.port, law=law)


@pytest.mark.parametrize("asked", [False, True], ids=["offered", "asked for"])
@pytest.mark.asyncio(loop_scope="module")
async def test_sound_follows_a_later_invitation(server: Running, asked: bool) -> None:
    """A relay that is left out, or a caller who is handed on. An exchange may have the server offer first."""
    async with sip(reached(server)) as phone, elsewhere() as other:
        law = 0 if asked else 8
        offer = moved(other, law)
        phone.put("INVITE", 2, "" if asked else offer)
        answer = await phone.answer()
        phone.put("ACK", 2, offer if asked else "")
        other.server = phone.rtp.server
        await a_turn_is_answered(other, law)
        assert {kind for _, kind, _, _ in other.packets} == {law}
        assert f"m=audio {phone.rtp.server[1]} RTP/AVP {law} 101" in answer
        version = answer.partition("o=parley ")[2].split()[1]
        assert version == ("1" if asked else "2"), "which says whether it is another answer than before"
        await phone.hang_up()
        await server.empty()


def slow_look_ups(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, list[bytes]]:
    """Make look-ups of "slow.invalid" wait for the event. The list contains the SDP of each."""
    known, asked, resolved = asyncio.Event(), list[bytes](), Sip._resolved

    async def waits(self: Sip, body: bytes, host: str) -> bytes:
        if b"slow.invalid" in body:
            asked.append(body)
            await known.wait()
        return await resolved(self, body.replace(b"slow.invalid", b"127.0.0.1"), host)

    monkeypatch.setattr(Sip, "_resolved", waits)
    return known, asked


@pytest.mark.asyncio(loop_scope="module")
async def test_a_later_invitation_is_not_undone_by_one_that_needs_a_look_up(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, asked = slow_look_ups(monkeypatch)
    async with sip(reached(server)) as phone, elsewhere() as other:
        slow = SDP.format(port=phone.rtp.port, law=0).replace("127.0.0.1", "slow.invalid")
        phone.put("INVITE", 2, slow)
        await eventually(lambda: bool(asked))
        phone.put("INVITE", 3, moved(other))
        assert "cseq: 3 INVITE" in await phone.answer()
        phone.put("ACK", 3)
        known.set()
        phone.put("OPTIONS", 4)
        assert "cseq: 4 OPTIONS" in await phone.answer(), "the earlier one has no answer, and moves nothing"
        await eventually(lambda: bool(other.packets))
        await phone.hang_up()
        await server.empty()


@pytest.mark.asyncio(loop_scope="module")
async def test_an_ack_that_comes_often_begins_a_few_look_ups(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    known, asked = slow_look_ups(monkeypatch)
    monkeypatch.setattr(sip_module, "MOST_CALLS", 2)
    async with sip_phone(reached(server)) as phone:
        phone.put("INVITE")
        answer = await phone.answer()
        phone.tag = tag_of(answer.partition("to: ")[2].partition("\r\n")[0])
        for _ in range(20):
            phone.put("ACK", 1, SDP.format(port=phone.rtp.port, law=0).replace("127.0.0.1", "slow.invalid"))
        phone.put("OPTIONS", 3)
        await phone.answer()
        assert len(asked) == 3, "the call itself is a part too"
        known.set()
        await eventually(lambda: bool(phone.rtp.packets))
        await phone.hang_up()
        await server.empty()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_call_on_hold_is_answered_as_one_and_goes_on(server: Running) -> None:
    async with sip(reached(server)) as phone:
        offer = SDP.format(port=phone.rtp.port, law=0)
        for number, (direction, mirrored) in enumerate((("sendonly", "recvonly"), ("sendrecv", "sendrecv")), 2):
            phone.put("INVITE", number, f"{offer}a={direction}\r\n")
            answer = await phone.answer()
            assert answer.startswith("SIP/2.0 200")
            assert f"a={mirrored}\r\n" in answer
            phone.put("ACK", number)
        phone.put("INVITE", 2, f"{offer}a=sendonly\r\n")  # it comes again, late: no second hold
        await a_turn_is_answered(phone.rtp)
        await phone.hang_up()
        await server.empty()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_later_offer_that_can_t_be_taken_leaves_the_call_as_it_is(server: Running) -> None:
    async with sip(reached(server)) as phone:
        phone.put("INVITE", 2, OFFER.replace("AVP 0", "AVP 9"))
        assert (await phone.answer()).startswith("SIP/2.0 488")
        phone.put("ACK", 2)
        await a_turn_is_answered(phone.rtp)
        await phone.hang_up()
        await server.empty()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_caller_that_never_confirms_gets_no_session_and_no_audio(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.transports.telephone.sip.CONFIRM_S", 0.2)
    with caplog.at_level("INFO"):
        async with sip_phone(reached(server)) as phone:
            phone.invite()
            answer = await phone.answer()
            await eventually(lambda: any("unconfirmed" in one.getMessage() for one in caplog.records))
            phone.ack(answer)  # too late
            phone.put("OPTIONS", 7)
            await phone.answer()
            assert not server.metric("parley_sessions")
            assert phone.rtp.packets == []
    assert not any(one.getMessage().startswith("call.opened") for one in caplog.records)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.asyncio(loop_scope="module")
async def test_a_call_that_is_taken_back_before_it_is_answered_never_is(
    server: Running, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Whether its sound has a port by then or not."""
    really: Any = sip_module.Sip._stream

    async def stream(self: sip_module.Sip, dialog: sip_module.Dialog, *more: Any) -> Any:
        made = await really(self, dialog, *more) if late else None
        phone.put("CANCEL")
        await dialog.ended.wait()
        return made or await really(self, dialog, *more)

    monkeypatch.setattr(sip_module.Sip, "_stream", stream)
    async with sip_phone(reached(server)) as phone:
        phone.invite()
        answers = [await phone.answer(), await phone.answer()]
        phone.put("ACK")
        await server.empty()
    assert [one.split()[1] for one in answers] == ["200", "487"]
    assert [one.partition("cseq: ")[2].split()[1] for one in answers] == ["CANCEL", "INVITE"]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("error", [ZeroDivisionError, OSError])
async def test_a_call_whose_session_breaks_is_ended_at_its_caller(
    server: Running, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Telephones, "serve", broken)
    async with sip(reached(server)) as phone:
        await phone.ended.wait()
        (bye, *_) = [one for one in phone.seen if not one.startswith("SIP/2.0 200")]
        assert bye.startswith("BYE")


@pytest.mark.asyncio(loop_scope="module")
async def test_where_there_is_no_room_the_exchange_is_told(server: Running) -> None:
    async with sip(reached(server)) as phone:
        phone.put("INVITE", 1, SDP.format(port=phone.rtp.port, law=0))  # sent again: no second call
        other = SipPhone("call-2@example.org")
        other.transport = phone.transport
        other.rtp = phone.rtp
        other.invite()
        answer = await phone.answer()
        while answer.startswith("SIP/2.0 200"):
            answer = await phone.answer()
        assert answer.startswith("SIP/2.0 503")
        assert "call-id: call-2@example.org" in answer
        other.put("ACK")
        await phone.hang_up()
        await server.empty()


@pytest.mark.parametrize(
    "sdp",
    ["hello", OFFER.replace("4000", "0"), OFFER.replace("AVP 0", "AVP 9"), OFFER.replace("AVP", "SAVP")],
    ids=["none", "no port", "no G.711", "SRTP"],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_offer_that_can_t_be_taken_is_refused(server: Running, sdp: str) -> None:
    async with sip_phone(reached(server)) as phone:
        phone.put("INVITE", 1, sdp)
        assert (await phone.answer()).startswith("SIP/2.0 488")
        phone.put("ACK")
        await server.empty()


@pytest.mark.parametrize(("method", "status"), [("OPTIONS", 200), ("BYE", 481), ("CANCEL", 481), ("MESSAGE", 405)])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_outside_of_a_call_is_answered(server: Running, method: str, status: int) -> None:
    async with sip_phone(reached(server)) as phone:
        phone.put(method)
        answer = await phone.answer()
        assert answer.startswith(f"SIP/2.0 {status}")
        assert "via: SIP/2.0/UDP" in answer
        assert "cseq: 1 " in answer


@pytest.mark.parametrize("law", [0, 8], ids=["PCMU", "PCMA"])
@pytest.mark.asyncio(loop_scope="module")
async def test_its_sound_is_in_packets_of_20_ms_whose_times_fit(server: Running, law: int) -> None:
    async with sip(reached(server), law=law) as phone:
        await eventually(lambda: len(heard(phone)) > 3000)  # the greeting: the caller has said nothing
        packets = phone.rtp.packets
        assert {kind for _, kind, _, _ in packets} == {law}
        assert {len(pcm) for _, pcm in phone.sound} == {160}
        numbers = [number for _, _, number, _ in packets]
        assert [(number - numbers[0]) & 0xFFFF for number in numbers] == list(range(len(numbers)))
        for (_, _, _, before), (marker, _, _, after) in pairwise(packets):
            assert after - before == 160 or (marker and after - before > 160)
        assert np.abs(heard(phone).astype(float)).max() > 1000
        await phone.hang_up()
        await server.empty()


@pytest.mark.asyncio(loop_scope="module")
async def test_packets_of_others_and_nonsense_are_dropped(server: Running) -> None:
    async with sip(reached(server)) as phone:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.0.2", 0))
            stranger.sendto(b"\x80\x00" + bytes(170), phone.rtp.server)
            signalling = phone.transport.get_extra_info("peername")
            chance = random.Random(1)
            for size in range(200):
                stranger.sendto(chance.randbytes(size), signalling)
                phone.rtp.transport.sendto(chance.randbytes(size), phone.rtp.server)
                phone.transport.sendto(chance.randbytes(size))
                await asyncio.sleep(0)  # a socket's buffer holds some two hundred
        phone.put("OPTIONS", 7)
        while "cseq: 7 OPTIONS" not in await phone.answer():
            pass
        await phone.hang_up()
        await server.empty()


@pytest.mark.asyncio(loop_scope="module")
async def test_who_is_no_peer_gets_no_answer(server: Running) -> None:
    other, telephone = reached(server), {"sip": "127.0.0.1:0", "sip_peers": ["192.0.2.0/24"]}
    async with (
        running(script_spec(telephone=telephone), vad=LoudnessVad) as strict,
        sip_phone(reached(strict, other)) as phone,
    ):
        phone.put("OPTIONS")
        phone.invite()
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert phone.seen == []
        assert not strict.metric("parley_sessions")


def test_a_message_is_read_as_it_is_written() -> None:
    text = (
        b"INVITE sip:a@b SIP/2.0\r\nv: SIP/2.0/UDP one;branch=1, SIP/2.0/UDP two;branch=2\r\n"
        b'f: "A;tag=no" <sip:x@y;tag=no>;tag=yes\r\nt: <sip:a@b>\r\ni: 7\r\n'
        b"CSeq: 3 INVITE\r\nSubject: a\r\n b\r\n\r\nbody"
    )
    message = SipMessage.of(text)
    assert (message.method, message.cseq, message.body) == ("INVITE", (3, "INVITE"), b"body")
    assert message.all("via") == ["SIP/2.0/UDP one;branch=1", "SIP/2.0/UDP two;branch=2"]
    assert message.get("subject") == "a b"
    assert tag_of(message.get("from")) == "yes"
    assert uri_of("<sip:a@b;lr>;x=1") == "sip:a@b;lr"
    assert uri_of("sip:a@b;x=1") == "sip:a@b"
    answer = SipMessage.of(response(message, 180, "Ringing", "mine").encode())
    assert (answer.status, answer.method, tag_of(answer.get("to"))) == (180, "", "mine")
    assert answer.all("via") == message.all("via")


@pytest.mark.parametrize(
    "wrong", [b"", b"\r\n\r\n", b"hello", b"INVITE sip:a SIP/2.0\r\n\r\n", b"\xff" * 40, b"SIP/2.0 200"]
)
def test_what_is_no_message_is_refused(wrong: bytes) -> None:
    with pytest.raises(NotSip):
        SipMessage.of(wrong)


def test_an_offer_is_read_and_its_answer_is_one() -> None:
    offer = offer_of(SDP.format(port=4000, law=8).encode())
    assert offer == RtpOffer("127.0.0.1", 4000, 8, 101)
    assert offer_of(answer_to(offer, "192.0.2.7", 5000, 1, 1)) == RtpOffer("192.0.2.7", 5000, 8, 101)


@pytest.mark.parametrize(
    ("offered", "answered"),
    [("sendrecv", "sendrecv"), ("sendonly", "recvonly"), ("recvonly", "sendonly"), ("inactive", "inactive")],
)
@pytest.mark.parametrize("place", ["a=ptime", "t=0 0"], ids=["the section's", "the whole's"])
def test_who_only_sends_is_only_heard(offered: str, answered: str, place: str) -> None:
    """An answer that says more is none (RFC 3264, 6.1)."""
    offer = offer_of(OFFER.replace(place, f"a={offered}\r\n{place}").encode())
    assert (offer.direction, offer.speaks) == (offered, offered == "sendrecv")
    assert f"\r\na={answered}\r\n" in answer_to(offer, "192.0.2.7", 5000, 1, 1).decode()


def test_an_address_that_is_none_is_a_hold() -> None:
    offer = offer_of(OFFER.replace("127.0.0.1\r\nt=", "0.0.0.0\r\nt=").encode())
    assert (offer.direction, offer.receives, offer.speaks) == ("sendonly", False, False)


@pytest.mark.parametrize("law", [0, 8])
def test_every_section_of_an_offer_has_its_answer_in_its_place(law: int) -> None:
    """A video phone or a fax offers more than sound (RFC 3264, 6): what is not taken has the port 0."""
    secret = f"m=audio 4002 RTP/SAVP {law}\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:abc\r\n"
    camera = "m=video 4004 RTP/AVP 96 97\r\na=rtpmap:96 H264/90000\r\na=fmtp:99 no-map-of-this\r\n"
    fax = "m=image 4006 udptl t38\r\na=T38FaxVersion:0\r\n"
    before, sound = OFFER.replace("AVP 0", f"AVP {law}").split("m=audio")
    offer = offer_of(f"{before}{secret}{camera}m=audio{sound}{fax}".encode())
    assert (offer.port, offer.law, offer.keys) == (4000, law, 101)
    answer = answer_to(offer, "192.0.2.7", 5000, 1, 1).decode().split("\r\n")
    assert [line for line in answer if line.startswith("m=")] == [
        f"m=audio 0 RTP/SAVP {law}",
        "m=video 0 RTP/AVP 96 97",
        f"m=audio 5000 RTP/AVP {law} 101",
        "m=image 0 udptl t38",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [("4000", "99999"), ("4000", "x"), ("127.0.0.1\r\nt", "pbx.example.org\r\nt"), ("m=audio", "m=x\r\nm=audio")],
    ids=["no such port", "no port", "a name", "half a section"],
)
def test_what_could_not_be_sent_to_is_refused(old: str, new: str) -> None:
    with pytest.raises(Refusal):
        offer_of(OFFER.replace(old, new).encode())


@given(st.binary() | st.text(alphabet="vmaco=INP4AUDTRV /.:0189\r\n").map(str.encode))
def test_whatever_is_offered_is_an_offer_or_refused(body: bytes) -> None:
    for one in (body, OFFER.encode() + body, OFFER.encode().replace(b"\r\nm=", b"\r\n" + body + b"\r\nm=")):
        try:
            offer = offer_of(one)
        except Refusal:
            continue
        answered = offer_of(answer_to(offer, "192.0.2.7", 5000, 1, 1))
        assert (answered.law, answered.keys, len(answered.sections)) == (offer.law, offer.keys, len(offer.sections))
