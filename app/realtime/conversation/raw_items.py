"""Items that a client adds: measured first, all of one event together, then decoded off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

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
"""A function that reserves bytes while they are decoded; raises Refusal if there is no room."""


async def finished(
    items: Sequence[NewItem | Item], format: Format, reserve: Reserve, context: SessionContext
) -> tuple[Item, ...]:
    """Return the items with their contents decoded. Audio is in ``format``, at most ``limits.audio_s`` per item.

    The bytes of all items together are reserved before decoding starts. A video's size is known only once it is
    decoded, so the reservation is checked again after each one. Raises MediaError, Overloaded.
    """
    weigh = partial(_weighed, items, format, context.limits.audio_s)
    weighed = await context.read(weigh, sum(one.size for one in items if isinstance(one, RawMessage)))
    for video in [video for item in weighed if isinstance(item, _Weighed) for video in item.videos]:
        with reserve(_size(weighed)):
            await video.decode(context)
    with reserve(_size(weighed)):
        return tuple([await one.finished(context) if isinstance(one, _Weighed) else one for one in weighed])


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
        """Return the number of samples at the original rate. Raises MediaError if the audio is invalid."""
        return sample_count(self.raw.data, self.format)

    @property
    def size(self) -> int:
        return user_audio_size(self.samples * MIC_RATE_HZ // rate_of(self.format), self.raw.transcript)

    async def content(self, context: SessionContext) -> Content:
        return await context.in_thread(self._resampled)

    def _resampled(self) -> UserAudio:
        pcm = samples_of(self.raw.data, self.format)
        return UserAudio(resample(pcm, rate_of(self.format), MIC_RATE_HZ), self.raw.transcript)


@dataclass(frozen=True, slots=True)
class _Image:
    image: Image
    raw: RawImage

    @property
    def size(self) -> int:
        return picture_size(self.image.size, self.raw.url, self.raw.detail)

    async def content(self, context: SessionContext) -> Content:
        return MessageImage(await context.image(self.image), self.raw.url, self.raw.detail)


@dataclass(slots=True)
class _Video:
    """A video, before and after decoding."""

    raw: RawVideo
    written: bool
    """Whether the message also contains text."""
    decoded: MessageVideo | None = None

    @property
    def size(self) -> int:
        return self.raw.size if self.decoded is None else content_size(self.decoded)

    async def decode(self, context: SessionContext) -> None:
        """Decode the video. Raises MediaError, Overloaded."""
        video = await context.video(self.raw.url, self.written)
        self.decoded = MessageVideo(tuple(video.frames), video.fps, pcm=video.pcm, apart=video.apart)

    async def content(self, context: SessionContext) -> Content:
        assert self.decoded is not None
        return self.decoded


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A measured but undecoded message."""

    bare: MessageItem
    """The message with the parts that need no decoding."""
    parts: tuple[_Part, ...]

    @classmethod
    def of(cls, raw: RawMessage, format: Format, limit_s: float) -> _Weighed:
        """Measure a message. Raises MediaError."""
        texts = tuple(part for part in raw.content if isinstance(part, MessageText))
        parts, left = list[_Part](), int(limit_s * rate_of(format))
        for part in raw.content:
            match part:
                case MessageText():
                    parts.append(part)
                case RawAudio():
                    sound = _Sound(part, format)
                    left -= _checked(sound.samples, left, limit_s)
                    parts.append(sound)
                case RawImage(url):
                    parts.append(_Image(image_of_url(url), part))
                case RawVideo():
                    parts.append(_Video(part, bool(texts)))
        return cls(MessageItem(id=raw.id, role=raw.role, content=texts, pinned=raw.pinned), tuple(parts))

    @property
    def videos(self) -> list[_Video]:
        return [part for part in self.parts if isinstance(part, _Video)]

    @property
    def size(self) -> int:
        return size_of(self.bare) + sum(part.size for part in self.parts if not isinstance(part, MessageText))

    async def finished(self, context: SessionContext) -> Item:
        content = [part if isinstance(part, MessageText) else await part.content(context) for part in self.parts]
        return replace(self.bare, content=tuple(content))


_Part = MessageText | _Sound | _Image | _Video


def _checked(samples: int, left: int, limit_s: float) -> int:
    """Return the samples of an audio part if they fit into ``left``. Raises MediaError."""
    if not 0 < samples <= left:
        raise MediaError(f"the audio of an item must not be empty, and may last at most {limit_s:g} s in all")
    return samples
