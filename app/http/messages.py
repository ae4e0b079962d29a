"""The messages of a chat completion, and their conversion to the engine's messages.

Sizes are checked before anything is decoded, and decoding runs outside the event loop. Source: openai-python
``types/chat``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from app.http_errors import HttpRefusal
from app.media.audio import decode_base64
from app.media.images import image_of_url
from app.media.videos import parts_of
from app.realtime.conversation.model_context import CODE, check_instructions, most_chars
from app.realtime.session_context import SessionContext
from app.refusal import Refusal
from engine import AudioPart, ImagePart, Message, ModelInfo, Part, TextPart, ToolCallPart, ToolResultPart


class TextContent(BaseModel):
    type: Literal["text"]
    text: str


class AudioData(BaseModel):
    data: str = Field(description="Base64.")
    format: Literal["wav", "mp3", "flac", "ogg", "opus", "aac", "m4a", "mp4", "webm"] = Field(
        default="wav", description="Ignored: the format is detected from the data."
    )


class AudioContent(BaseModel):
    type: Literal["input_audio"]
    input_audio: AudioData


class ImageUrl(BaseModel):
    url: str = Field(description="A data URI of a PNG or JPEG. URLs are not fetched.")
    detail: str = "auto"


class ImageContent(BaseModel):
    type: Literal["image_url"]
    image_url: ImageUrl


class VideoUrl(BaseModel):
    url: str = Field(description="A data URI of an MP4, MOV or WebM. URLs are not fetched.")


class VideoContent(BaseModel):
    type: Literal["video_url"]
    video_url: VideoUrl


class RefusalContent(BaseModel):
    type: Literal["refusal"]
    refusal: str


HISTORY = 16
"""A conversation may be this many times longer than the context: some models drop the oldest turns themselves."""

UserContent = Annotated[TextContent | AudioContent | ImageContent | VideoContent, Field(discriminator="type")]
AssistantContent = Annotated[TextContent | RefusalContent, Field(discriminator="type")]
Parts = Field(max_length=64, fail_fast=True)  # only the first error is reported, so the rest need not be validated


class SystemMessage(BaseModel):
    role: Literal["system", "developer"]
    content: str | Annotated[list[TextContent], Parts]


class UserMessage(BaseModel):
    role: Literal["user"]
    content: str | Annotated[list[UserContent], Parts]


class FunctionCall(BaseModel):
    name: str
    arguments: str


class ChatToolCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class AssistantMessage(BaseModel):
    role: Literal["assistant"]
    content: str | Annotated[list[AssistantContent], Parts] | None = None
    tool_calls: Annotated[list[ChatToolCall], Parts] | None = None
    audio: dict[str, Any] | None = Field(
        default=None, description="Not supported, since answers are not stored: send the transcript as content."
    )


class ToolMessage(BaseModel):
    role: Literal["tool"]
    content: str | Annotated[list[TextContent], Parts]
    tool_call_id: str


ChatMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


async def engine_messages(
    messages: Sequence[ChatMessage], path: str, context: SessionContext, held: int = 0
) -> tuple[Message, ...]:
    """Convert messages for the engine; the session context's memory reservation holds the decoded media.

    ``path`` is the field that holds the messages, ``held`` the bytes of media already in the conversation. Raises
    HttpRefusal, MediaError, MemoryFull or QuotaExceeded.
    """
    media = _Media(context, held, path)
    return _joined([await _message(message, f"{path}.{i}", media) for i, message in enumerate(messages)])


def _joined(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Drop empty assistant messages, and merge those with tool calls only into the assistant message before them."""
    joined = list[Message]()
    for message in messages:
        if message.role == "assistant" and not message.parts:
            continue
        alone = message.role == "assistant" and all(isinstance(part, ToolCallPart) for part in message.parts)
        if alone and joined and joined[-1].role == "assistant":
            message = Message("assistant", (*joined.pop().parts, *message.parts))
        joined.append(message)
    return tuple(joined)


def check_texts(
    messages: Sequence[ChatMessage], path: str, model: ModelInfo, *, tools: int, instructions: int = 0, before: int = 0
) -> None:
    """Refuse texts that the model's context can't hold, even without the oldest turns. Raises Refusal.

    ``tools``, ``instructions`` and ``before`` (the conversation so far) are numbers of characters.
    """
    spoken = before
    check_instructions(instructions, tools, model)
    for i, message in enumerate(messages):
        if isinstance(message, SystemMessage):
            instructions += chars_of(message)
            check_instructions(instructions, tools, model, f"{path}.{i}")
            continue
        spoken += (chars := chars_of(message))
        if chars > most_chars(model) or spoken > HISTORY * most_chars(model):
            text = f"The text up to {path}.{i} is too long for the context of {model.name}: it has {spoken}"
            raise Refusal(CODE, f"{text} characters.", f"{path}.{i}")


def chars_of(message: ChatMessage) -> int:
    """Return the number of characters in a message."""
    content = message.content or ""
    parts = [content] if isinstance(content, str) else [_said(part) for part in content]
    match message:
        case AssistantMessage(tool_calls=calls):
            parts += [f"{call.id}{call.function.name}{call.function.arguments}" for call in calls or ()]
        case ToolMessage(tool_call_id=id):
            parts.append(id)
        case _:
            pass
    return sum(map(len, parts))


def _said(part: UserContent | RefusalContent) -> str:
    match part:
        case TextContent(text=text) | RefusalContent(refusal=text):
            return text
        case _:
            return ""


def with_turn_last(messages: Sequence[Message]) -> Sequence[Message]:
    """Move instructions after the user's last turn to before it, because the model answers the last message."""
    end = len(messages)
    while end and messages[end - 1].role == "system":
        end -= 1
    turn = max((i for i in range(end) if messages[i].role == "user"), default=0)
    if end == 0 or messages[end - 1].role == "assistant":
        return messages
    return [*messages[:turn], *messages[end:], *messages[turn:end]]


class _Media:
    """Decodes the media of messages, within the bytes that one conversation may hold."""

    def __init__(self, context: SessionContext, held: int, path: str) -> None:
        self.context = context
        self._left = int(context.limits.conversation_mb * 1e6) - held
        self._path = path

    def take(self, size: int) -> None:
        """Count decoded bytes. Raises HttpRefusal, MemoryFull or QuotaExceeded."""
        self._left -= size
        if self._left < 0:
            most = f"{self.context.limits.conversation_mb:g} MB"
            message = f"The messages' images and audio exceed {most} after decoding."
            raise HttpRefusal(400, "invalid_value", message, self._path)
        self.context.room.take(size)


async def _message(message: ChatMessage, path: str, media: _Media) -> Message:
    match message:
        case SystemMessage(content=content):
            return Message("system", _texts(content))
        case UserMessage(content=content):
            parts = [TextContent(type="text", text=content)] if isinstance(content, str) else content
            written = any(isinstance(part, TextContent) for part in parts)
            return Message("user", tuple([made for part in parts for made in await _parts(part, written, media)]))
        case ToolMessage(content=content, tool_call_id=call_id):
            return Message("tool", (ToolResultPart(call_id, _text(content)),))
        case AssistantMessage():
            return _assistant(message, path)


async def _parts(part: UserContent, written: bool, media: _Media) -> Sequence[Part]:
    context = media.context
    match part:
        case TextContent(text=text):
            return (TextPart(text),)
        case AudioContent(input_audio=sound):
            recording = await context.scheduler.in_thread(lambda: io.BytesIO(decode_base64(sound.data)))
            pcm = await context.samples(recording)
            media.take(pcm.nbytes)
            return (AudioPart(pcm),)
        case ImageContent(image_url=image):
            weighed = await context.scheduler.in_thread(lambda: image_of_url(image.url))
            media.take(weighed.size)
            return (ImagePart(await context.image(weighed)),)
        case VideoContent(video_url=link):
            video = await context.video(link.url, written)
            media.take(video.size)
            return parts_of(video.frames, video.fps, video.pcm, video.apart)


def _assistant(message: AssistantMessage, path: str) -> Message:
    text = _text(message.content or "")
    if not text and not message.tool_calls and message.audio:
        why = "Answers are not stored: send the transcript of this one as its content."
        raise HttpRefusal(400, "invalid_value", f"{path}.content is missing. {why}", f"{path}.content")
    calls = (ToolCallPart(call.function.name, call.function.arguments, call.id) for call in message.tool_calls or ())
    return Message("assistant", (*((TextPart(text),) if text else ()), *calls))


def _texts(content: str | list[TextContent]) -> tuple[Part, ...]:
    return (TextPart(_text(content)),)


def _text(content: str | list[TextContent] | list[AssistantContent]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text if isinstance(part, TextContent) else part.refusal for part in content)
