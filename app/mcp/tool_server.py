"""The operator's MCP servers as a client uses them: their tools, and calls of the tools.

Everything a server sends is limited and checked here, so that both protocols can pass it on. Knows neither protocol.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import httpx2
import orjson

from app.mcp.entry import ToolServerEntry, read_entry
from app.mcp.transport import resolve, trusted
from app.mcp.trouble import ToolServerError
from app.refusal import Refusal
from app.settings import McpServer
from app.telemetry import audit
from engine import ToolDefinition

if TYPE_CHECKING:
    from mcp_types import CallToolResult
    from mcp_types import Tool as ServedTool

MOST_SERVERS = 8
"""Maximum number of servers of one client."""
MOST_TOOLS = 64
"""Maximum number of tools of one server: each is part of the prompt of every answer."""
MOST_LISTED = 64 << 10
"""Maximum bytes of the names, descriptions and schemas of one server's tools."""
MOST_OUTPUT = 64 << 10
"""Maximum characters of a result, since the LLM has to read it. A longer one is reported to it as an error."""
MOST_VISITS = 64
"""Maximum simultaneous visits of all clients to all servers; each may hold as many bytes as a server may send."""
MOST_CALLS = 16
"""Maximum number of calls in one answer. After that, the LLM must answer with the results so far."""

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")


class ToolProvider(Protocol):
    """Runs tools: an MCP server for one client, or a part of this server."""

    @property
    def entry(self) -> ToolServerEntry: ...

    async def call(self, name: str, arguments: str) -> CallResult: ...


@dataclass(frozen=True, slots=True)
class HostedTool:
    """A tool of a server. ``function`` is its name in the prompt."""

    server: ToolProvider
    name: str
    function: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]
    size: int

    @property
    def needs_approval(self) -> bool:
        return self.server.entry.needs_approval(self.name, self.read_only)

    @property
    def read_only(self) -> bool:
        return self.annotations.get("readOnlyHint") is True

    @property
    def tool(self) -> ToolDefinition:
        """Return the function definition for the prompt."""
        return ToolDefinition(self.function, self.description, self.input_schema)

    @property
    def shown(self) -> dict[str, Any]:
        """Return the tool as the protocols list it."""
        head = {"name": self.name, "description": self.description, "input_schema": self.input_schema}
        return {**head, "annotations": self.annotations or None}

    async def call(self, arguments: str) -> CallResult:
        return await self.server.call(self.name, arguments)


@dataclass(frozen=True, slots=True)
class CallResult:
    """The output of a call, or its error."""

    output: str | None = None
    error: ToolServerError | None = None

    @property
    def text(self) -> str:
        """Return the result as text for the LLM."""
        return self.output or "" if self.error is None else f"Error: {self.error}"


class Visits:
    """Counts the active visits."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def one(self) -> Generator[None]:
        """Count one visit while the block lasts. Raises ToolServerError if there are too many."""
        if self.count >= MOST_VISITS:
            raise ToolServerError("Too many requests to MCP servers are in progress; try again later.")
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class ToolServer:
    """One server for one client. Its address is resolved at the first visit and then kept."""

    def __init__(self, entry: ToolServerEntry, setting: McpServer, visits: Visits) -> None:
        self.entry = entry
        self._setting = setting
        self._visits = visits
        self._address: str | None = None

    async def list_tools(self) -> tuple[HostedTool, ...]:
        """Return the tools that the client allows. Raises ToolServerError."""
        from app.mcp.client import list_tools

        served = await self._visit(list_tools)
        tools = {one.name: one for one in map(self._hosted, served) if self.entry.allows(one.name, one.read_only)}
        if len(tools) > MOST_TOOLS:
            raise ToolServerError(f"The MCP server has more than {MOST_TOOLS} tools; select some with allowed_tools.")
        if sum(tool.size for tool in tools.values()) > MOST_LISTED:
            raise ToolServerError(
                f"The MCP server's tools take more than {MOST_LISTED >> 10} kB; select some with allowed_tools."
            )
        audit("mcp.listed", server=self.entry.server_label, tools=len(tools))
        return tuple(tools.values())

    async def call(self, name: str, arguments: str) -> CallResult:
        """Call a tool. Errors are part of the result."""
        from app.mcp.client import call_tool

        try:
            result = await self._visit(partial(call_tool, name=name, arguments=_object(arguments)))
            outcome = CallResult(_output(result))
        except ToolServerError as error:
            outcome = CallResult(error=error)
        status = "completed" if outcome.error is None else outcome.error.kind
        audit("mcp.called", server=self.entry.server_label, status=status, characters=len(outcome.text))
        return outcome

    async def _visit(self, ask: Any) -> Any:
        from app.mcp.client import visit

        url, timeout_s = self._setting.url, self._setting.timeout_s  # as the operator wrote it, not the client
        with self._visits.one():
            if self._address is None:
                self._address = await resolve(httpx2.URL(url), self._setting.private, timeout_s)
            return await visit(url, self._address, self.entry.sent_headers, timeout_s, ask)

    def _hosted(self, served: ServedTool) -> HostedTool:
        """Convert a tool. Raises ToolServerError if it can't be part of a prompt."""
        if not _NAME.fullmatch(served.name):
            raise ToolServerError("The MCP server has a tool with an invalid name.")
        if served.input_schema.get("type") != "object":
            raise ToolServerError(f"The MCP server's tool {served.name!r} needs an input schema of type 'object'.")
        annotations = (
            {} if served.annotations is None else served.annotations.model_dump(by_alias=True, exclude_none=True)
        )
        description = served.description or ""
        size = len(served.name) + len(description) + len(_json([served.input_schema, annotations]))
        return HostedTool(
            self, served.name, _function(served.name), description, served.input_schema, annotations, size
        )


class ToolServers:
    """The MCP servers that the operator configured (``server.mcp``)."""

    def __init__(self, named: tuple[McpServer, ...] = ()) -> None:
        self._named = {_place(one.url): one for one in named}
        self._visits = Visits()
        if named:  # import the SDK now, which takes a second, not while clients speak
            import_module("app.mcp.client")
            trusted()

    @property
    def visits(self) -> int:
        """Return the number of active visits of all clients."""
        return self._visits.count

    def read(self, tree: dict[str, Any], path: str) -> ToolServer:
        """Return the server of a client's entry. Raises Refusal if it is invalid or not configured by the operator."""
        entry = read_entry(tree, path)
        if (setting := self._setting(entry.server_url)) is None:
            message = f"{path}.server_url is not allowed: the operator must add the MCP server to server.mcp."
            raise Refusal("unsupported_value", message, f"{path}.server_url")
        return ToolServer(entry, setting, self._visits)

    def names(self, tree: dict[str, Any]) -> bool:
        """Return whether the operator configured a server with the entry's URL."""
        url = tree.get("server_url")
        return isinstance(url, str) and self._setting(url) is not None

    def _setting(self, url: str) -> McpServer | None:
        try:
            return self._named.get(_place(url))
        except httpx2.InvalidURL:
            return None


def functions_of(tools: Iterable[HostedTool], taken: Iterable[str]) -> Mapping[str, HostedTool]:
    """Return tools by their names in the prompt. A ``taken`` name gets the server's label as a prefix."""
    known, functions = set(taken), dict[str, HostedTool]()
    for tool in tools:
        for name in (tool.function, _function(f"{tool.server.entry.server_label}_{tool.name}")):
            if name not in known:
                known.add(name)
                functions[name] = replace(tool, function=name)
                break
    return functions


def _function(name: str) -> str:
    """Return a name that every LLM accepts."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def _place(text: str) -> tuple[str, str, int | None, bytes]:
    """Normalise a URL for comparison. Raises httpx2.InvalidURL."""
    url = httpx2.URL(text)
    if url.userinfo or url.fragment or not url.host:
        raise httpx2.InvalidURL("the URL of an MCP server must have a host, no user and no fragment")
    return url.scheme, url.host, url.port, url.raw_path.rstrip(b"/")


def _object(arguments: str) -> dict[str, object]:
    """Decode a call's arguments. Raises ToolServerError if they are not a JSON object."""
    try:
        made: object = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        made = None
    if not isinstance(made, dict):
        raise ToolServerError("The arguments of the call are not a JSON object.", code=-32602)
    return made


def _json(tree: Any) -> bytes:
    """Encode a part of an MCP server's response as JSON.

    Raises ToolServerError for values that can't be encoded, such as a number beyond 64 bits.
    """
    try:
        return orjson.dumps(tree)
    except TypeError as error:
        raise ToolServerError(
            f"The MCP server's response contains a value that can't be encoded as JSON: {error}."
        ) from None


def _output(result: CallToolResult) -> str:
    """Return a result as text. Raises ToolServerError if it is an error, or too long."""
    pieces = [block.text if block.type == "text" else f"[{block.type}]" for block in result.content]
    if not pieces and result.structured_content is not None:
        pieces = [_json(result.structured_content).decode()]
    text = "\n".join(pieces)
    if len(text) > MOST_OUTPUT:
        raise ToolServerError(
            f"The result has {len(text)} characters (the limit is {MOST_OUTPUT}).", "tool_execution_error"
        )
    if result.is_error:
        raise ToolServerError(text or "The tool failed.", "tool_execution_error")
    return text
