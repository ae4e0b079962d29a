"""Items that a client adds: weighed first, all of a command together, then decoded off the event loop.

Knows no wire format and no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from app.limits.fair_scheduler import FairScheduler
from app.media.audio import MediaError
from app.media.images import Image, image_of_url
from app.realtime.conversation.sizes import content_size, picture_size, size_of, user_audio_size
from app.realtime.protocol import (
    Content,
    Format,
    Item,
    MessageImage,
    MessageItem,
    MessageText,
    MessageVideo,
    NewItem,
    RawAudio,
    RawImage,
    RawMessage,
    RawVideo,
    UserAudio,
    rate_of,
    sample_count,
    samples_of,
)
from app.realtime.session_context import SessionContext
from engine import MIC_RATE_HZ
from engine.audio.resampler import resample

Reserve = Callable[[int], AbstractContextManager[None]]
"""Room for so many bytes while they are decoded; raises Refusal if there is none."""


async def finished(
    items: Sequence[NewItem | Item], format: Format, reserve: Reserve, context: SessionContext
) -> tuple[Item, ...]:
    """The items with their contents decoded; their audio is in ``format``, at most ``limits.audio_s`` of it in an item.

    ``reserve`` is asked for the bytes of all of them together before anything is decoded; of a video these are only
    known once it is, so it is asked again behind each, before the next. Raises MediaError, Overloaded.
    """
    weigh = partial(_weighed, items, format, context.limits.audio_s)
    weighed = await context.scheduler.read(weigh, sum(one.size for one in items if isinstance(one, RawMessage)))
    for video in [video for item in weighed if isinstance(item, _Weighed) for video in item.videos]:
        with reserve(_size(weighed)):
            await video.decode(context)
    with reserve(_size(weighed)):
        return tuple([await one.finished(context.scheduler) if isinstance(one, _Weighed) else one for one in weighed])


def _size(weighed: Sequence[_Weighed | Item]) -> int:
    return sum(one.size if isinstance(one, _Weighed) else size_of(one) for one in weighed)


def _weighed(items: Sequence[NewItem | Item], format: Format, limit_s: float) -> list[_Weighed | Item]:
    return [_Weighed.of(item, format, limit_s) if isinstance(item, RawMessage) else item for item in items]


@dataclass(frozen=True, slots=True)
class _Sound:
    raw: RawAudio
    format: Format

    @property
    def samples(self) -> int:
        """Return the samples at the rate that they come at. Raises MediaError."""
        return sample_count(self.raw.data, self.format)

    @property
    def size(self) -> int:
        return user_audio_size(self.samples * MIC_RATE_HZ // rate_of(self.format), self.raw.transcript)

    def content(self) -> Content:
        pcm = samples_of(self.raw.data, self.format)
        return UserAudio(resample(pcm, rate_of(self.format), MIC_RATE_HZ), self.raw.transcript)


@dataclass(frozen=True, slots=True)
class _Image:
    image: Image
    raw: RawImage

    @property
    def size(self) -> int:
        return picture_size(self.image.size, self.raw.url, self.raw.detail)

    def content(self) -> Content:
        return MessageImage(self.image.decode(), self.raw.url, self.raw.detail)


@dataclass(slots=True)
class _Video:
    """A video, as it came and as it was ``decoded``."""

    raw: RawVideo
    written: bool
    """Whether there is text beside it."""
    decoded: MessageVideo | None = None

    @property
    def size(self) -> int:
        return self.raw.size if self.decoded is None else content_size(self.decoded)

    async def decode(self, context: SessionContext) -> None:
        """Raises MediaError, Overloaded."""
        video = await context.video(self.raw.url, self.written)
        self.decoded = MessageVideo(tuple(video.frames), video.fps, pcm=video.pcm, apart=video.apart)

    def content(self) -> Content:
        assert self.decoded is not None
        return self.decoded


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A draft of which it is known what it takes."""

    bare: MessageItem
    """The message with all that needs no decoding: its id, and its texts."""
    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, raw: RawMessage, format: Format, limit_s: float) -> _Weighed:
        """Raises MediaError."""
        texts = tuple(part for part in raw.content if isinstance(part, MessageText))
        parts, left = list[_Part](), int(limit_s * rate_of(format))
        for part in raw.content:
            match part:
                case MessageText():
                    parts.append(part)
                case RawAudio():
                    sound = _Sound(part, format)
                    left -= _checked(sound.samples, left, limit_s, format)
                    parts.append(sound)
                case RawImage(url):
                    parts.append(_Image(image_of_url(url), part))
                case RawVideo():
                    parts.append(_Video(part, bool(texts)))
        return cls(MessageItem(id=raw.id, role=raw.role, content=texts), tuple(parts))

    @property
    def videos(self) -> list[_Video]:
        return [part for part in self.parts if isinstance(part, _Video)]

    @property
    def size(self) -> int:
        return size_of(self.bare) + sum(part.size for part in self.parts if not isinstance(part, MessageText))

    async def finished(self, scheduler: FairScheduler) -> Item:
        content = [
            part if isinstance(part, MessageText) else await scheduler.in_thread(part.content) for part in self.parts
        ]
        return MessageItem(id=self.bare.id, role=self.bare.role, content=tuple(content))


_Part = MessageText | _Sound | _Image | _Video


def _checked(samples: int, left: int, limit_s: float, format: Format) -> int:
    """The samples of a sound, of which ``left`` may be. Raises MediaError."""
    if not 0 < samples <= left:
        seconds = samples / rate_of(format)
        raise MediaError(f"audio of an item lasts from one sample to {limit_s:g} s in all, not {seconds:g} s")
    return samples
