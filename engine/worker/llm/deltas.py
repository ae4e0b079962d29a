"""What an answer of a chat completions server is made of, piece by piece. Knows no wire."""

from __future__ import annotations

from typing import Literal

import msgspec

FinishReason = Literal["stop", "length", "tool"]


class TextDelta(msgspec.Struct, frozen=True):
    """The next piece of the answer's text."""

    text: str


class ThoughtDelta(msgspec.Struct, frozen=True):
    """The next piece of what the model thinks before it answers: never to be spoken or kept."""

    text: str


class CallDelta(msgspec.Struct, frozen=True):
    """The next piece of a function call's arguments. A call's pieces come before its ToolCall."""

    call_id: str
    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A function call, whole, whatever pieces of it came before. ``arguments`` are JSON if the model wrote JSON."""

    call_id: str
    name: str
    arguments: str


class Usage(msgspec.Struct, frozen=True):
    """Tokens as the server counted them; ``cached_tokens`` of the input did not have to be computed."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0


class Finish(msgspec.Struct, frozen=True):
    """The last delta of every answer that is complete; exactly one."""

    reason: FinishReason


Delta = TextDelta | ThoughtDelta | CallDelta | ToolCall | Usage | Finish
