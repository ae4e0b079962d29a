"""A response of ``/v1/responses``, sent as events or as one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.http.live import Write, server_sent_event
from app.http.question import EngineCall
from app.http_errors import HttpRefusal
from app.responses.events import Event, GrowingResponse
from app.responses.figures import Figures
from engine import Output

_CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}
"""Error codes of a failed response by HTTP status; all others are ``server_error``."""

Keep = Callable[[EngineCall, GrowingResponse], None]


class ResponseTeller:
    """Reports one response of ``/v1/responses``.

    With ``write`` the response is sent as events; with ``keep`` it is stored before the last event.
    """

    def __init__(self, head: dict[str, Any], keep: Keep | None, asked: EngineCall, write: Write | None = None) -> None:
        self.growing = GrowingResponse(head)
        self._keep = keep
        self._asked = asked
        self._write = write

    @property
    def begun(self) -> bool:
        return self.growing.begun

    async def take(self, chunk: Output) -> None:
        await self.emit(self.growing.take(chunk))

    async def end(self, figures: Figures) -> None:
        events = self.growing.end(figures)
        if self._keep is not None:
            self._keep(self._asked, self.growing)
        await self.emit(events)

    async def fail(self, refusal: HttpRefusal) -> None:
        await self.emit(self.growing.fail(refusal.detail, _CODES.get(refusal.status_code, "server_error")))

    async def body(self, figures: Figures) -> dict[str, Any]:
        await self.end(figures)
        return self.growing.body()

    async def emit(self, events: list[Event]) -> None:
        """Send events of ``growing`` to the client if it reads a stream."""
        if self._write is not None:
            for event in events:
                await self._write(server_sent_event(event, event["type"]))
