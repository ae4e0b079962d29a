"""A client's entry for an MCP server: its URL, credentials, allowed tools, and the tools that need approval.

Source: openai-python ``types/realtime/realtime_tools_config_union.Mcp``; Responses has the same. Sans-I/O.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from app.refusal import Refusal

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e]{0,8192}")
_MOST_HEADERS = 32
_OURS = {
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
"""Headers that belong to the transport: clients can't set them."""
_THEIR_PREFIXES = ("mcp-", "proxy-")

Names = Annotated[list[Annotated[str, Meta(max_length=128)]], Meta(max_length=128)]
Label = Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_-]{0,63}$")]


class ToolFilter(Struct, frozen=True):
    """Selects tools of a server. ``read_only`` relies on the server's own annotation."""

    tool_names: Names | None = None
    read_only: bool | None = None

    def matches(self, name: str, read_only: bool) -> bool:
        return (self.tool_names is None or name in self.tool_names) and self.read_only in (None, read_only)


class Approval(Struct, frozen=True):
    always: ToolFilter | None = None
    never: ToolFilter | None = None

    def needed(self, name: str, read_only: bool) -> bool:
        """Return whether a tool needs approval. If neither filter matches, it does, unless only ``always`` is set."""
        if self.always is not None and self.always.matches(name, read_only):
            return True
        if self.never is not None:
            return not self.never.matches(name, read_only)
        return self.always is None


class ToolServerEntry(Struct, frozen=True):
    """A client's entry. It contains credentials, so it is never logged or returned; ``shown`` leaves them out."""

    server_label: Label
    server_url: Annotated[str, Meta(max_length=2048)]
    server_description: Annotated[str, Meta(max_length=4096)] | None = None
    authorization: Annotated[str, Meta(max_length=8192)] | None = None
    headers: dict[str, str] | None = None
    allowed_tools: Names | ToolFilter | None = None
    require_approval: Literal["always", "never"] | Approval | None = None
    parley: dict[str, Any] | None = None
    """Ours: settings of its tools in a session, which the session checks."""

    @property
    def sent_headers(self) -> dict[str, str]:
        """Return the client's headers, including its credentials."""
        key = {"authorization": f"Bearer {self.authorization}"} if self.authorization else {}
        return {**(self.headers or {}), **key}

    def allows(self, name: str, read_only: bool) -> bool:
        match self.allowed_tools:
            case None:
                return True
            case ToolFilter():
                return self.allowed_tools.matches(name, read_only)
            case names:
                return name in names

    def needs_approval(self, name: str, read_only: bool) -> bool:
        """Return whether the client must approve calls of a tool; by default always."""
        match self.require_approval:
            case Approval():
                return self.require_approval.needed(name, read_only)
            case asked:
                return asked != "never"

    @property
    def shown(self) -> dict[str, Any]:
        """Return the entry for the client, without credentials."""
        tree: dict[str, Any] = msgspec.to_builtins(self)
        kept = {name: value for name, value in tree.items() if value is not None}
        return {"type": "mcp", **{name: value for name, value in kept.items() if name not in _SECRET}}


_SECRET = ("authorization", "headers")


def read_entry(tree: dict[str, Any], path: str) -> ToolServerEntry:
    """Validate an entry. Raises Refusal, which names the field."""
    for field in ("connector_id", "tunnel_id"):
        if tree.get(field) is not None:
            raise Refusal("unsupported_parameter", f"{path}.{field} is unsupported: set server_url.", f"{path}.{field}")
    try:
        entry = msgspec.convert(tree, ToolServerEntry)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        field = f"{path}{where.rstrip('`')}"
        raise Refusal("invalid_value", f"{what} in {field}.", field) from None
    _check_headers(entry, path)
    return entry


def _check_headers(entry: ToolServerEntry, path: str) -> None:
    headers = entry.headers or {}
    if len(headers) > _MOST_HEADERS:
        raise Refusal("invalid_value", f"{path}.headers has more than {_MOST_HEADERS} entries.", f"{path}.headers")
    for name, value in headers.items():
        low = name.lower()
        if not _HEADER.fullmatch(name) or low in _OURS or low.startswith(_THEIR_PREFIXES):
            message = f"{path}.headers: {name[:40]!r} is not a header that clients may set."
            raise Refusal("invalid_value", message, f"{path}.headers")
        if not _VALUE.fullmatch(value):
            message = f"{path}.headers: the value of {name[:40]!r} is not a valid header value."
            raise Refusal("invalid_value", message, f"{path}.headers")
    if entry.authorization and any(name.lower() == "authorization" for name in headers):
        message = f"{path}: set authorization once, as a field or as a header."
        raise Refusal("invalid_value", message, f"{path}.authorization")
    if entry.authorization and not _VALUE.fullmatch(entry.authorization):
        raise Refusal("invalid_value", f"{path}.authorization is not a valid header value.", f"{path}.authorization")
