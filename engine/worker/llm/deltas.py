"""The types of a streamed chat completion's parts: the engine's chunks, and pieces of the model's reasoning."""

from __future__ import annotations

import msgspec

from engine.chunk import Text, ToolCall, ToolCallDelta, Usage


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of the model's reasoning, which is neither spoken nor stored."""

    text: str


Delta = Text | ReasoningDelta | ToolCallDelta | ToolCall | Usage
"""Usage comes exactly once, last, in every complete answer. It includes the finish reason."""
