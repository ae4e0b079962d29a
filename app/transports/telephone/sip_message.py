"""SIP messages: from a datagram and back. Sans-I/O. Source: RFC 3261, 7 and 18; RFC 3581 for ``rport``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

VERSION = "SIP/2.0"

_SHORT = {
    "v": "via",
    "f": "from",
    "t": "to",
    "i": "call-id",
    "m": "contact",
    "c": "content-type",
    "l": "content-length",
}
"""One-letter header names (RFC 3261, 7.3.3)."""

_LISTS = frozenset({"via", "record-route", "route"})
"""Headers whose lines may contain several values, separated by commas."""


MOST_BYTES = 16 * 1024
"""Maximum bytes of a message. Messages of telephones and trunks have 500 to 4,000."""

MOST_HEADERS = 200
"""Maximum number of headers, counting each value of a list."""


class NotSip(ValueError):
    """The datagram is not a SIP message."""


@dataclass(frozen=True, slots=True)
class SipMessage:
    """A message. ``start`` is its first line; ``headers`` are in order, with lower-case names."""

    start: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, datagram: bytes) -> Self:
        """Parse a datagram. Raises NotSip."""
        head, _, body = datagram.partition(b"\r\n\r\n")
        if len(datagram) > MOST_BYTES or head.count(b"\n") > MOST_HEADERS:
            raise NotSip
        try:
            start, *texts = head.decode().replace("\r\n ", " ").replace("\r\n\t", " ").split("\r\n")
        except UnicodeDecodeError:
            raise NotSip from None
        words = start.split(" ")
        if len(words) < 3 or (VERSION not in (words[0], words[-1])):
            raise NotSip
        headers = tuple(one for text in texts for one in _headers(text))
        message = cls(start, headers, body)
        if not all(message.get(name) for name in ("via", "from", "to", "call-id", "cseq")):
            raise NotSip
        if len(headers) > MOST_HEADERS or message.method not in ("", message.cseq[1]):
            raise NotSip
        return message

    @property
    def method(self) -> str:
        """The method of a request; "" for a response."""
        word = self.start.split(" ", 1)[0]
        return "" if word == VERSION else word

    @property
    def status(self) -> int:
        """The status of a response; 0 for a request."""
        word = self.start.split(" ")[1]
        return int(word) if not self.method and word.isascii() and word.isdecimal() else 0

    @property
    def cseq(self) -> tuple[int, str]:
        """The sequence number and the method."""
        number, _, method = self.get("cseq").partition(" ")
        return (int(number) if number.isascii() and number.isdecimal() and len(number) < 11 else 0), method.strip()

    def get(self, name: str) -> str:
        """Return the first header with this name, or ""."""
        return next((value for one, value in self.headers if one == name), "")

    def all(self, name: str) -> list[str]:
        return [value for one, value in self.headers if one == name]

    def encode(self) -> bytes:
        """Return the datagram."""
        texts = [self.start, *(f"{name}: {value}" for name, value in self.headers), f"content-length: {len(self.body)}"]
        return "\r\n".join([*texts, "", ""]).encode() + self.body


def response(
    request: SipMessage, status: int, reason: str, tag: str = "", *more: tuple[str, str], body: bytes = b""
) -> SipMessage:
    """Return the response to a request. ``tag`` is added to its To header if that has none."""
    to = request.get("to")
    copied = [
        *(("via", value) for value in request.all("via")),
        *(("record-route", value) for value in request.all("record-route")),
        ("from", request.get("from")),
        ("to", f"{to};tag={tag}" if tag and not tag_of(to) else to),
        ("call-id", request.get("call-id")),
        ("cseq", request.get("cseq")),
    ]
    return SipMessage(f"{VERSION} {status} {reason}", (*copied, *more), body)


def tag_of(address: str) -> str:
    """Return the tag of a From or To header, or ""."""
    for parameter in address.rpartition(">")[2].split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "tag":
            return value
    return ""


def branch_of(message: SipMessage) -> str:
    """Return the branch in the topmost Via header, which names the transaction, or ""."""
    for parameter in message.get("via").split(";")[1:]:
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "branch":
            return value
    return ""


def uri_of(address: str) -> str:
    """Return the URI in a Contact, From or Route header."""
    _, opened, rest = address.partition("<")
    return rest.partition(">")[0] if opened else address.partition(";")[0].strip()


def _headers(text: str) -> list[tuple[str, str]]:
    name, colon, value = text.partition(":")
    if not colon:
        raise NotSip
    name = name.strip().lower()
    name = _SHORT.get(name, name)
    values = value.split(",") if name in _LISTS else [value]
    return [(name, one.strip()) for one in values if name != "content-length"]
