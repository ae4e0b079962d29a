"""An answer whose thinker may call tools of MCP servers: the server lists them, runs the calls, and asks on.

One response, several requests to the engine, each with the results so far; all of it in the request's own task. Knows
no event's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from app.http.answering import admitted, run
from app.http.hosted_items import HostedCall
from app.http.question import Asked, with_transcript
from app.http.trouble import HttpRefusal
from app.mcp import CallResult, HostedTool, ToolServer, ToolServerError, functions_of
from app.responses.figures import Figures
from app.service import Service
from engine import Message, Output


@dataclass(frozen=True, slots=True)
class Approved:
    """A call that the client approved: what was asked for, and by which item."""

    request_id: str
    server_label: str
    name: str
    arguments: str


class Teller(Protocol):
    """The teller of such an answer."""

    @property
    def transcript(self) -> str | None: ...

    async def take(self, chunk: Output) -> None: ...

    async def listing(self, server_label: str) -> None: ...

    async def listed(self, tools: tuple[HostedTool, ...], error: ToolServerError | None = None) -> None: ...

    def offer(self, tools: Sequence[HostedTool]) -> None:
        """Calls of these tools, by their names in the prompt, are the server's to run."""
        ...

    async def approved(self, tool: HostedTool, approval: Approved) -> None: ...

    @property
    def due(self) -> Sequence[HostedCall]:
        """The calls to run."""
        ...

    async def ran(self, call: HostedCall, result: CallResult) -> None: ...

    @property
    def waits(self) -> bool:
        """Whether it is the client's turn: to run a function, or to approve a call."""
        ...

    def messages(self) -> tuple[Message, ...]: ...


@dataclass(frozen=True, slots=True)
class HostedTools:
    """The servers that a response may ask, and the calls that were approved for it."""

    servers: tuple[ToolServer, ...] = ()
    approvals: tuple[Approved, ...] = ()
    most_calls: int = 0

    async def answer(self, service: Service, asked: Asked, teller: Teller) -> Figures:
        """Raises as ``answering.answer`` does, and HttpRefusal (424) where a server does not list its tools.

        It is one answer from its first listing on. Once a call was made it is never refused for want of a place: a
        client would ask again, and the call be made twice.
        """
        with admitted(service, asked.request.id) as figures:
            await self._answer(service, asked, teller, figures)
        return figures

    async def _answer(self, service: Service, asked: Asked, teller: Teller, figures: Figures) -> None:
        tools = await self._listed(teller)
        own = {tool.name for tool in asked.request.tools}
        functions = functions_of(tools, own)
        teller.offer(tuple(functions.values()))
        for approval in self.approvals:
            await teller.approved(_approved(tuple(functions.values()), approval), approval)
        left = await _run(teller, self.most_calls)
        offered = tuple(tool.tool for tool in functions.values())
        request = replace(asked.request, tools=(*asked.request.tools, *offered))
        for n in range(self.most_calls + 1):
            messages = with_transcript(tuple(asked.request.messages), teller.transcript)
            round = replace(request, id=f"{asked.request.id}_{n}", messages=(*messages, *teller.messages()))
            if not left:  # it has to answer with what it knows
                round = replace(round, tools=asked.request.tools)
            called = left < self.most_calls
            await run(service, round, teller.take, figures, patient=called)
            if not teller.due:
                break
            left = await _run(teller, left)
            if teller.waits:
                break
            request = replace(request, tool_choice="auto" if request.tool_choice != "none" else "none")

    async def _listed(self, teller: Teller) -> list[HostedTool]:
        found: list[HostedTool] = []
        for server in self.servers:
            label = server.entry.server_label
            await teller.listing(label)
            try:
                tools = await server.list_tools()
            except ToolServerError as error:
                await teller.listed((), error)
                message = f"Error retrieving tool list from MCP server {label!r}: {error}"
                raise HttpRefusal(424, "external_connector_error", message, "tools") from None
            await teller.listed(tools)
            found += tools
        return found


async def _run(teller: Teller, left: int) -> int:
    """Run the calls that are due, one after the other; returns how many more there may be."""
    for call in tuple(teller.due):
        if left:
            left -= 1
            result = await call.tool.call(call.arguments)
        else:
            result = CallResult(error=ToolServerError("No further call is made for this answer."))
        await teller.ran(call, result)
    return left


def _approved(tools: Sequence[HostedTool], approval: Approved) -> HostedTool:
    wanted = (approval.server_label, approval.name)
    found = [one for one in tools if (one.server.entry.server_label, one.name) == wanted]
    if not found:
        message = f"The approved call is one of {approval.name[:100]!r}, and tools has no such MCP tool."
        raise HttpRefusal(400, "invalid_value", message, "input")
    return found[0]
