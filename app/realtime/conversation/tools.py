"""The tools that a client offers: functions, which it runs itself; every other kind the server would have to run.

None of those is served. An MCP server is told to have failed, as the protocol has it, other kinds are refused in one
sentence, and whatever came with them holds. Stateless.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from app.ids import new_id
from app.realtime.conversation.conversation import Conversation
from app.realtime.protocol import ServerEvent, ToolListItem, ToolServerFailed
from app.refusal import Refusal
from app.telemetry import log

MOST_SERVERS = 32
"""Each costs four events; those beyond are not told."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Settings whose tools are functions only, and the tools that were left out of them."""

    patch: dict[str, Any]
    servers: tuple[str, ...] = ()
    """The labels of MCP servers."""
    refusal: Refusal | None = None
    """The refusal of other kinds of tools, for once the rest was obeyed."""


def functions_only(patch: dict[str, Any], path: str) -> Offer:
    """``patch`` without the tools that the client does not run itself; what is no tool at all is left to be refused."""
    tools = patch.get("tools")
    if not isinstance(tools, list):
        return Offer(_with_choice(patch))
    kinds = [_kind(tool) for tool in cast("list[Any]", tools)]
    kept = [tool for tool, kind in zip(cast("list[Any]", tools), kinds, strict=True) if kind == "function"]
    labels = (
        str(tool.get("server_label") or "")[:200]
        for tool, kind in zip(cast("list[Any]", tools), kinds, strict=True)
        if kind == "mcp"
    )
    servers = tuple(dict.fromkeys(labels))[:MOST_SERVERS]
    return Offer(_with_choice({**patch, "tools": kept}), servers, _refusal(kinds, path))


def report_tool_servers(
    servers: tuple[str, ...], conversation: Conversation, emit: Callable[[ServerEvent], None], session_id: str
) -> None:
    """MCP servers are not asked for their tools: each is told once to have failed, while there is room for its list."""
    listed = {item.server_label for item in conversation.items if isinstance(item, ToolListItem)}
    for label in servers:
        if label in listed:
            continue
        log("session.mcp_not_served", session=session_id)
        item = ToolListItem(id=new_id("mcpl"), server_label=label)
        try:
            emit(ToolServerFailed(item, conversation.add(item)))
        except Refusal:
            return


def _kind(tool: Any) -> str:
    kind: Any = cast("dict[str, Any]", tool).get("type", "function") if isinstance(tool, dict) else "function"
    return kind if isinstance(kind, str) else "function"


def _with_choice(patch: dict[str, Any]) -> dict[str, Any]:
    """A tool that is not served can't be chosen: the model chooses."""
    choice = patch.get("tool_choice")
    if isinstance(choice, dict) and _kind(choice) != "function":
        return {**patch, "tool_choice": "auto"}
    return patch


def _refusal(kinds: list[str], path: str) -> Refusal | None:
    unknown = [(i, kind) for i, kind in enumerate(kinds) if kind not in ("function", "mcp")]
    if not unknown:
        return None
    first, named = unknown[0][0], ", ".join(dict.fromkeys(repr(kind[:40]) for _, kind in unknown[:8]))
    message = f"Tools of the type {named} are not served here, only functions that the client runs; the rest holds."
    return Refusal("invalid_value", message, f"{path}.tools[{first}].type")
