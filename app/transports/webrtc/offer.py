"""A client's SDP offer, checked and reduced before a connection is made for it.

Offers come with any number of candidates, also none: the client's first check tells where it is. Source: RFC 8829.
"""

from __future__ import annotations

import ipaddress
import re

from aiortc import RTCSessionDescription
from aiortc.sdp import MediaDescription, SessionDescription

from app.refusal import Refusal

MAX_CHARS = 64 * 1024
"""A browser's offer with sound and pictures has 6 to 10 kB."""

MAX_CANDIDATES = 64
MAX_LINES = {"": 1500, "a=rtpmap:": 128, "a=rtcp-fb:": 256, "a=ssrc": 256, "a=candidate:": MAX_CANDIDATES}
"""Lines that begin so, or of any kind: what aiortc makes of some grows with the square of their number."""

MAX_MEDIA = {"audio": 1, "video": 1, "application": 1}
_FINGERPRINT = re.compile(r"(sha-256|sha-384|sha-512) [0-9a-f]{2}(:[0-9a-f]{2})+", re.IGNORECASE)
_UFRAG, _PASSWORD, _MID = re.compile(r"[!-~]{4,256}"), re.compile(r"[!-~]{22,256}"), re.compile(r"[!-~]{1,32}")
_IDS = frozenset(map(str, range(1, 256)))
"""Ids of header extensions; the packets that carry them have one byte for each."""


def checked(sdp: str) -> RTCSessionDescription:
    """The offer as aiortc takes it, with candidates of plain addresses only. Raises Refusal."""
    if len(sdp) > MAX_CHARS:
        raise _bad(f"is longer than {MAX_CHARS // 1024} kB")
    lines = sdp.splitlines()
    for start, most in MAX_LINES.items():
        if sum(line.startswith(start) for line in lines) > most:
            raise _bad(f"has more than {most} lines that begin with {start!r}" if start else f"has over {most} lines")
    kept = "\r\n".join(filter(_is_kept, lines)) + "\r\n"
    try:
        parsed = SessionDescription.parse(kept)
    except Exception:  # noqa: BLE001 - aiortc's parser raises whatever it stumbles over, StopIteration among it
        raise _bad("is not valid") from None
    _check_media(parsed.media)
    _check_bundle(parsed)
    if not all(_FINGERPRINT.fullmatch(line) for line in re.findall(r"(?m)^a=fingerprint:(.*?)\r?$", kept)):
        raise _bad("has a fingerprint that is none of SHA-256, SHA-384 and SHA-512")
    return RTCSessionDescription(kept, "offer")


def _check_media(media: list[MediaDescription]) -> None:
    for one in media:
        if one.kind not in MAX_MEDIA:
            raise _bad(f"has media of the unknown kind {one.kind[:20]!r}")
        secured = one.dtls is not None and one.dtls.fingerprints
        if not secured or one.ice is None or not _matches(_UFRAG, one.ice.usernameFragment):
            raise _bad("has media without a DTLS fingerprint or ICE credentials")
        if not _matches(_PASSWORD, one.ice.password):
            raise _bad("has media without an ICE password of 22 to 256 characters")
        if one.kind == "application" and (one.profile == "DTLS/SCTP" or one.sctp_port not in range(1, 65536)):
            raise _bad("has a data channel without an SCTP port")
    for kind, most in MAX_MEDIA.items():
        if sum(one.kind == kind for one in media) > most:
            raise _bad(f"has more than {most} {kind} section")
    sound = next((one for one in media if one.kind == "audio"), None)
    if sound is None or not any(codec.mimeType.lower() == "audio/opus" for codec in sound.rtp.codecs):
        raise _bad("has no audio section with Opus")


def _check_bundle(offer: SessionDescription) -> None:
    """aiortc looks for the first section of a bundle by its name, and takes for granted that it is there, once."""
    mids = [one.rtp.muxId for one in offer.media]
    bundled = [mid for group in offer.group if group.semantic == "BUNDLE" for mid in group.items]
    if len(set(mids)) != len(mids) or not all(_matches(_MID, mid) for mid in mids):
        raise _bad("has sections without a mid of their own")
    if len(set(bundled)) != len(bundled) or not set(bundled) <= set(mids):
        raise _bad("bundles what is none of its sections")


def _matches(pattern: re.Pattern[str], text: str | None) -> bool:
    return text is not None and pattern.fullmatch(text) is not None


def _is_kept(line: str) -> bool:
    """Candidates of names are dropped: looking them up would ask the network, and their checks tell the address.

    So does the end of candidates: those that the offer lacks show by their checks too. Addresses and ports that nothing
    can be sent to are no way to a client, and header extensions whose number no packet can carry tell nothing.
    """
    name, _, value = line.strip().partition(":")
    match name:
        case "a=end-of-candidates":
            return False
        case "a=candidate":
            return _is_way(value.split())
        case "a=extmap":
            return value.partition(" ")[0].partition("/")[0] in _IDS
        case _:
            return True


def _is_way(fields: list[str]) -> bool:
    """Whether a candidate is a plain address, and a port, of one host."""
    if len(fields) < 6 or "%" in fields[4]:
        return False
    try:
        address = ipaddress.ip_address(fields[4])
    except ValueError:
        return False
    nobodys = address.is_multicast or address.is_unspecified or (address.version == 4 and address.is_reserved)
    return not nobodys and fields[2].lower() == "udp" and _is_port(fields[5])


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) < 65536


def _bad(what: str) -> Refusal:
    return Refusal("invalid_offer", f"The SDP offer {what}.", "sdp")
