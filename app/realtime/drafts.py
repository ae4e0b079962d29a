"""What a client puts into the conversation, decoded off the event loop: sounds to samples, pictures to pixels."""

from __future__ import annotations

import asyncio

from app.media import MediaError, decode_image_url, resample
from app.realtime.commands import Draft, NewItem, RawAudio, RawPicture
from app.realtime.formats import Format, rate_of, samples_of
from app.realtime.items import Content, Heard, Item, MessageItem, Picture, Text
from engine import MIC_RATE_HZ


async def finished(item: NewItem, format: Format, limit_s: float) -> Item:
    """The item with its contents decoded; its audio is in ``format``. Raises MediaError."""
    if not isinstance(item, Draft):
        return item
    content = tuple([await _content(part, format, limit_s) for part in item.content])
    return MessageItem(id=item.id, role=item.role, content=content)


async def _content(part: Text | RawAudio | RawPicture, format: Format, limit_s: float) -> Content:
    match part:
        case Text():
            return part
        case RawAudio(data, transcript):
            pcm, rate_hz = samples_of(data, format), rate_of(format)
            if not 0 < len(pcm) <= limit_s * rate_hz:
                raise MediaError(
                    f"audio of an item lasts from one sample to {limit_s:g} s, not {len(pcm) / rate_hz:g} s"
                )
            return Heard(await asyncio.to_thread(resample, pcm, rate_hz, MIC_RATE_HZ), transcript)
        case RawPicture(url, detail):
            return Picture(await asyncio.to_thread(decode_image_url, url), url, detail)
