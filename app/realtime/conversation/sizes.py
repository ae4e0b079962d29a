"""The size of an item: bytes of memory, and characters for the model. Knows no wire format and no limit."""

from __future__ import annotations

from sys import getsizeof

from msgspec.structs import astuple

from app.limits.held_size import held_size
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
"""Overhead of an item in bytes: the object, and its entries in the conversation's dicts."""
TOKEN = 40
"""Bytes of a number in a tuple."""
MARK = 160
"""Bytes of a pair of numbers in a tuple."""


def size_of(item: Item) -> int:
    """Return the approximate bytes of an item: everything that grows with the client's input."""
    match item:
        case MessageItem(id=id, content=content, token_ids=ids):
            kept = 0 if ids is None else getsizeof(ids.tokenizer) + TOKEN * len(ids.ids)
            return ITEM + getsizeof(id) + kept + sum(map(content_size, content))
        case ToolListItem(id=id, server_label=label, tools=tools):
            return ITEM + getsizeof(id) + getsizeof(label) + held_size(tools)
        case HostedCallItem():
            return ITEM + sum(map(getsizeof, (item.id, item.arguments, item.result)))
        case _:
            return ITEM + sum(map(getsizeof, astuple(item)))


def content_size(content: Content) -> int:
    """Return the bytes of one content of a message."""
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
    """Return the bytes of speech with this number of samples at MIC_RATE_HZ."""
    return 2 * samples + getsizeof(transcript)


def picture_size(pixels: int, url: str, detail: str) -> int:
    """Return the bytes of an image whose pixels take ``pixels`` bytes."""
    return pixels + getsizeof(url) + getsizeof(detail)


def video_size(pixels: int, samples: int, still: str = "") -> int:
    """Return the bytes of a video with these bytes of pixels and samples of audio."""
    return pixels + 2 * samples + getsizeof(still)


def chars_of(item: Item) -> int:
    """Return the characters of an item in a prompt. Speech counts as its transcript."""
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
