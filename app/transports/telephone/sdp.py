"""The description of a telephone's sound: an offer of G.711 over RTP, and the answer to it. Source: RFC 3264, 4566."""

from __future__ import annotations

import time
from dataclasses import dataclass

from aiortc.sdp import SessionDescription

from app.refusal import Refusal
from app.transports.telephone.media_stream import RATE_HZ

PCMU, PCMA = 0, 8
"""The payload types of both laws, which never change (RFC 3551)."""

NAMES = {PCMU: "PCMU", PCMA: "PCMA"}


@dataclass(frozen=True, slots=True)
class Offer:
    """The place that sound is to be sent to, its law, and the payload type of pressed keys where there is one."""

    host: str
    port: int
    law: int
    keys: int | None


def offer_of(body: bytes) -> Offer:
    """The offer in a body. Raises Refusal where it is none, or has no G.711."""
    try:
        session = SessionDescription.parse(body.decode())
        (sound,) = (one for one in session.media if one.kind == "audio" and one.port)
        host, codecs = sound.host or session.host, sound.rtp.codecs
        laws = [one for one in sound.fmt if one in NAMES]
    except Exception:  # noqa: BLE001 - aiortc's parser stumbles over what it does not know, in many ways
        raise Refusal("invalid_offer", "The SDP has no section of sound that can be read.", "sdp") from None
    if not laws or sound.profile != "RTP/AVP" or not host or host == "0.0.0.0":
        raise Refusal("invalid_offer", "The SDP offers no G.711 over RTP/AVP.", "sdp")
    keys = [one for one in codecs if one.mimeType.lower() == "audio/telephone-event" and one.clockRate == RATE_HZ]
    return Offer(host, sound.port, laws[0], keys[0].payloadType if keys else None)


def answer_to(offer: Offer, host: str, port: int) -> bytes:
    """The answer, for sound that is taken at ``host`` and ``port``."""
    kind, now = "IP6" if ":" in host else "IP4", int(time.time())
    types = [offer.law] if offer.keys is None else [offer.law, offer.keys]
    lines = [
        "v=0",
        f"o=parley {now} {now} IN {kind} {host}",
        "s=-",
        f"c=IN {kind} {host}",
        "t=0 0",
        f"m=audio {port} RTP/AVP {' '.join(map(str, types))}",
        f"a=rtpmap:{offer.law} {NAMES[offer.law]}/{RATE_HZ}",
        *(
            []
            if offer.keys is None
            else [f"a=rtpmap:{offer.keys} telephone-event/{RATE_HZ}", f"a=fmtp:{offer.keys} 0-15"]
        ),
        "a=ptime:20",
        "a=sendrecv",
        "",
    ]
    return "\r\n".join(lines).encode()
