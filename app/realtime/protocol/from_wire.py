"""The OpenAI Realtime GA protocol, on its way in: a client event's JSON text to a command of ours.

``events`` (in), ``events_out`` (out) and ``events_items`` (items, both ways) are the only files that know this wire
format. Source: the event classes of openai-python ``types/realtime``. Stateless; whatever comes in, ``decode`` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct

from app import strict_json
from app.media import MediaError, decode_base64
from app.realtime.protocol import client_events
from app.realtime.protocol.client_events import ClientEvent, Received
from app.realtime.protocol.wire_items import decode_input, decode_item, picture_url
from app.refusal import Refusal

MAX_AUDIO_CHARS = 15 * 1024 * 1024
"""The protocol's limit on one ``input_audio_buffer.append``, in base64."""

MAX_MESSAGE_BYTES = 16 * 1024 * 1024 + 64 * 1024
"""A whole text frame: the audio above in its envelope. A larger one closes the connection with 1009."""

MAX_INPUTS = 2000
"""Items of one ``response.input``: as many as a conversation holds, unless the server's settings say otherwise."""

MAX_DELAY_MS = 2000
"""The longest delay: more than any player buffers of a call, so a client that reports more did not measure."""


def decode(text: str) -> Received:
    """Decode what the client said, or a Refusal in its place. Never raises for what a client sends."""
    event_id: str | None = None
    try:
        event = _parse(text)
        name = event.get("event_id")
        event_id = name[:512] if isinstance(name, str) else None
        return Received(_client_event(event), event_id)
    except Refusal as refusal:
        return Received(refusal, event_id)


class _Update(Struct, frozen=True):
    session: dict[str, Any]


class _Append(Struct, frozen=True):
    audio: str


class _Create(Struct, frozen=True):
    item: dict[str, Any]
    previous_item_id: str | None = None


class _ItemId(Struct, frozen=True):
    item_id: str


class _Truncate(Struct, frozen=True):
    item_id: str
    content_index: int
    audio_end_ms: int


class _CreateResponse(Struct, frozen=True):
    response: dict[str, Any] | None = None


class _Cancel(Struct, frozen=True):
    response_id: str | None = None


class _Frame(Struct, frozen=True):
    image_url: str


class _Delay(Struct, frozen=True):
    delay_ms: float


class _Bare(Struct, frozen=True):
    pass


def _append(event: _Append) -> ClientEvent:
    if len(event.audio) > MAX_AUDIO_CHARS:
        raise Refusal("invalid_value", "audio is longer than 15 MiB; append it in pieces.", "audio")
    try:
        return client_events.AppendAudio(decode_base64(event.audio))
    except MediaError as error:
        raise Refusal("invalid_value", f"audio: {error}.", "audio") from None


def _create(event: _Create) -> ClientEvent:
    return client_events.CreateItem(decode_item(event.item, "item"), event.previous_item_id)


def _truncate(event: _Truncate) -> ClientEvent:
    return client_events.TruncateItem(event.item_id, event.content_index, event.audio_end_ms)


def _create_response(event: _CreateResponse) -> ClientEvent:
    """``conversation`` and ``input`` say what the answer is about; the rest changes settings for this one answer."""
    patch = dict(event.response or {})
    kept, inputs = patch.pop("conversation", None) != "none", patch.pop("input", None)
    if inputs is None:
        return client_events.CreateResponse(patch, kept)
    if not isinstance(inputs, list):
        raise Refusal("invalid_type", "response.input must be a list of items.", "response.input")
    if len(cast("list[Any]", inputs)) > MAX_INPUTS:
        raise Refusal("invalid_value", f"response.input holds more than {MAX_INPUTS} items.", "response.input")
    items = tuple(decode_input(item, f"response.input[{i}]") for i, item in enumerate(cast("list[Any]", inputs)))
    return client_events.CreateResponse(patch, kept, items)


def _delay(event: _Delay) -> ClientEvent:
    if not 0 <= event.delay_ms <= MAX_DELAY_MS:
        raise Refusal("invalid_value", f"delay_ms must be from 0 to {MAX_DELAY_MS}.", "delay_ms")
    return client_events.PlayoutDelay(event.delay_ms / 1000)


_EVENTS: dict[str, tuple[type[Struct], Callable[[Any], ClientEvent]]] = {
    "session.update": (_Update, lambda event: client_events.UpdateSession(event.session)),
    "input_audio_buffer.append": (_Append, _append),
    "input_audio_buffer.commit": (_Bare, lambda _: client_events.CommitAudio()),
    "input_audio_buffer.clear": (_Bare, lambda _: client_events.ClearAudio()),
    "output_audio_buffer.clear": (_Bare, lambda _: client_events.ClearOutputAudio()),
    "conversation.item.create": (_Create, _create),
    "conversation.item.retrieve": (_ItemId, lambda event: client_events.RetrieveItem(event.item_id)),
    "conversation.item.truncate": (_Truncate, _truncate),
    "conversation.item.delete": (_ItemId, lambda event: client_events.DeleteItem(event.item_id)),
    "response.create": (_CreateResponse, _create_response),
    "response.cancel": (_Cancel, lambda event: client_events.CancelResponse(event.response_id)),
    # Ours, and optional:
    "parley.camera.frame": (
        _Frame,
        lambda event: client_events.EncodedCameraFrame(picture_url(event.image_url, "image_url")),
    ),
    "parley.playout.delay": (_Delay, _delay),
}


def _parse(text: str) -> dict[str, Any]:
    try:
        event = strict_json.decode(text)
    except strict_json.BadJson as error:
        raise Refusal("invalid_json", f"The message is not valid JSON: {error}.") from None
    if not isinstance(event, dict):
        raise Refusal("invalid_event", "An event is a JSON object with a 'type'.")
    return cast("dict[str, Any]", event)


def _client_event(event: dict[str, Any]) -> ClientEvent:
    name = event.get("type")
    if not isinstance(name, str):
        raise Refusal("missing_required_parameter", "The event has no 'type'.", "type")
    if name not in _EVENTS:
        raise Refusal("unknown_event", f"There is no client event {name[:100]!r}.", "type")
    kind, make = _EVENTS[name]
    try:
        fields = msgspec.convert(event, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        code = "missing_required_parameter" if "missing required" in what else "invalid_type"
        raise Refusal(code, f"{name}: {what}.", where.rstrip("`") or None) from None
    return make(fields)
