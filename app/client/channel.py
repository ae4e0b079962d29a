"""The seam by which a client reaches a server: WebSocket and WebRTC share it, and its errors."""

from __future__ import annotations

from typing import Any, Protocol

from app.client.events import Event
from engine import EngineError
from engine.core import Pcm


class ClientError(EngineError):
    """The server can't be reached, has gone, or refuses; ``code`` is its word for why."""

    code = "client_error"

    def __init__(self, message: str, code: str = "client_error") -> None:
        super().__init__(message)
        self.code = code


class Channel(Protocol):
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
