"""Early limits on text: text that no model context could hold is refused before a worker reads it.

The limits are generous and count characters, so nothing that might fit is refused. Exact limits follow later: estimates
in ``truncation``, and the model's own error (ContextOverflow).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from app.realtime.conversation.sizes import chars_of
from app.realtime.protocol import Item, MessageItem, ResponseOptions, SessionOptions
from app.refusal import Refusal
from engine import ModelInfo

CODE = "context_length_exceeded"
_ROOM = 8
"""Factor by which a text may exceed the estimate from the model's costs, which are rather high; a run of spaces is one
token.
"""
_UNREAD_CHARS = 256_000
"""Limit for instructions and tools if the model's cost for them is zero because it ignores most of them; clients send
them anyway.
"""
_SETTINGS_BYTES = 64 * 1024
"""Limit for all other settings, which are sent back with each change: as much as a client secret may hold."""


def most_chars(model: ModelInfo) -> int:
    """Return the maximum characters of a prompt, without its instructions."""
    return int(_ROOM * model.context / model.cost.character)


def most_instructions(model: ModelInfo) -> int:
    """Return the maximum characters of the instructions and the tools (as JSON)."""
    return int(_ROOM * model.context / model.cost.instruction) if model.cost.instruction else _UNREAD_CHARS


def check_settings(options: SessionOptions | ResponseOptions, model: ModelInfo, path: str) -> None:
    """Raise Refusal for settings that no prompt could hold, or that are unreasonably large."""
    tools = tools_size(options)
    check_instructions(len(options.instructions), tools, model, path)
    if json_size(options) - tools - json_size(options.instructions) > _SETTINGS_BYTES:
        message = f"Settings other than instructions and tools must not exceed {_SETTINGS_BYTES // 1024} kB."
        raise Refusal("invalid_value", message, path)


def check_instructions(instructions: int, tools: int, model: ModelInfo, path: str = "") -> None:
    """Check numbers of characters. Raises Refusal."""
    most = most_instructions(model)
    if instructions + tools > most:
        field = f"{path}.{'instructions' if instructions >= tools else 'tools'}".lstrip(".")
        message = f"{model.name} accepts at most {most} characters of instructions and tools: shorten {field}"
        raise Refusal(CODE, f"{message}.", field)


def check_items(items: Iterable[Item], model: ModelInfo, param: str | None) -> None:
    """Raise Refusal if these items together are longer than any prompt."""
    spoken = instructions = 0
    for item in items:
        if isinstance(item, MessageItem) and item.role == "system":
            instructions += chars_of(item)
        else:
            spoken += chars_of(item)
    if spoken > most_chars(model) or instructions > most_instructions(model):
        message = f"The text is too long for the context of {model.name}: it has {spoken + instructions} characters."
        raise Refusal(CODE, message, param)


def tools_size(options: SessionOptions | ResponseOptions) -> int:
    """Return the characters of the tools as JSON; 0 without tools."""
    return json_size(options.tools) if options.tools else 0


def json_size(value: object) -> int:
    return len(msgspec.json.encode(value))
