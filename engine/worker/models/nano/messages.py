"""The contents of a conversation's messages: words, pictures, pictures without words. Knows no eye, ear or token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from engine.core import AudioPart, ImagePart, Message, TextPart


def text_of(message: Message) -> str:
    """Return the text that a message says or said."""
    return " ".join(
        part.text if isinstance(part, TextPart) else part.transcript or ""
        for part in message.parts
        if isinstance(part, TextPart | AudioPart)
    )


def shows(messages: Sequence[Message]) -> bool:
    """Whether there is a picture among them."""
    return any(isinstance(part, ImagePart) for message in messages for part in message.parts)


def joined(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Join the user's bare pictures with what they say next, where nobody answers between."""
    return tuple(_joined(messages))


def _joined(messages: Sequence[Message]) -> Iterator[Message]:
    held: Message | None = None
    for message in messages:
        if held is not None and message.role == "user":
            message, held = msgspec.structs.replace(message, parts=held.parts + message.parts), None
        if held is not None:
            yield held
            held = None
        if message.role == "user" and _bare(message):
            held = message
        else:
            yield message
    if held is not None:
        yield held


def _bare(message: Message) -> bool:
    spoken = any(isinstance(part, TextPart | AudioPart) for part in message.parts)
    return not spoken and any(isinstance(part, ImagePart) for part in message.parts)
