"""Conversion of a remote server's errors to EngineErrors.

A message names the server and the next step. It contains no key, no header and nothing of the conversation. Of the
server's own message it quotes one short line at most.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import cast

import httpx2
import msgspec

from engine.errors import EngineError, Overloaded, RequestError, StageFailed, StageUnavailable
from engine.worker.remote.options import ServerOptions

LONGEST_MESSAGE = 200
SHARED_TEXT, SHARED_KEY = 16, 6
"""A server's message is not quoted if it shares this many consecutive characters with the conversation or the key."""


class ServerRefusal(Exception):
    """A server's refusal. Its message ``said`` is not for users.

    ``status`` is the HTTP status, or the one that matches the server's error object. ``kind`` is the type and code of
    that object.
    """

    def __init__(self, status: int, said: str = "", kind: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(f"status {status}")  # a server's message may contain anything
        self.status = status
        self.said = said
        self.kind = kind
        self.retry_after_s = retry_after_s


def as_engine_error(refusal: ServerRefusal, options: ServerOptions, texts: Iterable[str], key: str = "") -> EngineError:
    """Return the error for a refusal. Its message contains nothing of the texts and of the key."""
    server, status, said = options.who, refusal.status, says(refusal.said, texts, key)
    match status:
        case 401 | 403 if options.key_file:
            return StageUnavailable(f"{server} refuses the key in {options.key_file} ({status}).")
        case 401 | 403:
            return StageUnavailable(f"{server} requires an API key ({status}): set key_file to the key's file.")
        case 404:
            return StageUnavailable(
                f"{server} has no model {options.model!r}, or no API at {options.base} (404){said}."
            )
        case 429:
            return Overloaded(f"{server} accepts no more requests now (429){said}. Try again later.")
        case 400 | 413 | 422:
            return RequestError(f"{server} does not take this request ({status}){said}.")
        case 502 | 503 | 504 | 529:
            return StageUnavailable(f"{server} is not ready ({status}){said}. Try again soon.")
        case _ if 300 <= status < 400:
            return StageUnavailable(f"{server} redirects requests ({status}): set url to the new address.")
        case _:
            return StageFailed(f"{server} failed ({status}){said}.")


def unreachable(error: httpx2.HTTPError, options: ServerOptions) -> EngineError:
    """Return the error for a connection that failed."""
    server = options.who
    match error:
        case httpx2.SSEError():
            return StageFailed(f"{server} sent an event that is too large.")
        case httpx2.ConnectError() if _is_certificate(error):
            return StageUnavailable(
                f"{server} has a TLS certificate that this machine does not trust. Set SSL_CERT_FILE to the file of "
                "that certificate."
            )
        case httpx2.ConnectError() if options.url.startswith("https:") and "SSL" in str(error):
            return StageUnavailable(f"{server} does not speak TLS: try an address that begins with http://.")
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return StageUnavailable(f"{server} cannot be reached. Is it running?")
        case httpx2.ProxyError():
            return StageUnavailable(f"{server} cannot be reached through the proxy of this environment.")
        case httpx2.DecodingError():
            return StageFailed(f"{server} sent data that cannot be decoded.")
        case _:
            return StageFailed(f"{server} closed the connection before its answer was complete.")


def message_of(body: bytes) -> tuple[str, str]:
    """Return the message and the kind of an error body. If its format is unknown, the message is the body itself."""
    try:
        tree = msgspec.json.decode(body)
        return said_by(tree), kind_of(tree)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "" if body.lstrip().startswith(b"<") else body.decode("utf-8", "replace"), ""


def kind_of(tree: object) -> str:
    """Return the ``type`` and ``code`` of an error object."""
    match tree:
        case {"error": dict() as inner}:
            return kind_of(cast("object", inner))
        case dict():
            fields = cast("dict[str, object]", tree)
            return " ".join(str(fields[name]) for name in ("type", "code") if isinstance(fields.get(name), str))
        case _:
            return ""


def said_by(tree: object, depth: int = 4) -> str:
    """Return the message of an error object: its ``message``, ``detail`` or ``msg``, also below ``error``."""
    match tree:
        case str():
            return tree
        case _ if depth == 0:
            return ""
        case {"error": inner} | {"message": inner} | {"detail": inner} | {"msg": inner}:
            return said_by(inner, depth - 1)
        case [first, *_]:
            return said_by(first, depth - 1)
        case _:
            return ""


def says(said: str, texts: Iterable[str], key: str = "") -> str:
    """Return a short quotation of a server for the end of a sentence; empty if it contains something private."""
    line = cleaned(said, texts, key)
    return f", and says: {line.rstrip('.')}" if line else ""


def cleaned(said: str, texts: Iterable[str], key: str = "") -> str:
    """Return one short printable line; empty if it contains something private."""
    line = " ".join("".join(one if one.isprintable() else " " for one in said[: LONGEST_MESSAGE * 5]).split())
    if _shares(line, key, SHARED_KEY) or any(_shares(line, text, SHARED_TEXT) for text in texts):
        return ""
    return line if len(line) <= LONGEST_MESSAGE else line[:LONGEST_MESSAGE].rstrip() + "…"


def _shares(line: str, text: str, size: int) -> bool:
    """Whether both texts contain one common run of ``size`` characters."""
    text = " ".join(text.split())
    size = min(size, max(len(text), SHARED_KEY))
    return any(line[at : at + size] in text for at in range(len(line) - size + 1))


def _is_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
