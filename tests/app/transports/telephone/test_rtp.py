"""A telephone's packets: whole from the first sound on, and none of an answer's end is kept back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from aiortc.rtp import RtpPacket

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.rate_limiter import RateLimiter
from app.media import g711
from app.transports.disconnect import Disconnect
from app.transports.telephone import rtp as module
from app.transports.telephone.rtp import FRAME, MOST_UNHEARD, RATE_HZ, SILENT_PACKETS, RtpStream
from app.transports.telephone.sdp import PCMA, PCMU, RtpOffer
from engine import SPEAKER_RATE_HZ
from engine.audio.resampler import Resampler
from engine.core import Pcm
from tests.app.rig import eventually, tone

OFFER = RtpOffer("127.0.0.1", 4000, PCMU, None)
PEER = "127.0.0.1"
LOUD = np.full(FRAME, 8000, np.int16)


class Wire(asyncio.DatagramTransport):
    """What was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sound: list[np.ndarray] = []
        self.to: list[tuple[Any, int]] = []
        """The place that each packet was sent to, and its payload type."""
        self.closed = False

    def sendto(self, data: Any, addr: Any = None) -> None:
        packet = RtpPacket.parse(bytes(data))
        self.sound.append(g711.decode_ulaw(packet.payload))
        self.to.append((addr, packet.payload_type))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def stream() -> tuple[RtpStream, Wire]:
    rtp, wire = RtpStream("call", OFFER, {"127.0.0.1"}, LoopTimeBudget(FairScheduler()), PEER.__eq__), Wire()
    rtp.connection_made(wire)
    return rtp, wire


@pytest.fixture
async def call() -> AsyncGenerator[tuple[RtpStream, Wire]]:
    rtp, wire = stream()
    yield rtp, wire
    await rtp.close(Disconnect())


def packet(number: int, law: int = PCMU, pcm: Pcm = LOUD, ssrc: int = 7) -> bytes:
    encode = g711.encode_ulaw if law == PCMU else g711.encode_alaw
    one = RtpPacket(payload_type=law, sequence_number=number, timestamp=number * FRAME, ssrc=ssrc, payload=encode(pcm))
    return one.serialize()


def taken(rtp: RtpStream) -> list[Any]:
    """What the session gets next, of all that has come."""
    return [rtp._received.get_nowait() for _ in range(rtp._received.qsize())]


async def test_each_packet_of_an_answer_leaves_with_the_sound_that_fills_it() -> None:
    """A resampler holds back its first millisecond: what is whole then must not wait for the next 20."""
    rtp, wire = stream()
    rtp._origin_s -= 1.0  # it was silent for a while
    down, sound = Resampler(SPEAKER_RATE_HZ, RATE_HZ), tone(0.2)
    for n, at in enumerate(range(0, len(sound), 480), 1):
        await rtp.send(down.push(sound[at : at + 480]))
        assert len(wire.sound) == n
    heard = np.concatenate(wire.sound)
    assert len(heard) == 10 * FRAME
    assert not heard[:8].any(), "the millisecond that is held back comes before it as silence"
    assert np.abs(heard[-FRAME // 2 :]).max() > 1000, "and nothing is left of the end"


async def test_a_later_offer_takes_the_sound_to_another_place_in_another_law(call: tuple[RtpStream, Wire]) -> None:
    """What is still on its way from the old place must not take it back there."""
    rtp, wire = call
    rtp._origin_s -= 1.0
    rtp.datagram_received(packet(1), ("127.0.0.1", 4567))
    rtp.redirect(RtpOffer("127.0.0.2", 5000, PCMA, None), {"127.0.0.2"})
    assert wire.to == [(("127.0.0.2", 5000), PCMA)] * SILENT_PACKETS, "relays learn where its sound comes from"
    rtp.datagram_received(packet(2), ("127.0.0.1", 4567))
    rtp.datagram_received(packet(2, PCMA), ("127.0.0.2", 5000))
    await eventually(lambda: rtp._received.qsize() == 2)
    await rtp.send(np.concatenate([LOUD] * 2))
    assert wire.to[SILENT_PACKETS:] == [(("127.0.0.2", 5000), PCMA)] * 2
    assert [float(one.mean()) for one in taken(rtp)] == pytest.approx([8000, 8000], rel=0.05)


async def test_an_offer_that_is_made_again_leaves_the_place_that_was_found(call: tuple[RtpStream, Wire]) -> None:
    """Behind a NAT a telephone sends from another place than it says, and a session timer says it again."""
    rtp, wire = call
    rtp.datagram_received(packet(1), ("127.0.0.1", 4567))
    rtp.redirect(OFFER, {"127.0.0.1"})
    await rtp.send(LOUD)
    assert wire.to == [(("127.0.0.1", 4567), PCMU)]


@pytest.mark.parametrize("direction", ["sendonly", "inactive"])
async def test_on_hold_nothing_is_sent_and_music_is_not_the_caller(
    call: tuple[RtpStream, Wire], monkeypatch: pytest.MonkeyPatch, direction: Any
) -> None:
    monkeypatch.setattr(module, "STAY_S", 0.01)
    rtp, wire = call
    rtp.redirect(replace(OFFER, direction=direction), {"127.0.0.1"})
    await rtp.send(LOUD)
    rtp.datagram_received(packet(1), ("127.0.0.1", 4000))
    await eventually(lambda: rtp._received.qsize() > 2)  # who is on hold has not vanished
    assert {len(one) for one in taken(rtp)} == {0}
    assert wire.sound == []
    rtp.redirect(OFFER, {"127.0.0.1"})
    rtp.datagram_received(packet(2), ("127.0.0.1", 4000))
    await rtp.send(LOUD)
    await eventually(lambda: not rtp._received.empty())
    assert [len(one) for one in taken(rtp)] == [FRAME]
    assert len(wire.sound) == 1


async def test_a_call_that_is_over_stays_so_whatever_is_offered(call: tuple[RtpStream, Wire]) -> None:
    rtp, wire = call
    await rtp.close(Disconnect())
    rtp.redirect(RtpOffer("127.0.0.2", 5000, PCMU, None, direction="inactive"), {"127.0.0.2"})
    assert (wire.sound, taken(rtp)) == ([], [])


async def test_another_program_of_the_caller_s_host_is_not_the_caller(call: tuple[RtpStream, Wire]) -> None:
    """Nor its keys; a NAT that gives the same stream another port is followed."""
    rtp, wire = call
    rtp.datagram_received(packet(1), ("127.0.0.1", 4567))
    for number in range(2, 9):
        rtp.datagram_received(packet(number, ssrc=8), ("127.0.0.1", 5000))
    await eventually(lambda: not rtp._received.empty())
    assert len(taken(rtp)) == 1
    await rtp.send(LOUD)
    rtp.datagram_received(packet(2), ("127.0.0.1", 6000))
    await rtp.send(LOUD)
    assert [place for place, _ in wire.to] == [("127.0.0.1", 4567), ("127.0.0.1", 6000)]


async def test_the_offered_place_is_the_caller_s_whatever_came_before(call: tuple[RtpStream, Wire]) -> None:
    rtp, wire = call
    rtp.datagram_received(packet(1, ssrc=8), ("127.0.0.1", 5000))
    rtp.datagram_received(packet(2), ("127.0.0.1", 4000))
    rtp.datagram_received(packet(3, ssrc=8), ("127.0.0.1", 5000))
    await eventually(lambda: rtp._received.qsize() == 2)
    await rtp.send(LOUD)
    assert wire.to == [(("127.0.0.1", 4000), PCMU)]
    assert len(taken(rtp)) == 2


async def test_a_host_that_never_sends_anything_gets_ten_seconds(call: tuple[RtpStream, Wire]) -> None:
    """It may be anybody's; a SIP peer has confirmed that it wants the call."""
    rtp, wire = call
    rtp.redirect(RtpOffer("192.0.2.9", 5000, PCMU, None), {"192.0.2.9", PEER})
    for _ in range(MOST_UNHEARD + 100):
        await rtp.send(LOUD)
    assert len(wire.sound) == MOST_UNHEARD
    rtp.datagram_received(packet(1), ("192.0.2.9", 5000))
    await rtp.send(LOUD)
    assert len(wire.sound) == MOST_UNHEARD + 1
    rtp.redirect(OFFER, {PEER})
    for _ in range(MOST_UNHEARD + 100):
        await rtp.send(LOUD)
    assert len(wire.sound) > 2 * MOST_UNHEARD


async def test_a_flood_of_packets_is_read_in_its_turn_and_the_rest_dropped() -> None:
    budget = LoopTimeBudget(FairScheduler(), "", RateLimiter(400, 4e6))
    rtp = RtpStream("call", OFFER, {PEER}, budget, PEER.__eq__)
    rtp.connection_made(Wire())
    for number in range(20_000):
        rtp.datagram_received(packet(number & 0xFFFF), (PEER, 4000))
    assert len(taken(rtp)) < 512
    await rtp.close(Disconnect())
