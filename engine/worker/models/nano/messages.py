"""Helpers for the contents of messages: text, pictures, and pictures without text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from engine.core import AudioPart, ImagePart, Message, TextPart


def text_of(message: Message) -> str:
    """Return a message's text, including transcripts of its audio."""
    return " ".join(
        part.text if isinstance(part, TextPart) else part.transcript or ""
        for part in message.parts
        if isinstance(part, TextPart | AudioPart)
    )


def shows(messages: Sequence[Message]) -> bool:
    """Return whether any message has a picture."""
    return any(isinstance(part, ImagePart) for message in messages for part in message.parts)


def joined(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Merge user messages that have only pictures into the user's next message, if no other message comes between."""
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
