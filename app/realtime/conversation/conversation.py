"""The items of one conversation in order, and the prompt made from them.

Refuses with the protocol's error codes.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from msgspec.structs import replace

from app.limits.memory_budget import MemoryFull, MemoryReservation
from app.limits.quotas import QuotaExceeded
from app.media.videos import parts_of
from app.realtime.conversation.sizes import size_of
from app.realtime.conversation.speech_items import with_transcript
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
from app.refusal import Refusal
from engine import (
    SPEAKER_RATE_HZ,
    AudioPart,
    ImagePart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)

ROOT = "root"
"""The id of a "previous item" that means the start of the conversation."""


class Conversation:
    """Items by id. ``revision`` grows with every change that affects a prompt.

    It holds at most ``limit`` items and ``limit_bytes``, and reserves their memory in ``room``.
    """

    def __init__(self, id: str, limit: int, limit_bytes: int, room: MemoryReservation | None = None) -> None:
        self.id = id
        self.revision = 0
        self.language = ""
        """The language of the last turn whose language was detected, as BCP 47."""
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._room = room or MemoryReservation()
        self._items: dict[str, Item] = {}
        self._sizes: dict[str, int] = {}
        self._held = 0  # sum of the sizes
        # replacements that save memory when space is short: the words without the audio
        self._lighter: dict[str, Item] = {}
        self._spare = 0  # bytes that the replacements would free

    @property
    def items(self) -> tuple[Item, ...]:
        return tuple(self._items.values())

    @property
    def last_id(self) -> str | None:
        return next(reversed(self._items), None)

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Insert an item after ``after`` (ROOT: at the start; None: at the end). Returns the id before it."""
        if item.id in self._items:
            raise Refusal("item_create_duplicate_item_id", f"An item with id {item.id!r} already exists.", "item.id")
        if len(self._items) >= self._limit:
            raise Refusal("conversation_full", f"The conversation is full ({self._limit} items): delete some.", "item")
        size = size_of(item)
        self.check_room(size)
        if after is not None and after != ROOT and after not in self._items:
            raise Refusal("item_create_invalid_previous_item_id", f"Item {after!r} does not exist.", "previous_item_id")
        self._make_room(size)
        self.revision += 1
        last = self.last_id
        self._keep(item)
        if after is None or after == last:
            return last
        others = [one for one in self._items.values() if one is not item]
        at = 0 if after == ROOT else 1 + list(self._items).index(after)
        others.insert(at, item)
        self._items = {one.id: one for one in others}
        return None if after == ROOT else after

    def check_room(self, size: int) -> None:
        """Raise Refusal if ``size`` more bytes would not fit, even with transcribed speech reduced to its words."""
        if self._held + size - self._spare > self._limit_bytes:
            message = f"The conversation would exceed {self._limit_bytes / 1e6:g} MB: delete some items."
            raise Refusal("conversation_full", message, "item")
        self.check_server(size, "item")

    def check_server(self, size: int, param: str) -> None:
        """Raise Refusal if the server has no memory for ``size`` more bytes of this client."""
        try:
            self._room.check(size)
        except (MemoryFull, QuotaExceeded) as full:
            raise Refusal(full.code, str(full), param) from None

    @contextmanager
    def reserve(self, size: int) -> Generator[None]:
        """Reserve bytes for decoding while the block lasts. Raises Refusal."""
        self.check_room(size)
        with self.hold(size):
            yield

    @contextmanager
    def hold(self, size: int) -> Generator[None]:
        """Count ``size`` more bytes while the block lasts."""
        self._room.count(size)
        try:
            yield
        finally:
            self._room.count(-size)

    def _make_room(self, size: int) -> None:
        """Replace transcribed speech with its transcript, oldest first, until ``size`` bytes fit."""
        for id in tuple(self._items):
            if self._held + size <= self._limit_bytes:
                return
            if id in self._lighter:
                self._keep(self._lighter[id])

    def _keep(self, item: Item) -> None:
        """Store an item, replacing one with the same id, and count its size."""
        self._forget(item.id)
        self._items[item.id], self._sizes[item.id] = item, size_of(item)
        self._held += self._sizes[item.id]
        self._room.count(self._sizes[item.id])
        light = _lightened(item)
        if light is not item:
            self._lighter[item.id] = light
            self._spare += self._sizes[item.id] - size_of(light)

    def _forget(self, id: str) -> None:
        """Stop counting the item with this id, if it exists."""
        size, light = self._sizes.pop(id, 0), self._lighter.pop(id, None)
        self._held -= size
        self._room.count(-size)
        if light is not None:
            self._spare -= size - size_of(light)

    def get(self, id: str, code: str = "item_retrieve_invalid_item_id") -> Item:
        if id not in self._items:
            raise Refusal(code, f"Item {id!r} does not exist.", "item_id")
        return self._items[id]

    def find(self, id: str) -> Item | None:
        return self._items.get(id)

    def delete(self, id: str) -> None:
        self.get(id, "item_delete_invalid_item_id")
        self._forget(id)
        del self._items[id]
        self.revision += 1

    def clear(self) -> None:
        """Delete all items, at the end of the session."""
        for id in tuple(self._items):
            self.delete(id)

    def put(self, item: Item) -> None:
        """Replace the item with the same id, if it still exists."""
        if item.id in self._items:
            self._keep(item)
            self.revision += 1

    def user_audio(self, id: str) -> UserAudio | None:
        """Return the user's speech in an item, if any."""
        item = self.find(id)
        content = item.content if isinstance(item, MessageItem) else ()
        return next((part for part in content if isinstance(part, UserAudio)), None)

    def transcribe(self, id: str, transcript: str, language: str = "") -> None:
        """Set the transcript of the user's speech, and its language if it was detected.

        ``revision`` stays, since the current answer's prompt has the speech already.
        """
        self.language = language or self.language
        item = self.find(id)
        if isinstance(item, MessageItem):
            self._keep(with_transcript(item, transcript))

    def truncate(self, id: str, content_index: int, audio_end_ms: int) -> str:
        """Truncate an answer to what was heard, and return the remaining words.

        Raises Refusal if the item has no speech, or less of it.
        """
        item = self.get(id, "item_truncate_invalid_item_id")
        content = item.content if isinstance(item, MessageItem) else ()
        if not 0 <= content_index < len(content):
            raise Refusal("invalid_value", f"Item {id!r} has no content with index {content_index}.", "content_index")
        spoken = content[content_index]
        if not isinstance(item, MessageItem) or not isinstance(spoken, AssistantAudio):
            raise Refusal(
                "unsupported_content_type", f"Only an answer's audio can be truncated; {id!r} has none.", "item_id"
            )
        if not 0 <= audio_end_ms <= spoken.sent_ms:
            message = f"audio_end_ms must be 0 to {spoken.sent_ms}, the length of {id!r} (got {audio_end_ms})."
            raise Refusal("invalid_value", message, "audio_end_ms")
        played = replace(spoken, played_samples=audio_end_ms * SPEAKER_RATE_HZ // 1000, truncated=True)
        content = (*content[:content_index], played, *content[content_index + 1 :])
        self.put(replace(item, content=content, token_ids=None))
        return played.played_text


def prompt(instructions: str, items: tuple[Item, ...]) -> tuple[Message, ...]:
    """Return the messages of a prompt.

    Items that are in progress, or were cut off before anything was heard, are left out.
    """
    system = (Message("system", (TextPart(instructions),)),) if instructions else ()
    return (*system, *(message for item in items for message in _messages(item)))


def _messages(item: Item) -> tuple[Message, ...]:
    match item:
        case HostedCallItem(id=id, function=function, arguments=arguments):
            return () if item.result is None else _call_and_result(id, function, arguments, item.result)
        case ApprovalResponseItem(approve=False, request=ApprovalRequestItem() as request, reason=reason):
            denied = f"The user did not approve this call{f': {reason}' if reason else '.'}"
            return _call_and_result(request.id, request.function, request.arguments, denied)
        case ToolListItem() | ApprovalRequestItem() | ApprovalResponseItem():
            return ()
        case _:
            message = _message(item)
            return () if message is None else (message,)


def _call_and_result(id: str, function: str, arguments: str, result: str) -> tuple[Message, ...]:
    call = Message("assistant", (ToolCallPart(function, arguments, id),))
    return call, Message("tool", (ToolResultPart(id, result),))


def _message(item: MessageItem | CallItem | CallOutputItem) -> Message | None:
    match item:
        case MessageItem(role=role, content=content):
            film = next((part for part in content if isinstance(part, MessageVideo) and part.times_s), None)
            parts = tuple(part for one in content for part in _parts(one, film))
            return Message(role, parts, item.token_ids) if parts else None
        case CallItem() if item.status != "completed":
            return None
        case CallItem():
            return Message("assistant", (ToolCallPart(item.name, item.arguments, item.call_id),))
        case CallOutputItem():
            return Message("tool", (ToolResultPart(item.call_id, item.output),))


def _parts(content: Content, film: MessageVideo | None) -> tuple[Part, ...]:
    """Return the parts of a message. Camera frames and speech become one video."""
    match content:
        case MessageText(text):
            return (TextPart(text),)
        case AssistantAudio():
            return (TextPart(content.played_text),) if content.played_text else ()
        case UserAudio(pcm) if film is not None:
            return (VideoPart(film.frames, film.fps, pcm, film.times_s),)
        case UserAudio(pcm, transcript):
            return (AudioPart(pcm, transcript),)
        case MessageImage():
            return (ImagePart(content.pixels),)
        case MessageVideo(frames, fps, pcm=pcm, apart=apart):
            return () if content is film else parts_of(frames, fps, pcm, apart)


def _lightened(item: Item) -> Item:
    """Return a smaller version of an item, or the item itself.

    Transcribed speech is replaced by its words, without the camera frames; otherwise a video by its newest frame.
    """
    content = item.content if isinstance(item, MessageItem) else ()
    if not isinstance(item, MessageItem) or not content:
        return item
    if any(isinstance(part, UserAudio) and part.transcript is not None for part in content):
        lighter = (_words_of(part) for part in content if not isinstance(part, MessageImage | MessageVideo))
        return replace(item, content=tuple(lighter))
    if any(isinstance(part, MessageVideo) and part.still for part in content):
        return replace(item, content=tuple(map(_still_of, content)))
    return item


def _words_of(part: Content) -> Content:
    return MessageText(part.transcript) if isinstance(part, UserAudio) and part.transcript is not None else part


def _still_of(part: Content) -> Content:
    return MessageImage(part.frames[-1], part.still) if isinstance(part, MessageVideo) and part.still else part
