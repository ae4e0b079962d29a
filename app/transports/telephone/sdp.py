"""The description of a telephone's sound: an offer of G.711 over RTP, and the answer to it. Source: RFC 3264, 4566.

Of an offer's sections, the first that can be had is answered; the others (a camera, a fax) are refused in their places.
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
"""The payload types of both laws, which never change (RFC 3551)."""

NAMES = {PCMU: "PCMU", PCMA: "PCMA"}

PROFILES = frozenset({"RTP/AVP", "RTP/AVPF"})
"""Profiles of plain RTP; the feedback that AVPF allows may stay away (RFC 4585)."""

KEYS = f"telephone-event/{RATE_HZ}"
"""The codec of pressed keys (RFC 4733)."""

Direction = Literal["sendrecv", "sendonly", "recvonly", "inactive"]

_MIRRORED: dict[Direction, Direction] = {
    "sendrecv": "sendrecv",
    "sendonly": "recvonly",
    "recvonly": "sendonly",
    "inactive": "inactive",
}
"""What this side does then (RFC 3264, 6.1)."""

_DEAF: dict[Direction, Direction] = {
    "sendrecv": "sendonly",
    "sendonly": "sendonly",
    "recvonly": "inactive",
    "inactive": "inactive",
}
"""What a side does whose address is none: an older way of saying that it takes no sound (RFC 3264, 8.4)."""

_NAME = re.compile(r"[a-z0-9_.-]{1,253}", re.IGNORECASE)
_TYPE = re.compile(r"[0-9]{1,2}|1[01][0-9]|12[0-7]")
"""A payload type, of which there are 128."""


@dataclass(frozen=True, slots=True)
class RtpOffer:
    """The place that sound is to be sent to, its law, and the payload type of pressed keys where there is one.

    Port 0 is that of a call whose caller has not named a place yet.
    """

    host: str
    port: int
    law: int
    keys: int | None
    sections: tuple[str | None, ...] = (None,)
    """All sections in their order: None is that of this sound, the others are the lines that refuse them."""
    direction: Direction = "sendrecv"
    """What the other side does. Who puts a call on hold only sends (music, say), or does nothing."""
    dynamic: int | None = None
    """The payload type of the law, where the offer gives it another one than its own."""
    profile: str = "RTP/AVP"

    @property
    def payload_type(self) -> int:
        return self.law if self.dynamic is None else self.dynamic

    @property
    def receives(self) -> bool:
        """Whether the other side takes sound."""
        return self.direction in ("sendrecv", "recvonly")

    @property
    def speaks(self) -> bool:
        """Whether what the other side sends is its caller's voice."""
        return self.direction == "sendrecv"


UNKNOWN = RtpOffer("", 0, PCMU, 101, direction="inactive")
"""The place of sound where an INVITE comes without an offer: the server makes one, and the ACK brings the answer."""


def offer_of(body: bytes) -> RtpOffer:
    """The offer in a body. Raises Refusal where it is none, or has no G.711."""
    head, *sections = _sections(body)
    sounds = [_sound(one, head) for one in sections]
    place, sound = next(((i, one) for i, one in enumerate(sounds) if one is not None), (-1, None))
    if sound is None:
        raise Refusal("invalid_offer", "The SDP offers no G.711 over RTP/AVP.", "sdp")
    return replace(sound, sections=tuple(None if i == place else _refused(one) for i, one in enumerate(sections)))


def name_in(body: bytes) -> str | None:
    """The first host that is a name, which must be looked up before ``offer_of`` can read the offer."""
    for line in body.decode(errors="replace").splitlines():
        words = line.split()
        if line.startswith("c=") and len(words) == 3 and _NAME.fullmatch(words[2]) and _host([line]) is None:
            return words[2]
    return None


def own_offer(host: str, port: int, session: int, version: int) -> bytes:
    """The server's own offer, for an INVITE without one."""
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
    """The answer, for sound that is taken at ``host`` and ``port``. ``session`` is a number that the call's answers
    share; the ``version`` is another where the answer is (RFC 3264, 8)."""
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
    """The lines before the first section, and those of each, whose first has four words at least."""
    sections: list[list[str]] = [[]]
    for line in body.decode(errors="replace").splitlines():
        if line.startswith("m="):
            sections.append([])
        sections[-1].append(line)
    if any(len(lines[0].split()) < 4 for lines in sections[1:]):
        raise Refusal("invalid_offer", "The SDP has a section that can't be read.", "sdp")
    return sections


def _sound(section: list[str], head: list[str]) -> RtpOffer | None:
    """The sound that a section offers, if it can be had."""
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
    """The line that refuses a section."""
    media, _, *rest = section[0].split()
    return f"{media} 0 {' '.join(rest)}"


def _host(lines: list[str]) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address to which sound is to be sent; no name, which would have to be looked up."""
    words = next((line.split() for line in lines if line.startswith("c=")), [])
    with suppress(ValueError):
        return ipaddress.ip_address(words[2]) if len(words) == 3 else None
    return None


def _direction(lines: list[str]) -> Direction:
    """The first that is named: a section's own comes before that of the whole."""
    named: list[Direction] = [one for line in lines for one in _MIRRORED if line == f"a={one}"]
    return named[0] if named else "sendrecv"


def _codecs(section: list[str]) -> list[tuple[str, str]]:
    """The payload types that a section names, and each one's codec."""
    lines = [line.removeprefix("a=rtpmap:").split() for line in section if line.startswith("a=rtpmap:")]
    return [
        (words[0], words[1].lower().removesuffix("/1"))
        for words in lines
        if len(words) > 1 and _TYPE.fullmatch(words[0])
    ]


def _port(word: str) -> int:
    """The port that a word is; 0 for none."""
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 6 and int(word) < 2**16 else 0
