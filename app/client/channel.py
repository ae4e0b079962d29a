"""The seam by which a client reaches a server: WebSocket and WebRTC share it, and its errors."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

import orjson

from app.client.events import Event
from engine import EngineError
from engine.core import Pcm


class ClientError(EngineError):
    """The server can't be reached, has gone, or refuses; ``code`` is its word for why."""

    code = "client_error"

    def __init__(self, message: str, code: str = "client_error") -> None:
        super().__init__(message)
        self.code = code


class ClientChannel(Protocol):
    """An open connection. One task receives; any may send."""

    plays: bool
    """Whether the server itself plays answers out, and so knows what was heard."""

    async def send(self, event: dict[str, Any]) -> None:
        """Raises ClientError once the connection has ended."""
        ...

    async def speak(self, pcm: Pcm) -> None:
        """The next piece of the microphone: int16 [samples] at SPEAKER_RATE_HZ."""
        ...

    async def receive(self) -> Event:
        """Wait for the next event. Raises ClientError once the connection has ended."""
        ...


def server_parts(url: str) -> SplitResult:
    """Return the parts of a server's address, with the scheme ``http`` or ``https``. Raises ClientError."""
    parts = urlsplit(url)
    scheme = {"http": "http", "https": "https", "ws": "http", "wss": "https"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ClientError(f"{url!r} is no address of a server: give one like http://127.0.0.1:8000")
    return parts._replace(scheme=scheme)


def refusal(body: bytes, otherwise: str) -> ClientError:
    """Return why a server refuses, in its own words; ``otherwise`` stands in for a body without any."""
    try:
        error = orjson.loads(body)["error"]
        return ClientError(str(error["message"]), str(error["code"]))
    except (ValueError, KeyError, TypeError):
        return ClientError(otherwise)
