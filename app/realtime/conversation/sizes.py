"""The size of an item: bytes of memory, and characters that a model has to read. Knows no wire format and no limit."""

from __future__ import annotations

from sys import getsizeof

import orjson
from msgspec.structs import astuple

from app.realtime.protocol import (
    ApprovalRequestItem,
    ApprovalResponseItem,
    AssistantAudio,
    CallItem,
    CallOutputItem,
    Content,
    HostedCallItem,
    Item,
    MessageImage,
    MessageItem,
    MessageText,
    MessageVideo,
    ToolListItem,
    UserAudio,
)

ITEM = 512
"""Bytes of an item beside what it holds: itself, and its place in the conversation's dicts."""
TOKEN = 40
"""A number in a tuple."""
MARK = 160
"""A pair of numbers in a tuple."""


def size_of(item: Item) -> int:
    """Bytes that the conversation holds for an item, about: everything that grows with what a client sends."""
    match item:
        case MessageItem(id=id, content=content, token_ids=ids):
            kept = 0 if ids is None else getsizeof(ids.tokenizer) + TOKEN * len(ids.ids)
            return ITEM + getsizeof(id) + kept + sum(map(content_size, content))
        case ToolListItem(id=id, server_label=label, tools=tools):
            return ITEM + getsizeof(id) + getsizeof(label) + 2 * len(orjson.dumps(tools))
        case HostedCallItem():
            return ITEM + sum(map(getsizeof, (item.id, item.arguments, item.result)))
        case _:
            return ITEM + sum(map(getsizeof, astuple(item)))


def content_size(content: Content) -> int:
    """Bytes of one content of a message."""
    match content:
        case MessageText(text):
            return getsizeof(content) + getsizeof(text)
        case AssistantAudio(text, marks):
            return getsizeof(content) + getsizeof(text) + MARK * len(marks)
        case UserAudio(pcm, transcript):
            return user_audio_size(len(pcm), transcript)
        case MessageImage(pixels, url, detail):
            return picture_size(pixels.nbytes, url, detail)
        case MessageVideo(frames, _, still, pcm):
            return video_size(sum(one.nbytes for one in frames), 0 if pcm is None else len(pcm), still)


def user_audio_size(samples: int, transcript: str | None) -> int:
    """Return the size of speech of so many samples at MIC_RATE_HZ."""
    return 2 * samples + getsizeof(transcript)


def picture_size(pixels: int, url: str, detail: str) -> int:
    """Return the size of a picture whose pixels take so many bytes."""
    return pixels + getsizeof(url) + getsizeof(detail)


def video_size(pixels: int, samples: int, still: str = "") -> int:
    """Return the size of a video of so many bytes of pixels and samples of sound."""
    return pixels + 2 * samples + getsizeof(still)


def chars_of(item: Item) -> int:
    """Characters of text that a prompt with this item holds; what was said aloud counts as it was heard."""
    match item:
        case MessageItem(content=content):
            return sum(map(_content_chars, content))
        case CallItem(name=name, arguments=arguments):
            return len(name) + len(arguments)
        case CallOutputItem(output=output):
            return len(output)
        case HostedCallItem(function=function, arguments=arguments):
            return len(function) + len(arguments) + len(item.result or "")
        case ApprovalResponseItem(reason=reason):
            return len(reason or "")
        case ToolListItem() | ApprovalRequestItem():
            return 0


def _content_chars(content: Content) -> int:
    match content:
        case MessageText(text) | AssistantAudio(text):
            return len(text)
        case UserAudio(transcript=transcript):
            return len(transcript or "")
        case MessageImage() | MessageVideo():
            return 0
