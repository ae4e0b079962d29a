"""The interface between a client and its transport (WebSocket or WebRTC), and the client's errors."""

from __future__ import annotations

import datetime
import ssl
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

import orjson

from app.client.events import Event
from engine import EngineError
from engine.core import Pcm


class ClientError(EngineError):
    """The server is unreachable, was lost, or refused; ``code`` is the server's error code."""

    code = "client_error"

    def __init__(self, message: str, code: str = "client_error") -> None:
        super().__init__(message)
        self.code = code


class ClientChannel(Protocol):
    """An open connection. Only one task may receive; any task may send."""

    plays: bool
    """Whether the server plays answers in real time, and so knows what was heard."""

    async def send(self, event: dict[str, Any]) -> None:
        """Send an event. Raises ClientError once the connection has ended."""
        ...

    async def speak(self, pcm: Pcm) -> None:
        """Send the next audio of the microphone: int16 [samples] at SPEAKER_RATE_HZ."""
        ...

    async def receive(self) -> Event:
        """Wait for the next event. Raises ClientError once the connection has ended."""
        ...


def server_parts(url: str) -> SplitResult:
    """Split a server's URL; the scheme becomes ``http`` or ``https``. Raises ClientError."""
    parts = urlsplit(url)
    scheme = {"http": "http", "https": "https", "ws": "http", "wss": "https"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ClientError(f"{url!r} is not a valid server URL: use one like http://127.0.0.1:8000")
    return parts._replace(scheme=scheme)


def tls_context(parts: SplitResult, trust: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return how to verify the server: ``trust``, or this machine's authorities for ``https``.

    The default is created for each connection, so that it reads the current SSL_CERT_FILE.
    """
    if trust is None and parts.scheme == "https":
        return ssl.create_default_context()
    return trust


def not_connected(url: str, error: Exception) -> ClientError:
    """Return the reason why no connection to ``url`` was opened, as one sentence."""
    if "CERTIFICATE_VERIFY_FAILED" not in str(error):
        return ClientError(f"no session at {url}: {error}")
    if "has expired" in str(error) or "not yet valid" in str(error):
        return ClientError(
            f"the certificate of {url} is not valid today ({datetime.date.today()} on this machine): check the clocks "
            "of both machines, or renew the server's certificate"
        )
    return ClientError(
        f"the certificate of {url} is not trusted: set SSL_CERT_FILE to the server's certificate file, or pass "
        "trust=ssl.create_default_context(cafile=...)"
    )


def refusal(body: bytes, otherwise: str) -> ClientError:
    """Return a server's refusal as an error; ``otherwise`` is the message if the body has none."""
    try:
        error = orjson.loads(body)["error"]
        return ClientError(str(error["message"]), str(error["code"]))
    except (ValueError, KeyError, TypeError):
        return ClientError(otherwise)
