"""The settings and items from which one response is made."""

from __future__ import annotations

from dataclasses import dataclass

from app.realtime.conversation import Utterance
from app.realtime.protocol import Item, ResponseOptions


@dataclass(frozen=True, slots=True)
class ResponseSpec:
    """The settings, the prompt and the tools of one response."""

    options: ResponseOptions
    items: tuple[Item, ...]
    """The items in the prompt, before truncation."""
    utterance: Utterance | None = None
    """The turn that follows the items, where the request begins while the user still speaks."""
    kept: bool = True
    """Whether the conversation stores the response. Others get no MCP tools: a result would have no place."""
    whole_conversation: bool = True
    """Whether the prompt is the unchanged conversation, so that later prompts begin at the same item."""
    preemptible: bool = False
    """Whether the engine may end the request early when other requests wait."""
    tool_servers: tuple[str, ...] | None = None
    """Labels of the MCP servers whose tools it may call. None: all servers of the session."""
    size: int = 0
    """Bytes of items that the conversation does not hold."""
