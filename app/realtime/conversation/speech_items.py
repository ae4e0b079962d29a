"""Items with speech of the user, and their transcripts."""

from __future__ import annotations

from typing import TypeGuard

from msgspec.structs import replace

from app.realtime.protocol import Item, MessageItem, UserAudio


def is_untranscribed(item: Item | None) -> TypeGuard[MessageItem]:
    """Return whether an item has speech without a transcript."""
    return isinstance(item, MessageItem) and any(
        isinstance(part, UserAudio) and part.transcript is None for part in item.content
    )


def with_transcript(item: MessageItem, transcript: str) -> MessageItem:
    """Return an item whose speech has this transcript. Of several recordings, the first one has all words."""
    words = iter((transcript,))
    return replace(
        item,
        content=tuple(
            replace(part, transcript=next(words, "")) if isinstance(part, UserAudio) else part for part in item.content
        ),
    )
