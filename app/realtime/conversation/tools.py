"""The tools that a client offers: functions, which the client runs, and MCP servers.

MCP servers are used if the operator has configured them; others are reported as failed, as in the protocol. Other types
of tools are refused with one sentence, and the rest of the event applies. Stateless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, cast

from app.ids import new_id
from app.realtime.conversation.conversation import Conversation
from app.realtime.protocol import ServerEvent, ToolListItem, server_events
from app.refusal import Refusal
from app.telemetry import log

MOST_SERVERS = 32
"""Maximum number of MCP servers: each causes four events. Further ones are ignored."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Settings with functions as their only tools, and the tools that were removed."""

    patch: dict[str, Any]
    servers: tuple[str, ...] = ()
    """Labels of MCP servers."""
    entries: tuple[tuple[int, dict[str, Any]], ...] = ()
    """Entries of MCP servers, with their indexes in the list of tools."""
    refusal: Refusal | None = None
    """The refusal of other types of tools, raised after the rest was applied."""


def functions_only(patch: dict[str, Any], path: str) -> OfferedTools:
    """Return ``patch`` without the tools that the client does not run. Invalid tools stay, to be refused later."""
    tools = patch.get("tools")
    if not isinstance(tools, list):
        return OfferedTools(_with_choice(patch))
    kinds = [_kind(tool) for tool in cast("list[Any]", tools)]
    kept = [tool for tool, kind in zip(cast("list[Any]", tools), kinds, strict=True) if kind == "function"]
    labels = (
        str(tool.get("server_label") or "")[:200]
        for tool, kind in zip(cast("list[Any]", tools), kinds, strict=True)
        if kind == "mcp"
    )
    servers = tuple(dict.fromkeys(labels))[:MOST_SERVERS]
    entries = ((i, tool) for i, tool in enumerate(cast("list[Any]", tools)) if kinds[i] == "mcp")
    return OfferedTools(
        _with_choice({**patch, "tools": kept}), servers, tuple(entries)[:MOST_SERVERS], _refusal(kinds, path)
    )


def check_tool_choice(choice: str, functions: Collection[str], hosted: bool = False) -> None:
    """Raise Refusal unless ``choice`` is ``auto``, ``none``, one of these functions or, with any tool, ``required``.

    ``hosted``: whether there are also tools of MCP servers.
    """
    if choice == "required" and not functions and not hosted:
        raise Refusal("invalid_value", "tool_choice is 'required', but tools is empty.", "tool_choice")
    if choice not in ("auto", "none", "required", *functions):
        message = f"tool_choice names the function {choice[:100]!r}, which is not in tools."
        raise Refusal("invalid_value", message, "tool_choice")


def report_tool_servers(
    servers: tuple[str, ...], conversation: Conversation, emit: Callable[[ServerEvent], None], session_id: str
) -> None:
    """Add a failed tool list to the conversation, and to the client's events, for each MCP server that has none yet.

    Stops at the first that the conversation has no room for.
    """
    listed = {item.server_label for item in conversation.items if isinstance(item, ToolListItem)}
    for label in servers:
        if label in listed:
            continue
        log("session.mcp_not_served", session=session_id)
        item = ToolListItem(id=new_id("mcpl"), server_label=label)
        try:
            previous_id = conversation.add(item)
        except Refusal:
            return
        emit(server_events.ToolListBegunEvent(item, previous_id))
        emit(server_events.ToolListDoneEvent(item, previous_id, failed=True))


def _kind(tool: Any) -> str:
    kind: Any = cast("dict[str, Any]", tool).get("type", "function") if isinstance(tool, dict) else "function"
    return kind if isinstance(kind, str) else "function"


def _with_choice(patch: dict[str, Any]) -> dict[str, Any]:
    """Replace the choice of a removed tool with "auto"."""
    choice = patch.get("tool_choice")
    if isinstance(choice, dict) and _kind(choice) != "function":
        return {**patch, "tool_choice": "auto"}
    return patch


def _refusal(kinds: list[str], path: str) -> Refusal | None:
    unknown = [(i, kind) for i, kind in enumerate(kinds) if kind not in ("function", "mcp")]
    if not unknown:
        return None
    first, named = unknown[0][0], ", ".join(dict.fromkeys(repr(kind[:40]) for _, kind in unknown[:8]))
    message = f"Tools of type {named} are not supported: use 'function' or 'mcp'. The other settings were applied."
    return Refusal("invalid_value", message, f"{path}.tools[{first}].type")
