"""SDP of telephone audio: an offer of G.711 over RTP, and the answer to it. Source: RFC 3264, 4566.

The first acceptable section of an offer is answered; the others (a camera, a fax) are refused in place.
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from app.refusal import Refusal
from app.transports.telephone.media_stream import RATE_HZ

PCMU, PCMA = 0, 8
"""The static payload types of both codecs (RFC 3551)."""

NAMES = {PCMU: "PCMU", PCMA: "PCMA"}

PROFILES = frozenset({"RTP/AVP", "RTP/AVPF"})
"""Profiles of plain RTP. AVPF allows feedback but does not require it (RFC 4585)."""

KEYS = f"telephone-event/{RATE_HZ}"
"""The codec of pressed keys (RFC 4733)."""

Direction = Literal["sendrecv", "sendonly", "recvonly", "inactive"]

_MIRRORED: dict[Direction, Direction] = {
    "sendrecv": "sendrecv",
    "sendonly": "recvonly",
    "recvonly": "sendonly",
    "inactive": "inactive",
}
"""The direction of this side (RFC 3264, 6.1)."""

_DEAF: dict[Direction, Direction] = {
    "sendrecv": "sendonly",
    "sendonly": "sendonly",
    "recvonly": "inactive",
    "inactive": "inactive",
}
"""The direction of a side whose address is unspecified: an older way to say that it accepts no audio (RFC 3264,
8.4).
"""

_NAME = re.compile(r"[a-z0-9_.-]{1,253}", re.IGNORECASE)
_TYPE = re.compile(r"[0-9]{1,2}|1[01][0-9]|12[0-7]")
"""One of the 128 payload types."""


@dataclass(frozen=True, slots=True)
class RtpOffer:
    """The destination of audio, the codec, and the payload type of pressed keys, if any.

    Port 0 means that the caller has not named a destination yet.
    """

    host: str
    port: int
    law: int
    keys: int | None
    sections: tuple[str | None, ...] = (None,)
    """All sections in order: None for the accepted one, the refusing line for the others."""
    direction: Direction = "sendrecv"
    """The direction of the other side. Hold is "sendonly" (music, for example) or "inactive"."""
    dynamic: int | None = None
    """The payload type of the codec, if the offer uses another one than the static type."""
    profile: str = "RTP/AVP"

    @property
    def place(self) -> tuple[str, int]:
        """The host and port to which our audio is sent."""
        return self.host, self.port

    @property
    def payload_type(self) -> int:
        return self.law if self.dynamic is None else self.dynamic

    @property
    def receives(self) -> bool:
        """Whether the other side accepts audio."""
        return self.direction in ("sendrecv", "recvonly")

    @property
    def speaks(self) -> bool:
        """Whether the other side sends the caller's voice."""
        return self.direction == "sendrecv"


UNKNOWN = RtpOffer("", 0, PCMU, 101, direction="inactive")
"""The offer of an INVITE without one: the server makes its own offer, and the ACK contains the answer."""


def offer_of(body: bytes) -> RtpOffer:
    """Return the offer in a body. Raises Refusal if it is invalid, or has no G.711."""
    head, *sections = _sections(body)
    sounds = [_sound(one, head) for one in sections]
    place, sound = next(((i, one) for i, one in enumerate(sounds) if one is not None), (-1, None))
    if sound is None:
        raise Refusal("invalid_offer", "The SDP offers no G.711 over RTP/AVP.", "sdp")
    return replace(sound, sections=tuple(None if i == place else _refused(one) for i, one in enumerate(sections)))


def name_in(body: bytes) -> str | None:
    """Return the first host name, which must be resolved before ``offer_of`` can read the offer."""
    for line in body.decode(errors="replace").splitlines():
        words = line.split()
        if line.startswith("c=") and len(words) == 3 and _NAME.fullmatch(words[2]) and _host([line]) is None:
            return words[2]
    return None


def own_offer(host: str, port: int, session: int, version: int) -> bytes:
    """Return the server's own offer, for an INVITE without one."""
    types = [(PCMU, f"PCMU/{RATE_HZ}"), (PCMA, f"PCMA/{RATE_HZ}"), (101, KEYS)]
    sound = [
        f"m=audio {port} RTP/AVP {' '.join(str(number) for number, _ in types)}",
        *(f"a=rtpmap:{number} {codec}" for number, codec in types),
        "a=fmtp:101 0-15",
        "a=ptime:20",
        "a=sendrecv",
    ]
    return _described(sound, host, session, version)


def answer_to(offer: RtpOffer, host: str, port: int, session: int, version: int) -> bytes:
    """Return the answer, for audio received at ``host`` and ``port``.

    ``session`` is a number shared by all answers of a call; ``version`` changes with their contents (RFC 3264, 8).
    """
    law = offer.payload_type
    types = [law] if offer.keys is None else [law, offer.keys]
    keys = [f"a=rtpmap:{offer.keys} {KEYS}", f"a=fmtp:{offer.keys} 0-15"]
    sound = [
        f"m=audio {port} {offer.profile} {' '.join(map(str, types))}",
        f"a=rtpmap:{law} {NAMES[offer.law]}/{RATE_HZ}",
        *([] if offer.keys is None else keys),
        "a=ptime:20",
        f"a={_MIRRORED[offer.direction]}",
    ]
    sections = [line for one in offer.sections for line in (sound if one is None else [one])]
    return _described(sections, host, session, version)


def _described(sections: list[str], host: str, session: int, version: int) -> bytes:
    kind = "IP6" if ":" in host else "IP4"
    head = ["v=0", f"o=parley {session} {version} IN {kind} {host}", "s=-", f"c=IN {kind} {host}", "t=0 0"]
    return "\r\n".join([*head, *sections, ""]).encode()


def _sections(body: bytes) -> list[list[str]]:
    """Return the lines before the first section, and those of each section, whose first line has at least four
    words.
    """
    sections: list[list[str]] = [[]]
    for line in body.decode(errors="replace").splitlines():
        if line.startswith("m="):
            sections.append([])
        sections[-1].append(line)
    if any(len(lines[0].split()) < 4 for lines in sections[1:]):
        raise Refusal("invalid_offer", "The SDP has an invalid section.", "sdp")
    return sections


def _sound(section: list[str], head: list[str]) -> RtpOffer | None:
    """Return the audio offered by a section, or None if it is not acceptable."""
    media, port, profile, *types = section[0].split()
    named = dict(_codecs(section))
    laws = [(law, int(one)) for one in types for law in NAMES if named.get(one, one) in (str(law), _codec_of(law))]
    host = _host(section) or _host(head)
    if media != "m=audio" or profile not in PROFILES or not laws or host is None or not _port(port):
        return None
    keys = [int(one) for one, codec in named.items() if one in types and codec == KEYS]
    direction = _direction([*section, *head])
    direction = _DEAF[direction] if host.is_unspecified else direction
    law, number = laws[0]
    return RtpOffer(
        str(host),
        _port(port),
        law,
        keys[0] if keys else None,
        direction=direction,
        dynamic=None if number == law else number,
        profile=profile,
    )


def _codec_of(law: int) -> str:
    return f"{NAMES[law]}/{RATE_HZ}".lower()


def _refused(section: list[str]) -> str:
    """Return the ``m=`` line of our answer that rejects a media section of the offer: its port is 0."""
    media, _, *rest = section[0].split()
    return f"{media} 0 {' '.join(rest)}"


def _host(lines: list[str]) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address for audio; None for a host name."""
    words = next((line.split() for line in lines if line.startswith("c=")), [])
    with suppress(ValueError):
        return ipaddress.ip_address(words[2]) if len(words) == 3 else None
    return None


def _direction(lines: list[str]) -> Direction:
    """Return the first direction: a section's own precedes the session's."""
    named: list[Direction] = [one for line in lines for one in _MIRRORED if line == f"a={one}"]
    return named[0] if named else "sendrecv"


def _codecs(section: list[str]) -> list[tuple[str, str]]:
    """Return the payload types in a section with their codecs."""
    lines = [line.removeprefix("a=rtpmap:").split() for line in section if line.startswith("a=rtpmap:")]
    return [
        (words[0], words[1].lower().removesuffix("/1"))
        for words in lines
        if len(words) > 1 and _TYPE.fullmatch(words[0])
    ]


def _port(word: str) -> int:
    """Parse a port; 0 if the word is not one."""
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 6 and int(word) < 2**16 else 0
