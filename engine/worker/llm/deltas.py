"""The parts of a chat completions server's answer: chunks of the engine, and the model's thoughts."""

from __future__ import annotations

import msgspec

from engine.chunk import Text, ToolCall, ToolCallDelta, Usage


class ReasoningDelta(msgspec.Struct, frozen=True):
    """The next piece of what the model thinks before it answers: never to be spoken or kept."""

    text: str


Delta = Text | ReasoningDelta | ToolCallDelta | ToolCall | Usage
"""Usage is the last one of every answer that is complete, and comes once: it says why the text is over."""
