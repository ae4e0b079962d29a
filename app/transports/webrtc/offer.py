"""A client's SDP offer, checked and reduced before a connection is made for it.

Offers come with any number of candidates, also none: the client's first check tells where it is. Source: RFC 8829.
"""

from __future__ import annotations

import ipaddress
import re

from aiortc import RTCSessionDescription
from aiortc.sdp import MediaDescription, SessionDescription

from app.realtime.trouble import Refusal

MAX_CHARS = 64 * 1024
"""A browser's offer with sound and pictures has 6 to 10 kB."""

MAX_CANDIDATES = 64
MAX_MEDIA = {"audio": 1, "video": 1, "application": 1}
_FINGERPRINT = re.compile(r"(sha-256|sha-384|sha-512) [0-9a-f]{2}(:[0-9a-f]{2})+", re.IGNORECASE)
UNPARSEABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError)
"""What aiortc's parser raises for what is no SDP."""


def checked(sdp: str) -> RTCSessionDescription:
    """The offer as aiortc takes it, with candidates of plain addresses only. Raises Refusal."""
    if len(sdp) > MAX_CHARS:
        raise _bad(f"is longer than {MAX_CHARS // 1024} kB")
    try:
        media = SessionDescription.parse(sdp).media
    except UNPARSEABLE:
        raise _bad("is not valid") from None
    _check_media(media)
    if not all(_FINGERPRINT.fullmatch(line) for line in re.findall(r"(?m)^a=fingerprint:(.*?)\r?$", sdp)):
        raise _bad("has a fingerprint that is none of SHA-256, SHA-384 and SHA-512")
    lines = sdp.splitlines()
    if sum(line.startswith("a=candidate:") for line in lines) > MAX_CANDIDATES:
        raise _bad(f"has more than {MAX_CANDIDATES} candidates")
    return RTCSessionDescription("\r\n".join(filter(_is_kept, lines)) + "\r\n", "offer")


def _check_media(media: list[MediaDescription]) -> None:
    for one in media:
        if one.kind not in MAX_MEDIA:
            raise _bad(f"has media of the unknown kind {one.kind[:20]!r}")
        secured = one.dtls is not None and one.dtls.fingerprints
        if not secured or one.ice is None or not one.ice.usernameFragment or not one.ice.password:
            raise _bad("has media without a DTLS fingerprint or ICE credentials")
    for kind, most in MAX_MEDIA.items():
        if sum(one.kind == kind for one in media) > most:
            raise _bad(f"has more than {most} {kind} section")
    sound = next((one for one in media if one.kind == "audio"), None)
    if sound is None or not any(codec.mimeType.lower() == "audio/opus" for codec in sound.rtp.codecs):
        raise _bad("has no audio section with Opus")


def _is_kept(line: str) -> bool:
    """Candidates of names are dropped: looking them up would ask the network, and their checks tell the address.

    So does the end of candidates: those that the offer lacks show by their checks too.
    """
    if line.strip() == "a=end-of-candidates":
        return False
    if not line.startswith("a=candidate:"):
        return True
    fields = line.split()
    try:
        ipaddress.ip_address(fields[4])
    except (IndexError, ValueError):
        return False
    return fields[2].lower() == "udp"


def _bad(what: str) -> Refusal:
    return Refusal("invalid_offer", f"The SDP offer {what}.", "sdp")
