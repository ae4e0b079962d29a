"""One response as its client receives it: text, audio and arrival times. Sans-I/O: times are arguments."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.client.events import AudioDelta, CallDone, ResponseDone, TextDelta
from app.client.player import Player
from engine.core import Pcm


@dataclass(slots=True)
class Response:
    """A response, complete once ``done`` returns. ``begun_s`` is the client's time from which latencies count."""

    begun_s: float
    id: str = ""
    kept: bool = True
    """Whether the conversation stores it."""
    status: str = "missing"
    """Once it has ended: ``completed``, ``incomplete``, ``cancelled`` or ``failed``."""
    text: str = ""
    item_id: str | None = None
    """The item that contains the audio."""
    calls: list[CallDone] = field(default_factory=list[CallDone])
    player: Player = field(default_factory=Player)
    response: dict[str, Any] = field(default_factory=dict[str, Any])
    """The response object of the final event."""
    failure: Exception | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def done(self) -> Response:
        """Wait for the end. Raises ClientError if the server refuses, or the connection ends first."""
        await self._ended.wait()
        if self.failure is not None:
            raise self.failure
        return self

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    @property
    def pcm(self) -> Pcm:
        """The audio as int16 [samples] at SPEAKER_RATE_HZ."""
        return np.round(self.player.wave * 32767).astype(np.int16)

    @property
    def ledger(self) -> dict[str, Any] | None:
        """Return the parts of the time to first audio, if the server reports them."""
        return (self.response.get("parley") or {}).get("ledger")

    @property
    def ttfa_s(self) -> float | None:
        """Return the seconds from ``begun_s`` to the first audible sound; None if there was none."""
        audible_s = self.player.audible_s
        return None if audible_s is None else audible_s - self.begun_s

    @property
    def error(self) -> str | None:
        """Return the server's reason if the response failed, otherwise None. ``text`` then has the part before."""
        if self.status != "failed":
            return None
        details = (self.response.get("status_details") or {}).get("error") or {}
        return str(details.get("message") or "the response failed")

    @property
    def complete(self) -> bool:
        """Whether the response is complete, or has reached its maximum length, and was audible."""
        cut = (self.response.get("status_details") or {}).get("reason") == "max_output_tokens"
        return (self.status == "completed" or cut) and self.ttfa_s is not None

    def take(self, event: TextDelta | AudioDelta | CallDone | ResponseDone, now_s: float) -> None:
        """Add the next event of the response."""
        match event:
            case TextDelta(delta=text):
                self.text += text
            case AudioDelta():
                self.item_id = event.item_id
                self.player.receive(now_s, event.pcm.astype(np.float32) / np.float32(32768))
            case CallDone():
                self.calls.append(event)
            case ResponseDone(response=response):
                self.status = event.status
                self.response = response
                self._ended.set()

    def fail(self, error: Exception) -> None:
        """Mark the response as failed. Only the first error counts, and only before the end."""
        if not self._ended.is_set():
            self.failure = self.failure or error
            self._ended.set()
