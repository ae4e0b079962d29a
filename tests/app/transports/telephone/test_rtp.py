"""A telephone's packets: whole from the first sound on, and none of an answer's end is kept back."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from aiortc.rtp import RtpPacket

from app import g711
from app.transports.telephone.rtp import FRAME, RATE_HZ, RtpStream
from app.transports.telephone.sdp import PCMU, Offer
from engine import SPEAKER_RATE_HZ
from engine.resampler import Resampler
from tests.app.rig import tone


class Wire(asyncio.DatagramTransport):
    """What was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sound: list[np.ndarray] = []

    def sendto(self, data: Any, addr: Any = None) -> None:
        self.sound.append(g711.decode_ulaw(RtpPacket.parse(bytes(data)).payload))


def stream() -> tuple[RtpStream, Wire]:
    rtp, wire = RtpStream("call", Offer("127.0.0.1", 4000, PCMU, None), {"127.0.0.1"}, lambda: None), Wire()
    rtp.connection_made(wire)
    return rtp, wire


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
