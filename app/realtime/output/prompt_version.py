"""The sources of an answer's prompt, to see whether it still holds. Knows no prompt."""

from __future__ import annotations

from typing import NamedTuple

from app.realtime.protocol import SessionOptions


class PromptVersion(NamedTuple):
    """Two that are equal make the same prompt."""

    revision: int
    """The conversation's revision."""
    options: SessionOptions
    watched: bool
    """Whether the turn that is being spoken is a film, of speech and of what the camera sees."""
    tools: tuple[str, ...] = ()
    """The tools of MCP servers, by their names in prompts."""
