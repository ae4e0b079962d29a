"""A response that may call tools of MCP servers: this server lists the tools, runs the calls and continues.

One response takes several engine requests, each with the results so far, all in the task of the HTTP request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from app.http.answering import admitted, run
from app.http.question import EngineCall, with_transcript
from app.http.response_teller import ResponseTeller
from app.http_errors import HttpRefusal
from app.mcp import CallResult, HostedTool, ToolServer, ToolServerError, functions_of
from app.responses.figures import Figures
from app.service import Service
from app.tracing import traced_tool


@dataclass(frozen=True, slots=True)
class Approved:
    """A tool call that the client approved, and the id of the item that requested the approval."""

    request_id: str
    server_label: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class HostedToolAccess:
    """The MCP servers of a response, and its approved calls."""

    servers: tuple[ToolServer, ...] = ()
    approvals: tuple[Approved, ...] = ()
    most_calls: int = 0

    async def answer(self, service: Service, asked: EngineCall, teller: ResponseTeller) -> Figures:
        """Produce the response with the MCP servers' tools. It counts as one answer, starting with the tool listing.

        Once a call has run, the response waits for a slot as long as necessary: a refused client would retry, and the
        call would run twice. Raises like ``answering.answer``, and HttpRefusal (424) if a server can't list its tools.
        """
        with admitted(service, asked.model, asked.request.id) as figures:
            await self._answer(service, asked, teller, figures)
        return figures

    async def _answer(self, service: Service, asked: EngineCall, teller: ResponseTeller, figures: Figures) -> None:
        growing, own = teller.growing, asked.request.tools
        growing.hosted = functions_of(await self._listed(teller), {tool.name for tool in own})
        for approval in self.approvals:
            tool = _approved(growing.hosted.values(), approval)
            await teller.emit(growing.approved(tool, approval.arguments, approval.request_id))
        left = await _run(teller, growing.hosted, self.most_calls)
        request = replace(asked.request, tools=(*own, *(tool.tool for tool in growing.hosted.values())))
        for n in range(self.most_calls + 1):
            messages = with_transcript(tuple(asked.request.messages), growing.transcript)
            round = replace(request, id=f"{asked.request.id}_{n}", messages=(*messages, *growing.messages()))
            if not left:  # no calls left: answer with the results so far
                round = replace(round, tools=own, tool_choice=round.tool_choice if own else "auto")
            called = left < self.most_calls
            await run(service, asked.model, round, teller.take, figures, patient=called)
            if not growing.due:
                break
            left = await _run(teller, growing.hosted, left)
            if growing.waits:
                break
            request = replace(request, tool_choice="auto" if request.tool_choice != "none" else "none")

    async def _listed(self, teller: ResponseTeller) -> list[HostedTool]:
        found: list[HostedTool] = []
        for server in self.servers:
            label = server.entry.server_label
            await teller.emit(teller.growing.listing(label))
            try:
                tools = await server.list_tools()
            except ToolServerError as error:
                await teller.emit(teller.growing.listed((), error))
                message = f"Error retrieving tool list from MCP server {label!r}: {error}"
                raise HttpRefusal(424, "external_connector_error", message, "tools") from None
            await teller.emit(teller.growing.listed(tools))
            found += tools
        return found


async def _run(teller: ResponseTeller, tools: Mapping[str, HostedTool], left: int) -> int:
    """Run the pending calls in order. Returns how many further calls are allowed."""
    for call in teller.growing.due:
        if left:
            left -= 1
            with traced_tool(call.name, call.id, call.server_label) as fail:
                result = await tools[call.function].call(call.arguments)
                if result.error is not None:
                    fail(result.error.kind)
        else:
            result = CallResult(error=ToolServerError("The limit of tool calls for this response is reached."))
        await teller.emit(teller.growing.ran(call, result))
    return left


def _approved(tools: Iterable[HostedTool], approval: Approved) -> HostedTool:
    wanted = (approval.server_label, approval.name)
    found = [one for one in tools if (one.server.entry.server_label, one.name) == wanted]
    if not found:
        message = f"The approved tool {approval.name[:100]!r} is not in tools: add its MCP server."
        raise HttpRefusal(400, "invalid_value", message, "input")
    return found[0]
