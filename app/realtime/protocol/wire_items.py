"""Conversion of conversation items from and to the OpenAI Realtime GA protocol. Stateless."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, assert_never, cast

import msgspec
import orjson
import pybase64
from msgspec import Meta, Struct

from app.ids import new_id
from app.media.audio import MediaError, decode_base64
from app.media.images import MAX_IMAGE_BYTES
from app.realtime.protocol.client_events import (
    ItemReference,
    NewItem,
    RawAudio,
    RawImage,
    RawMessage,
    RawVideo,
)
from app.realtime.protocol.items import (
    ApprovalResponseItem,
    AssistantAudio,
    CallItem,
    CallOutputItem,
    Content,
    HostedItem,
    Item,
    MessageImage,
    MessageItem,
    MessageText,
    MessageVideo,
    Speaker,
    UserAudio,
)
from app.realtime.protocol.wire_hosted import encode_hosted
from app.refusal import Refusal

_MAX_PARTS = 64
_MAX_NAME = 128
"""Maximum characters of an id or a function's name."""
_DETAILS = 16
"""Maximum characters of an image's ``detail``."""
_IMAGE_CHARS = MAX_IMAGE_BYTES * 4 // 3 + 64


class _Part(Struct, frozen=True):
    type: str
    text: str | None = None
    audio: str | None = None
    transcript: str | None = None
    image_url: str | None = None
    video_url: str | None = None
    detail: str | None = None


class _Extras(Struct, frozen=True):
    """Our extensions of a message."""

    pinned: bool = False


class _Message(Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: list[_Part]
    id: str | None = None
    parley: _Extras = _Extras()


class _Call(Struct, frozen=True):
    name: str
    arguments: str
    call_id: str | None = None
    id: str | None = None


class _CallOutput(Struct, frozen=True):
    call_id: str
    output: str
    id: str | None = None


class _ApprovalResponse(Struct, frozen=True):
    approval_request_id: str
    approve: bool
    reason: Annotated[str, Meta(max_length=2000)] | None = None
    id: str | None = None


def decode_item(tree: dict[str, Any], path: str) -> NewItem:
    """Convert a client's item, adding an id if it has none. Raises Refusal, which names the field."""
    match tree.get("type"):
        case "message":
            message = _convert(tree, _Message, path)
            if not 1 <= len(message.content) <= _MAX_PARTS:
                raise Refusal("invalid_value", f"{path}.content must have 1 to {_MAX_PARTS} parts.", f"{path}.content")
            parts = (_part(part, message.role, f"{path}.content[{i}]") for i, part in enumerate(message.content))
            return RawMessage(_id(message.id, path), message.role, tuple(parts), message.parley.pinned)
        case "function_call":
            call = _convert(tree, _Call, path)
            call_id = _name(call.call_id or new_id("call"), f"{path}.call_id")
            _name(call.name, f"{path}.name")
            return CallItem(id=_id(call.id, path), call_id=call_id, name=call.name, arguments=call.arguments)
        case "function_call_output":
            output = _convert(tree, _CallOutput, path)
            _name(output.call_id, f"{path}.call_id")
            return CallOutputItem(id=_id(output.id, path), call_id=output.call_id, output=output.output)
        case "mcp_approval_response":
            response = _convert(tree, _ApprovalResponse, path)
            request_id = _name(response.approval_request_id, f"{path}.approval_request_id")
            reason = response.reason
            return ApprovalResponseItem(
                id=_id(response.id, path), approval_request_id=request_id, approve=response.approve, reason=reason
            )
        case other:
            raise Refusal("invalid_value", f"{path}.type {other!r:.60} is not supported.", f"{path}.type")


def decode_input(tree: Any, path: str) -> NewItem | ItemReference:
    """Convert an entry of ``response.input``: an item, or a reference to one."""
    if not isinstance(tree, dict):
        raise Refusal("invalid_type", f"{path} must be an object.", path)
    item = cast("dict[str, Any]", tree)
    if item.get("type") == "item_reference":
        return ItemReference(_name(str(item.get("id")), f"{path}.id"))
    return decode_item(item, path)


def encode_item(item: Item, sounds: tuple[bytes, ...] | None = None) -> dict[str, Any]:
    """Return an item in the protocol's format. Videos are left out.

    Audio and most camera frames are included only if ``sounds`` is given: the item's audio, part by part
    (``audio_formats.sounds_of``).
    """
    if isinstance(item, HostedItem):
        return encode_hosted(item)
    head = {"id": item.id, "object": "realtime.item", "status": item.status}
    match item:
        case MessageItem(role=role, content=content):
            rest = None if sounds is None else iter(sounds)
            parts = [_encode_content(part, role, rest) for part in content]
            ours = {"parley": {"pinned": True}} if item.pinned else {}
            return {**head, "type": "message", "role": role, "content": parts, **ours}
        case CallItem(call_id=call_id, name=name, arguments=arguments):
            return {**head, "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        case CallOutputItem(call_id=call_id, output=output):
            return {**head, "type": "function_call_output", "call_id": call_id, "output": output}


def _encode_content(content: Content, role: Speaker, sounds: Iterator[bytes] | None) -> dict[str, Any]:
    match content:
        case MessageText(text):
            return {"type": "output_text" if role == "assistant" else "input_text", "text": text}
        case UserAudio(_, transcript):
            audio = {} if sounds is None else {"audio": _base64(next(sounds))}
            return {"type": "input_audio", "transcript": transcript, **audio}
        case MessageImage(url=url, detail=detail, shown=shown):
            image = {"image_url": url} if shown or sounds is not None else {}
            return {"type": "input_image", **image, "detail": detail}
        case MessageVideo(still=still):
            return {"type": "input_image", "image_url": still, "detail": "auto"} if still else {"type": "input_video"}
        case AssistantAudio(text=text, truncated=truncated):
            return {"type": "output_audio", "transcript": None if truncated else text}
        case _:
            assert_never(content)


def _base64(data: bytes) -> orjson.Fragment:
    """Return base64 as a JSON string without scanning megabytes for characters to escape."""
    return orjson.Fragment(b'"' + pybase64.b64encode(data) + b'"')


def picture_url(url: str, path: str) -> str:
    """Return an image's data URI. Raises Refusal if it is too long."""
    if len(url) > _IMAGE_CHARS:
        raise Refusal("invalid_value", f"{path}: the image is too large.", path)
    return url


def _part(part: _Part, role: Speaker, path: str) -> MessageText | RawAudio | RawImage | RawVideo:
    match part.type:
        case "input_text" | "output_text" | "text":
            return MessageText(_needed(part.text, f"{path}.text"))
        case "input_audio" if role == "user":
            try:
                return RawAudio(decode_base64(_needed(part.audio, f"{path}.audio")), part.transcript)
            except MediaError as error:
                raise Refusal("invalid_value", f"{path}.audio: {error}.", f"{path}.audio") from None
        case "input_image" if role == "user":
            url = picture_url(_needed(part.image_url, f"{path}.image_url"), f"{path}.image_url")
            return RawImage(url, (part.detail or "auto")[:_DETAILS])
        case "input_video" if role == "user":
            return RawVideo(_needed(part.video_url, f"{path}.video_url"))
        case "output_audio" if role == "assistant":
            return MessageText(_needed(part.transcript, f"{path}.transcript"))
        case _:
            message = f"{path}.type {part.type!r:.60} is not a content type of a {role} message."
            raise Refusal("invalid_value", message, f"{path}.type")


def _needed(value: str | None, path: str) -> str:
    if value is None:
        raise Refusal("missing_required_parameter", f"{path} is missing.", path)
    return value


def _id(given: str | None, path: str) -> str:
    return new_id("item") if given is None else _name(given, f"{path}.id")


def _name(given: str, path: str) -> str:
    if not 1 <= len(given) <= _MAX_NAME:
        raise Refusal("invalid_value", f"{path} must have 1 to {_MAX_NAME} characters.", path)
    return given


def _convert(tree: dict[str, Any], kind: Any, path: str) -> Any:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        code = "missing_required_parameter" if "missing required" in what else "invalid_type"
        where_in = f"{path}{where.rstrip('`')}"
        raise Refusal(code, f"{where_in}: {what}.", where_in) from None
