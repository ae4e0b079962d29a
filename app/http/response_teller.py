"""A response told as events, or whole: what the engine gives, and what the server's own tools do. Knows no request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from app.http.hosted_answer import Approved
from app.http.hosted_items import HostedCall
from app.http.live import Write
from app.http.question import Asked
from app.http.response_events import Event, GrowingResponse
from app.http.trouble import HttpRefusal
from app.mcp import CallResult, HostedTool, ToolServerError
from app.responses.figures import Figures
from engine import Message, Output

Keep = Callable[[Asked, GrowingResponse], None]


class ResponseTeller:
    """One answer, told as events where there is a ``write``; kept, where there is a ``keep``, before its last event."""

    def __init__(self, head: dict[str, Any], keep: Keep | None, asked: Asked, write: Write | None = None) -> None:
        self._growing = GrowingResponse(head)
        self._keep = keep
        self._asked = asked
        self._write = write

    @property
    def begun(self) -> bool:
        return self._growing.begun

    async def take(self, chunk: Output) -> None:
        await self._emit(self._growing.take(chunk))

    async def end(self, figures: Figures) -> None:
        events = self._growing.end(figures)
        if self._keep is not None:
            self._keep(self._asked, self._growing)
        await self._emit(events)

    async def fail(self, refusal: HttpRefusal) -> None:
        await self._emit(self._growing.fail(refusal))

    async def body(self, figures: Figures) -> dict[str, Any]:
        await self.end(figures)
        return self._growing.body()

    @property
    def transcript(self) -> str | None:
        return self._growing.transcript

    async def listing(self, server_label: str) -> None:
        await self._emit(self._growing.listing(server_label))

    async def listed(self, tools: tuple[HostedTool, ...], error: ToolServerError | None = None) -> None:
        await self._emit(self._growing.listed(tools, error))

    def offer(self, tools: Sequence[HostedTool]) -> None:
        self._growing.hosted = {tool.function: tool for tool in tools}

    async def approved(self, tool: HostedTool, approval: Approved) -> None:
        await self._emit(self._growing.approved(tool, approval.arguments, approval.request_id))

    @property
    def due(self) -> Sequence[HostedCall]:
        return self._growing.due

    async def ran(self, call: HostedCall, result: CallResult) -> None:
        await self._emit(self._growing.ran(call, result))

    @property
    def waits(self) -> bool:
        return self._growing.waits

    def messages(self) -> tuple[Message, ...]:
        return self._growing.messages()

    async def _emit(self, events: list[Event]) -> None:
        if self._write is not None:
            for event in events:
                head = f"event: {event['type']}\ndata: ".encode()
                await self._write(head + orjson.dumps(event) + b"\n\n")
