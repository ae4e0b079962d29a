"""The text that a model's context can hold, known at the door: too much is refused before a worker has to read it.

Generous, and by characters: nothing that might fit is refused, and what an estimate finds too long (``truncation``) or
the model itself (ContextOverflow) still is. Knows no wire format.
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
"""The factor by which a text may be longer than the model's costs say: they are rather too dear, and a run of blanks is
one."""
_UNREAD_CHARS = 256_000
"""Instructions and tools where they cost the model nothing, since it reads little of them; clients send them anyway."""
_SETTINGS_BYTES = 64 * 1024
"""All other settings, which are told again with each change: as much as a client secret may hold."""


def most_chars(model: ModelInfo) -> int:
    """The longest text of a prompt, beside its instructions."""
    return int(_ROOM * model.context / model.cost.character)


def most_instructions(model: ModelInfo) -> int:
    """Characters of the instructions, and of the tools as JSON."""
    return int(_ROOM * model.context / model.cost.instruction) if model.cost.instruction else _UNREAD_CHARS


def check_settings(options: SessionOptions | ResponseOptions, model: ModelInfo, path: str) -> None:
    """Raises Refusal for settings that no prompt can begin with, or that are larger than any are."""
    tools = tools_size(options)
    check_instructions(len(options.instructions), tools, model, path)
    if json_size(options) - tools - json_size(options.instructions) > _SETTINGS_BYTES:
        message = f"The settings beside instructions and tools take more than {_SETTINGS_BYTES // 1024} kB."
        raise Refusal("invalid_value", message, path)


def check_instructions(instructions: int, tools: int, model: ModelInfo, path: str = "") -> None:
    """``instructions`` and ``tools`` are characters. Raises Refusal."""
    most = most_instructions(model)
    if instructions + tools > most:
        field = f"{path}.{'instructions' if instructions >= tools else 'tools'}".lstrip(".")
        message = f"{model.name} takes at most {most} characters of instructions and tools; {field} has more"
        raise Refusal(CODE, f"{message}, or both together.", field)


def check_items(items: Iterable[Item], model: ModelInfo, param: str | None) -> None:
    """Raises Refusal where these items together are longer than any prompt."""
    spoken = instructions = 0
    for item in items:
        if isinstance(item, MessageItem) and item.role == "system":
            instructions += chars_of(item)
        else:
            spoken += chars_of(item)
    if spoken > most_chars(model) or instructions > most_instructions(model):
        message = (
            f"The text has {spoken + instructions} characters, and the context of {model.name} can't hold so many."
        )
        raise Refusal(CODE, message, param)


def tools_size(options: SessionOptions | ResponseOptions) -> int:
    """Characters of the tools as JSON; none where there are none."""
    return json_size(options.tools) if options.tools else 0


def json_size(value: object) -> int:
    return len(msgspec.json.encode(value))
