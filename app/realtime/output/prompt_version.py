"""The version of a prompt, to detect whether a prepared request is still valid."""

from __future__ import annotations

from typing import NamedTuple

from app.realtime.protocol import SessionOptions


class PromptVersion(NamedTuple):
    """Equal versions produce the same prompt."""

    revision: int
    """The conversation's revision."""
    options: SessionOptions
    watched: bool
    """Whether the turn in progress is a film, of speech and camera frames."""
    tools: tuple[str, ...] = ()
    """Names in the prompt of the tools that the server runs."""
    memory: str = ""
    """The facts of earlier sessions."""
