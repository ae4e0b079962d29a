"""SIP exchanges that place calls in ways that a simple telephone does not."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from app.refusal import Refusal
from app.transports.telephone.sdp import PCMA, PCMU, answer_to, name_in, offer_of
from tests.app.rig import LoudnessVad, eventually, running, script_spec
from tests.app.transports.telephone.exchanges import SDP, SipPhone, reached, sip_phone

GREETING = {"sip": "127.0.0.1:0", "greeting": "Say hello."}
OFFER = SDP.format(port=4000, law=0)
DYNAMIC = OFFER.replace("AVP 0 101", "AVP 96 101") + "a=rtpmap:96 PCMA/8000\r\n"
SHAPES: dict[str, tuple[str, str, int]] = {
    "a plain telephone": (OFFER, "m=audio 5000 RTP/AVP 0 101", PCMU),
    "feedback": (OFFER.replace("AVP", "AVPF"), "m=audio 5000 RTP/AVPF 0 101", PCMU),
    "feedback, and its lines": (
        OFFER.replace("AVP", "AVPF") + "a=rtcp-fb:* ccm tmmbr\r\na=rtcp:4001 IN IP4 127.0.0.1\r\n",
        "m=audio 5000 RTP/AVPF 0 101",
        PCMU,
    ),
    "a dynamic type": (DYNAMIC, "m=audio 5000 RTP/AVP 96 101", PCMA),
    "one channel": (DYNAMIC.replace("PCMA/8000", "pcma/8000/1"), "m=audio 5000 RTP/AVP 96 101", PCMA),
    "another codec first": (OFFER.replace("AVP 0", "AVP 9 18 8 0"), "m=audio 5000 RTP/AVP 8 101", PCMA),
    "a dynamic type before the own one": (DYNAMIC.replace("AVP 96", "AVP 96 0"), "m=audio 5000 RTP/AVP 96 101", PCMA),
    "no keys": (OFFER.replace(" 101", "", 1), "m=audio 5000 RTP/AVP 0", PCMU),
    "another type of keys": (OFFER.replace("101", "97"), "m=audio 5000 RTP/AVP 0 97", PCMU),
    "lines that nobody knows": (
        OFFER.replace("t=0 0", "b=CT:1000\r\nt=0 0\r\na=X-nat:0\r\na=ice-lite")
        + "a=crypto:1 x\r\na=silenceSupp:off\r\n",
        "m=audio 5000 RTP/AVP 0 101",
        PCMU,
    ),
}


@pytest.mark.parametrize(("sdp", "section", "law"), SHAPES.values(), ids=SHAPES)
def test_each_shape_of_offer_is_answered_in_its_own_terms(sdp: str, section: str, law: int) -> None:
    offer = offer_of(sdp.encode())
    assert (offer.host, offer.port, offer.law) == ("127.0.0.1", 4000, law)
    answer = answer_to(offer, "192.0.2.7", 5000, 1, 1).decode()
    assert f"\r\n{section}\r\n" in answer
    assert f"a=rtpmap:{section.split()[3]} PCM" in answer


@pytest.mark.parametrize(
    "sdp",
    [
        OFFER.replace("AVP 0", "AVP 96") + "a=rtpmap:96 PCMU/16000\r\n",
        OFFER.replace("AVP 0", "AVP 0") + "a=rtpmap:0 G723/8000\r\n",
        OFFER.replace("AVP 0", "SAVPF 0"),
    ],
    ids=["another rate", "another codec by the own type", "SRTP"],
)
def test_an_offer_without_the_sound_of_telephones_is_refused(sdp: str) -> None:
    with pytest.raises(Refusal):
        offer_of(sdp.encode())


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("pbx.example.org", "pbx.example.org"),
        ("localhost", "localhost"),
        ("sbc-1.example.org.", "sbc-1.example.org."),
        ("127.0.0.1", None),
        ("::1", None),
        ("a b", None),
        ("ex$ample", None),
        ("x" * 300, None),
    ],
)
def test_a_host_that_is_a_name_is_found(host: str, name: str | None) -> None:
    assert name_in(OFFER.replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {host}").encode()) == name


async def until_hello(phone: SipPhone) -> None:
    await eventually(lambda: len(phone.sound) > 5)
    await phone.hang_up()


def take(phone: SipPhone, answer: str) -> None:
    phone.tag = answer.partition("to: ")[2].partition("\r\n")[0].partition("tag=")[2]


async def test_an_invite_without_an_offer_is_answered_with_one() -> None:
    async with (
        running(script_spec(telephone=GREETING), vad=LoudnessVad) as server,
        sip_phone(reached(server)) as phone,
    ):
        phone.put("INVITE")
        offer = await phone.answer()
        assert offer.startswith("SIP/2.0 200"), offer
        assert " RTP/AVP 0 8 101\r\n" in offer
        assert "a=sendrecv" in offer
        take(phone, offer)
        phone.put("ACK", body=SDP.format(port=phone.rtp.port, law=8))
        await until_hello(phone)
        assert {kind for _, kind, _, _ in phone.rtp.packets} == {8}
        await server.empty()


@pytest.mark.parametrize("body", ["", OFFER.replace("AVP 0", "AVP 9")], ids=["no answer", "no common codec"])
async def test_a_call_whose_offer_is_not_answered_ends(body: str) -> None:
    async with (
        running(script_spec(telephone=GREETING), vad=LoudnessVad) as server,
        sip_phone(reached(server)) as phone,
    ):
        phone.put("INVITE")
        take(phone, await phone.answer())
        phone.put("ACK", body=body)
        await phone.ended.wait()
        await server.empty()


async def test_an_extension_that_is_required_is_refused_and_the_call_works_without_it() -> None:
    async with (
        running(script_spec(telephone=GREETING), vad=LoudnessVad) as server,
        sip_phone(reached(server)) as phone,
    ):
        sdp = SDP.format(port=phone.rtp.port, law=0)
        phone.put("INVITE", 1, sdp, Require="100rel, timer")
        refusal = await phone.answer()
        assert refusal.startswith("SIP/2.0 420 ")
        assert "unsupported: 100rel, timer" in refusal
        phone.put("ACK")
        named = sdp.replace("c=IN IP4 127.0.0.1", "c=IN IP4 localhost").replace("RTP/AVP 0", "RTP/AVPF 96")
        phone.put("INVITE", 2, f"{named}a=rtpmap:96 PCMA/8000\r\n", Supported="100rel, timer")
        answer = await phone.answer()
        assert answer.startswith("SIP/2.0 200"), answer
        take(phone, answer)
        phone.put("ACK", 2)
        await until_hello(phone)
        assert {kind for _, kind, _, _ in phone.rtp.packets} == {96}
        await server.empty()


async def test_a_call_to_a_host_that_nobody_knows_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only once it is confirmed: before, anybody could make the server look up names."""
    look_up = socket.getaddrinfo

    def known(host: Any, *given: Any, **more: Any) -> Any:
        if host == "nobody.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", known)
    async with (
        running(script_spec(telephone=GREETING), vad=LoudnessVad) as server,
        sip_phone(reached(server)) as phone,
    ):
        phone.put("INVITE", 1, OFFER.replace("c=IN IP4 127.0.0.1", "c=IN IP4 nobody.invalid"))
        take(phone, await phone.answer())
        phone.put("ACK")
        await phone.ended.wait()
        await server.empty()
