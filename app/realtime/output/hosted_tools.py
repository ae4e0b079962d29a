"""The tools of one session that the server runs: the listed tools of MCP servers, and the tools of the memory.

Calls run in parallel to the responses. A call may outlive the response that requested it: its result becomes part of an
item, which later prompts contain. As in the protocol, the client requests the response to it, unless the tool's
settings say otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from app.facts import SessionMemory
from app.ids import new_id
from app.mcp import (
    MOST_CALLS,
    MOST_SERVERS,
    CallResult,
    HostedTool,
    ToolServer,
    ToolServerError,
    ToolServers,
    functions_of,
)
from app.realtime.conversation import Conversation, OfferedTools, report_tool_servers
from app.realtime.output.pending_calls import PendingCalls
from app.realtime.protocol import (
    ApprovalRequestItem,
    ApprovalResponseItem,
    CallItem,
    HostedCallError,
    HostedCallItem,
    ResponseOptions,
    ServerEvent,
    ToolListItem,
    ToolOptions,
    server_events,
    tool_options,
)
from app.refusal import Refusal
from app.telemetry import log, log_failure

T = TypeVar("T")


@dataclass(slots=True)
class _Served:
    """A server, and its tools once they are listed."""

    server: ToolServer
    tools: tuple[HostedTool, ...] = ()
    begun: bool = False


@dataclass(frozen=True, slots=True)
class Hosting:
    """The MCP tools of one response by their names in its prompt.

    ``run`` starts a complete call, and ``began`` records one that the client runs. Their last argument is whether the
    model spoke before the call.
    """

    functions: Mapping[str, HostedTool]
    run: Callable[[HostedCallItem, server_events.OutputItemRef, str | None, bool], None]
    began: Callable[[CallItem, ResponseOptions, bool], None]


class HostedTools:
    """The MCP tools of one session. ``emit`` never waits. At most MOST_CALLS lists and calls run at a time."""

    def __init__(
        self,
        session_id: str,
        servers: ToolServers,
        conversation: Conversation,
        calls: PendingCalls,
        memory: SessionMemory,
        emit: Callable[[ServerEvent], None],
    ) -> None:
        self.tool_options = ToolOptions()
        """The session's settings for tools."""
        self._memory = memory
        self._session_id = session_id
        self._servers = servers
        self._conversation = conversation
        self._calls = calls
        self._emit = emit
        self._served: dict[str, _Served] = {}
        self._unserved: tuple[str, ...] = ()
        self._under_way: set[asyncio.Task[None]] = set()
        self._answering: set[str] = set()  # running calls whose result the model speaks about
        self._group: asyncio.TaskGroup | None = None

    def read(self, offer: OfferedTools) -> tuple[tuple[ToolServer, ...], tuple[str, ...]]:
        """Return the servers in a client's tools, and the labels of those that the operator did not configure. Raises
        Refusal.
        """
        served = [(i, tree) for i, tree in offer.entries if self._servers.names(tree)]
        servers = tuple(self._servers.read(tree, f"session.tools[{i}]") for i, tree in served)
        for server, (i, _) in zip(servers, served, strict=True):
            tool_options(self.tool_options, server.entry.parley, f"session.tools[{i}].parley")
        labels = {server.entry.server_label for server in servers}
        if len(labels) < len(servers):
            raise Refusal("invalid_value", "Two MCP servers have the same server_label.", "session.tools")
        if len(servers) > MOST_SERVERS:
            raise Refusal("invalid_value", f"A session can use at most {MOST_SERVERS} MCP servers.", "session.tools")
        return servers, tuple(label for label in offer.servers if label not in labels)

    def configure(self, servers: Sequence[ToolServer], unserved: Sequence[str]) -> None:
        """Set the servers. ``list_new`` lists the tools of new or changed ones, and reports ``unserved`` ones as
        failed.
        """
        self._unserved = tuple(unserved)
        before = self._served
        self._served = {}
        for server in servers:
            known = before.get(server.entry.server_label)
            same = known is not None and known.server.entry == server.entry
            self._served[server.entry.server_label] = known if same and known is not None else _Served(server)

    def start(self, group: asyncio.TaskGroup) -> None:
        """List tools and run calls in ``group`` from now on."""
        self._group = group
        self.list_new()

    def leave(self) -> None:
        """Cancel everything when the client has left."""
        for task in self._under_way:
            task.cancel()

    @property
    def shown(self) -> tuple[dict[str, Any], ...]:
        """Return the servers as the client sees them among its tools."""
        return tuple(one.server.entry.shown for one in self._served.values())

    def listed(self) -> tuple[HostedTool, ...]:
        """Return the tools of the memory, and all of MCP servers that were listed so far."""
        return (*self._memory.tools, *(tool for one in self._served.values() for tool in one.tools))

    def hosting(self, taken: Sequence[str], labels: Sequence[str] | None = None) -> Hosting:
        """Return the tools of a response whose other functions are ``taken``; with ``labels``, only those servers'
        tools.
        """
        tools = [one for one in self.listed() if labels is None or one.server.entry.server_label in labels]
        return Hosting(functions_of(tools, taken), self.run, self.began)

    def run(
        self, item: HostedCallItem, ref: server_events.OutputItemRef, previous_id: str | None, introduced: bool = False
    ) -> None:
        """Run a call that the LLM requested. The item receives the result.

        ``introduced``: whether the model spoke before the call.
        """
        if self._options_of(item).answer:
            self._answering.add(item.id)
        self._begin(self._call(item, ref, previous_id, introduced), f"mcp-call:{item.id}")

    @property
    def will_answer(self) -> bool:
        """Whether the model will speak about the result of a running call without a request."""
        return bool(self._answering)

    def began(self, item: CallItem, options: ResponseOptions, introduced: bool) -> None:
        """Record a call that the client runs."""
        patch = next((tool.parley for tool in options.tools if tool.name == item.name), None)
        self._calls.began(item.call_id, tool_options(options.parley.tools, patch), False, introduced)

    def checked(self, response: ApprovalResponseItem) -> ApprovalResponseItem:
        """Return a reply with its approval request. Raises Refusal if the request is unknown or already answered."""
        items, id = self._conversation.items, response.approval_request_id
        request = next((one for one in items if isinstance(one, ApprovalRequestItem) and one.id == id), None)
        if request is None:
            raise Refusal("invalid_value", f"Unknown approval request {id!r}.", "item.approval_request_id")
        if any(isinstance(one, ApprovalResponseItem) and one.approval_request_id == id for one in items):
            message = f"The approval request {id!r} has already been answered."
            raise Refusal("invalid_value", message, "item.approval_request_id")
        return replace(response, request=request)

    def answered(self, response: ApprovalResponseItem) -> None:
        """Run an approved call. Raises Refusal if the conversation is full."""
        request = response.request
        if request is None or not response.approve:
            return
        item = HostedCallItem(
            id=new_id("mcp"),
            server_label=request.server_label,
            name=request.name,
            function=request.function,
            arguments=request.arguments,
            approval_request_id=request.id,
            status="completed",
        )
        previous = self._conversation.add(item)
        self._emit(server_events.HostedCallApprovedEvent(item, previous))
        self.run(item, server_events.OutputItemRef("", item.id, 0, True, False), previous)

    def list_new(self) -> None:
        """Start to request the tool list of each new MCP server, in an item of the conversation.

        Does nothing for them before ``start``. Stops once the conversation is full.
        """
        report_tool_servers(self._unserved, self._conversation, self._emit, self._session_id)
        self._unserved = ()
        for one in self._served.values():
            if self._group is None or one.begun:
                continue
            item = ToolListItem(id=new_id("mcpl"), server_label=one.server.entry.server_label)
            try:
                previous = self._conversation.add(item)
            except Refusal:
                return
            one.begun = True
            self._emit(server_events.ToolListBegunEvent(item, previous))
            self._begin(self._list(one, item, previous), f"mcp-list:{item.id}")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        assert self._group is not None
        task = self._group.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _check_number(self) -> None:
        if len(self._under_way) > MOST_CALLS:
            raise ToolServerError("Too many MCP requests are in progress in this session.")

    async def _list(self, one: _Served, item: ToolListItem, previous: str | None) -> None:
        failed = False
        try:
            self._check_number()
            one.tools = await self._guarded(one.server.list_tools())
            item = replace(item, tools=tuple(tool.shown for tool in one.tools))
            self._conversation.check_room(sum(tool.size for tool in one.tools))
        except (ToolServerError, Refusal) as error:
            one.tools = ()
            item = replace(item, tools=())
            failed = True
            log("session.mcp_failed", session=self._session_id, server=item.server_label, reason=str(error)[:200])
        self._conversation.put(item)
        self._emit(server_events.ToolListDoneEvent(item, previous, failed))

    async def _call(
        self, item: HostedCallItem, ref: server_events.OutputItemRef, previous: str | None, introduced: bool
    ) -> None:
        self._emit(server_events.HostedCallBegunEvent(ref))
        try:
            self._check_number()
            result = await self._result(item, introduced)
            self._conversation.check_room(len(result.text))
        except ToolServerError as error:
            result = CallResult(error=error)
        except Refusal as full:
            result = CallResult(error=ToolServerError(str(full)))
        error = result.error and HostedCallError(result.error.kind, result.error.code, str(result.error))
        done = replace(item, output=result.output, error=error)
        self._conversation.put(done)
        self._emit(server_events.HostedCallDoneEvent(ref, done, previous))
        self._answering.discard(item.id)
        self._calls.returned(item.id)

    async def _result(self, item: HostedCallItem, introduced: bool) -> CallResult:
        """Call the tool. Raises ToolServerError, also if the user's next turn cancels the call."""
        tool, options = self._tool(item), self._options_of(item)
        try:
            async with asyncio.timeout(None) as deadline:
                cancel = partial(deadline.reschedule, 0.0)
                self._calls.began(item.id, options, True, introduced, cancel)
                return await self._guarded(tool.call(item.arguments))
        except TimeoutError:
            raise ToolServerError("The call was cancelled, because the user has moved on.") from None

    async def _guarded(self, work: Awaitable[T]) -> T:
        """Return the result of a server's work. A bug in it fails only this work: it raises ToolServerError."""
        try:
            return await work
        except ToolServerError:
            raise
        except Exception:  # noqa: BLE001 - a bug of ours must not end the session, and is logged with its place
            log_failure("session.mcp_bug", session=self._session_id)
            raise ToolServerError("The server failed at this request; the session continues.") from None

    def _options_of(self, item: HostedCallItem) -> ToolOptions:
        entries = [one.server.entry for one in self.listed()]
        patch = next((entry.parley for entry in entries if entry.server_label == item.server_label), None)
        return tool_options(self.tool_options, patch)

    def _tool(self, item: HostedCallItem) -> HostedTool:
        """Return the called tool. Raises ToolServerError if the client has removed it meanwhile."""
        wanted = (item.server_label, item.name)
        found = [one for one in self.listed() if (one.server.entry.server_label, one.name) == wanted]
        if not found:
            raise ToolServerError(f"The tool {item.name} is no longer part of the session.")
        return found[0]
