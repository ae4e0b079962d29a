"""Decoding of the OpenAI Live protocol: from a client event's JSON text to an event of the session.

Source: openai-python ``types/live/client_event``. Stateless.
"""

from __future__ import annotations

from typing import Annotated, Any, cast, get_args

import msgspec
from msgspec import Meta, Struct

from app import strict_json
from app.ids import new_id
from app.media.audio import MediaError, decode_base64
from app.realtime.protocol import MessageText, NewItem, RawMessage
from app.realtime.protocol.client_events import AddContext, AppendAudio, ClientEvent, CloseSession, MuteInput
from app.realtime.protocol.from_wire import MAX_AUDIO_CHARS
from app.realtime.protocol.wire_items import decode_item
from app.refusal import Refusal

MOST_CONTEXT_CHARS = 8_000
"""Maximum characters of one append. The protocol allows 500 tokens, which are fewer characters in any language."""


class Start(Struct, frozen=True, tag_field="type", tag="session.start"):
    session: dict[str, Any]


class Update(Struct, frozen=True, tag_field="type", tag="session.update"):
    session: dict[str, Any]


class Append(Struct, frozen=True, tag_field="type", tag="session.input_audio.append"):
    audio: str


class Mute(Struct, frozen=True, tag_field="type", tag="session.input_audio.mute"):
    pass


class Unmute(Struct, frozen=True, tag_field="type", tag="session.input_audio.unmute"):
    pass


class Context(Struct, frozen=True, tag_field="type"):
    """Text for the LLM, which may belong to a delegation."""

    content: Annotated[str, Meta(min_length=1, max_length=MOST_CONTEXT_CHARS)]
    delegation_id: str | None = None


class Commentary(Context, frozen=True, tag="session.commentary.append"):
    pass


class Thinking(Context, frozen=True, tag="session.thinking.append"):
    pass


class Instructions(Context, frozen=True, tag="session.instructions.append"):
    pass


class LiveCreateItem(Struct, frozen=True, tag_field="type", tag="response.item.create"):
    item: dict[str, Any]


class LiveCreateResponse(Struct, frozen=True, tag_field="type", tag="response.create"):
    pass


class LiveClose(Struct, frozen=True, tag_field="type", tag="session.close"):
    pass


Plain = Append | Mute | Unmute | LiveCreateItem | LiveCreateResponse | LiveClose
"""Events that mean the same in every session."""

Said = Plain | Start | Update | Commentary | Thinking | Instructions

_KINDS: dict[str, type[Struct]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Said)}

_NOT_SERVED = {
    "session.output_audio.fixture.play": "Audio fixtures are",
    "decision.create": "Decisions are",
    "decision.item.create": "Decisions are",
    "decision.item.delete": "Decisions are",
    "transport.dtmf.send": "DTMF tones sent by the server are",
}


def parse(text: str) -> tuple[str | None, Said]:
    """Return the client's event id, and the event. Raises Misread."""
    try:
        tree = strict_json.decode(text)
    except strict_json.BadJson as error:
        raise Misread(Refusal("invalid_json", f"The message is not valid JSON: {error}."), None) from None
    if not isinstance(tree, dict):
        raise Misread(Refusal("invalid_event", "An event must be a JSON object with a 'type'."), None)
    event = cast("dict[str, Any]", tree)
    name = event.get("event_id")
    event_id = name[:512] if isinstance(name, str) else None
    try:
        return event_id, _said(event)
    except Refusal as refusal:
        raise Misread(refusal, event_id) from None


class Misread(Exception):
    """The message is not a valid event; ``refusal`` has the reason."""

    def __init__(self, refusal: Refusal, event_id: str | None) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.event_id = event_id


def _said(event: dict[str, Any]) -> Said:
    kind = event.get("type")
    if not isinstance(kind, str):
        raise Refusal("missing_required_parameter", "The event has no 'type'.", "type")
    if kind in _NOT_SERVED:
        raise Refusal("not_supported", f"{_NOT_SERVED[kind]} not supported.", "type")
    if kind not in _KINDS:
        message = f"Unknown client event {kind[:100]!r} in a Live session; Realtime events belong to /v1/realtime."
        raise Refusal("unknown_event", message, "type")
    try:
        return msgspec.convert(event, _KINDS[kind])  # pyright: ignore[reportReturnType]
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        code = "missing_required_parameter" if "missing required" in what else "invalid_type"
        raise Refusal(code, f"{kind}: {what}.", where.rstrip("`") or None) from None


def plain(said: Plain) -> ClientEvent:
    """Convert an event that does not depend on the session's state. Raises Refusal."""
    match said:
        case Append(audio):
            return AppendAudio(_sound(audio))
        case Mute() | Unmute():
            return MuteInput(isinstance(said, Mute))
        case LiveCreateItem(item):
            return AddContext(_item(item), answer=False, purpose="item")
        case LiveCreateResponse():
            return AddContext(None, answer=True, purpose="response")
        case LiveClose():
            return CloseSession()


def message(role: str, text: str) -> NewItem:
    """Return a message item."""
    return RawMessage(new_id("item"), "user" if role == "user" else "system", (MessageText(text),))


def _item(tree: dict[str, Any]) -> NewItem:
    """Convert an input item of Responses: a message's content may be a string, and developers count as system."""
    item: dict[str, Any] = {"type": "message", **tree}
    if item.get("role") == "developer":
        item["role"] = "system"
    if item["type"] == "message" and isinstance(item.get("content"), str):
        item["content"] = [{"type": "input_text", "text": item["content"]}]
    if item["type"] == "function_call_output" and isinstance(item.get("output"), list):
        parts = cast("list[Any]", item["output"])
        texts = (cast("dict[str, Any]", one).get("text") for one in parts if isinstance(one, dict))
        item["output"] = "".join(text for text in texts if isinstance(text, str))
    return decode_item(item, "item")


def _sound(audio: str) -> bytes:
    if len(audio) > MAX_AUDIO_CHARS:
        raise Refusal("invalid_value", "audio is longer than 15 MiB; append it in pieces.", "audio")
    try:
        return decode_base64(audio)
    except MediaError as error:
        raise Refusal("invalid_value", f"audio: {error}.", "audio") from None
