"""A client's SDP offer, checked and reduced before a connection is made for it.

Unsupported sections are rejected in the answer, and the others are answered. Offers may have any number of candidates,
even none: the client's first check shows its address. Source: RFC 8829, 5.3.1.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from aiortc import RTCSessionDescription
from aiortc.codecs import CODECS
from aiortc.rtcpeerconnection import find_common_codecs
from aiortc.sdp import MediaDescription, SessionDescription

from app.client_address import may_name
from app.refusal import Refusal

MAX_CHARS = 64 * 1024
"""A browser's offer with audio and video has 6 to 10 kB."""

MAX_CANDIDATES = 64
MAX_LINES = {"": 1500, "a=rtpmap:": 128, "a=rtcp-fb:": 256, "a=ssrc": 256, "a=candidate:": MAX_CANDIDATES}
"""Maximum lines with these prefixes, or in total: aiortc's work for some grows with the square of their number."""

SERVED = frozenset({"audio", "video", "application"})
"""Supported kinds of media. One section of each is accepted, and the others are rejected."""
UNNAMED = "parley-"
"""Prefix of our names for sections without a name."""
HEAD = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
ANYWHERE = "c=IN IP4 0.0.0.0"
_MEDIA = re.compile(r"m=(\S+) (\d{1,5}) (\S+) (\S.*)")
_SECTION = re.compile(r"(?m)^(?=m=)")
_TRANSPORT = ("a=ice-ufrag", "a=ice-pwd", "a=fingerprint", "a=setup")
_READ = frozenset(
    {*_TRANSPORT, "a=ice-options", "a=max-message-size", "a=msid", "a=rtcp-mux", "a=rtpmap", "a=rtcp-fb"}
    | {"a=sctpmap", "a=sctp-port", "a=ssrc-group", "a=sendrecv", "a=sendonly", "a=recvonly", "a=inactive"}
)
_WEAK = re.compile(r"a=fingerprint:(?:md2|md5|sha-1|sha-224) ", re.IGNORECASE)
"""Hashes that are ignored: a client may offer one in addition to a good one."""
_FINGERPRINT = re.compile(r"(sha-256|sha-384|sha-512) [0-9a-f]{2}(:[0-9a-f]{2})+", re.IGNORECASE)
_UFRAG, _PASSWORD, _MID = re.compile(r"[!-~]{4,256}"), re.compile(r"[!-~]{22,256}"), re.compile(r"[!-~]{1,32}")
_IDS = frozenset(map(str, range(1, 256)))
"""Valid ids of header extensions: packets have one byte for each."""


@dataclass(slots=True)
class _Section:
    """A media section of an offer: its first line, and the lines that aiortc can read."""

    kind: str
    protocol: str
    formats: str
    lines: list[str]
    offered: bool
    """Whether it has a port, or uses the port of its bundle."""
    mid: str
    """Its name; one of ours, which the answer leaves out, if the offer has none."""
    served: bool = False

    @property
    def text(self) -> str:
        return "\r\n".join([f"m={self.kind} 9 {self.protocol} {self.formats}", ANYWHERE, *self.lines, ""])

    @property
    def rejection(self) -> str:
        """The answer's section that rejects this one (RFC 8829, 5.3.1)."""
        mid = [] if self.mid.startswith(UNNAMED) else [f"a=mid:{self.mid}"]
        return "\r\n".join([f"m={self.kind} 0 {self.protocol} {self.formats}", ANYWHERE, "a=inactive", *mid, ""])


@dataclass(frozen=True, slots=True)
class Offer:
    """An acceptable offer: the accepted sections, and the rejected ones."""

    sdp: str
    """The offer of the accepted sections for aiortc."""
    sections: tuple[_Section, ...]
    bundle: tuple[str, ...]
    """The names of the accepted sections that share a transport."""

    @property
    def description(self) -> RTCSessionDescription:
        return RTCSessionDescription(self.sdp, "offer")

    def answer(self, sdp: str) -> str:
        """Return aiortc's answer to the accepted sections, with the other sections rejected in place."""
        head, *served = _SECTION.split(sdp)
        group = f"a=group:BUNDLE {' '.join(self.bundle)}\r\n" if self.bundle else ""
        head = re.sub(r"a=group:BUNDLE.*\r\n", group, head)
        left = iter(served)
        texts = [next(left) if section.served else section.rejection for section in self.sections]
        return head + re.sub(rf"a=mid:{UNNAMED}\d+\r\n", "", "".join(texts))


def checked(sdp: str, client: str = "") -> Offer:
    """Check an offer and reduce it to what aiortc supports, with plain addresses as candidates. Raises Refusal.

    Candidates that a client at the address ``client`` may not name are dropped: the server would send checks to them.
    Checks from such an address are answered.
    """
    if len(sdp) > MAX_CHARS:
        raise _bad(f"is longer than {MAX_CHARS // 1024} kB")
    lines = sdp.splitlines()
    for start, most in MAX_LINES.items():
        if sum(line.startswith(start) for line in lines) > most:
            raise _bad(f"has more than {most} lines that start with {start!r}" if start else f"has over {most} lines")
    head, *media = _grouped([line for line in lines if _may_be_named(line, client)])
    sections = [_section(i, lines) for i, lines in enumerate(media)]
    bundle = _bundle(head, sections)
    _share_transport(head, sections, bundle)
    _choose(sections)
    served = [section for section in sections if section.served]
    shared = tuple(mid for mid in bundle if mid in {section.mid for section in served})
    group = [f"a=group:BUNDLE {' '.join(shared)}"] if shared else []
    kept = [line for line in head if _name(line) in ("a=ice-lite", "a=ice-options", "a=msid-semantic")]
    text = HEAD + "\r\n".join([*kept, *group, ""]) + "".join(section.text for section in served)
    _parsed(text)
    return Offer(text, tuple(sections), shared)


def _grouped(lines: list[str]) -> list[list[str]]:
    """Return the session's lines, then the lines of each section."""
    groups: list[list[str]] = [[]]
    for line in lines:
        if line.startswith("m="):
            groups.append([])
        groups[-1].append(line.rstrip())
    return groups


def _section(index: int, lines: list[str]) -> _Section:
    """Parse a section. Raises Refusal."""
    first = _MEDIA.fullmatch(lines[0])
    if first is None:
        raise _bad("is not valid")
    kind, port, protocol, formats = first.groups()
    named = [line.partition(":")[2] for line in lines if _name(line) == "a=mid"]
    mid = named[0] if named else f"{UNNAMED}{index}"
    offered = int(port) > 0 or "a=bundle-only" in lines
    numbers = {line.split(":")[1].split(" ")[0] for line in lines if line.startswith("a=rtpmap:")}
    kept = [line for line in lines[1:] if _is_kept(line, numbers)]
    return _Section(kind, protocol, formats, [*kept, f"a=mid:{mid}"], offered, mid)


def _bundle(head: list[str], sections: list[_Section]) -> list[str]:
    """Return the names of the sections that share a transport. aiortc assumes that each exists exactly once."""
    mids = [section.mid for section in sections]
    groups = [line.split()[1:] for line in head if line.startswith("a=group:BUNDLE")]
    bundled = [mid for group in groups[:1] for mid in group]
    if len(set(mids)) != len(mids) or not all(_matches(_MID, mid) for mid in mids):
        raise _bad("has sections without a unique mid")
    if len(set(bundled)) != len(bundled) or not set(bundled) <= set(mids):
        raise _bad("bundles a section that does not exist")
    return bundled


def _share_transport(head: list[str], sections: list[_Section], bundle: list[str]) -> None:
    """Complete each section's transport from the session's lines, and from the first section of its bundle (RFC 9143,
    7.1).
    """
    by_mid = {section.mid: section for section in sections}
    for mid in [*bundle, *(by_mid.keys() - {*bundle})]:
        section = by_mid[mid]
        first = by_mid[bundle[0]].lines if mid in bundle else []
        for name in _TRANSPORT:
            if not any(_name(line) == name for line in section.lines):
                section.lines += [line for line in head if _name(line) == name] or [
                    line for line in first if _name(line) == name
                ]
        section.lines = [line for line in section.lines if not _WEAK.match(line)]


def _choose(sections: list[_Section]) -> None:
    """Mark the sections to accept: the first supported one of each kind. Raises Refusal."""
    for section in sections:
        known = section.kind in SERVED and section.offered
        if known and not any(one.served and one.kind == section.kind for one in sections):
            _check_transport(section)
            [media] = _parsed(HEAD + section.text).media
            section.served = _can_be_served(media)
    if not any(section.served and section.kind == "audio" for section in sections):
        raise _bad("has no audio section with Opus")


def _parsed(sdp: str) -> SessionDescription:
    try:
        return SessionDescription.parse(sdp)
    except Exception:  # noqa: BLE001 - aiortc's parser raises whatever it stumbles over, StopIteration among it
        raise _bad("is not valid") from None


def _can_be_served(media: MediaDescription) -> bool:
    match media.kind:
        case "audio":
            return any(codec.mimeType.lower() == "audio/opus" for codec in media.rtp.codecs)
        case "video":
            return bool(find_common_codecs(CODECS["video"], media.rtp.codecs))
        case _:
            return media.profile != "DTLS/SCTP" and media.sctp_port in range(1, 65536)


def _check_transport(section: _Section) -> None:
    """Check a section's transport. Raises Refusal."""
    values = {name: [line.partition(":")[2] for line in section.lines if _name(line) == name] for name in _TRANSPORT}
    if not all(values.values()) or not _matches(_UFRAG, values["a=ice-ufrag"][-1]):
        raise _bad("has a media section that lacks its DTLS fingerprint, DTLS role (a=setup) or ICE credentials")
    if not _matches(_PASSWORD, values["a=ice-pwd"][-1]):
        raise _bad("has media without an ICE password of 22 to 256 characters")
    if not all(_matches(_FINGERPRINT, one) for one in values["a=fingerprint"]):
        raise _bad("has a fingerprint other than SHA-256, SHA-384 or SHA-512")


def _matches(pattern: re.Pattern[str], text: str | None) -> bool:
    return text is not None and pattern.fullmatch(text) is not None


def _name(line: str) -> str:
    """Return a line's type, with its name if it is an attribute: ``a=mid``."""
    return line.partition(":")[0] if line.startswith("a=") else line[:2]


def _is_kept(line: str, numbers: set[str]) -> bool:
    """Return whether aiortc can read an attribute. ``numbers`` are the payload types with a codec.

    These are dropped: candidates with host names, because resolving a name would use the network, and the client's
    connectivity checks reveal its address anyway; the end-of-candidates line; unusable addresses and ports; and header
    extensions with impossible ids.
    """
    name, _, value = line.partition(":")
    match name:
        case "a=candidate":
            return _is_way(value.split())
        case "a=extmap":
            return value.partition(" ")[0].partition("/")[0] in _IDS and len(value.split()) == 2
        case "a=fmtp":
            return value.partition(" ")[0] in numbers
        case "a=ssrc":
            return ":" in value
        case _:
            return name in _READ


def _may_be_named(line: str, client: str) -> bool:
    """Return whether a line is either no candidate, or a candidate that the client may name."""
    fields = line.split()
    return not line.startswith("a=candidate:") or (len(fields) > 4 and may_name(client, fields[4]))


def _is_way(fields: list[str]) -> bool:
    """Return whether a candidate names a plain address and port."""
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
