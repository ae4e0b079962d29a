"""Decoding of the OpenAI Realtime GA protocol: from a client event's JSON text to an event of ``client_events``.

Only this module, ``to_wire``, ``wire_items`` and ``wire_hosted`` know the wire format. Events whose fields need no
decoding are converted directly. Source: openai-python ``types/realtime``. Stateless.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from app import strict_json
from app.media.audio import MediaError, decode_base64
from app.realtime.protocol import client_events
from app.realtime.protocol.client_events import ClientEvent, Received
from app.realtime.protocol.wire_items import decode_input, decode_item, picture_url
from app.refusal import Refusal

MAX_AUDIO_CHARS = 15 * 1024 * 1024
"""The protocol's limit on one ``input_audio_buffer.append``, in base64 characters."""

MAX_MESSAGE_BYTES = 16 * 1024 * 1024 + 64 * 1024
"""Maximum bytes of a text frame: the audio above with its envelope. A larger frame closes the connection with 1009."""

MAX_INPUTS = 2000
"""Maximum items of one ``response.input``: as many as a conversation holds by default."""

MAX_DELAY_MS = 2000
"""Maximum delay. No player buffers a call for longer, so a client that reports more did not measure it."""


def decode(text: str) -> Received:
    """Decode a client's message. Returns a Refusal for an invalid one; never raises."""
    event_id: str | None = None
    try:
        event = _parse(text)
        name = event.get("event_id")
        event_id = name[:512] if isinstance(name, str) else None
        return Received(_client_event(event), event_id)
    except Refusal as refusal:
        return Received(refusal, event_id)


class _Encoded(Struct, frozen=True):
    """An event whose fields need more decoding than their JSON types."""

    def decoded(self) -> ClientEvent:
        """Decode the event. Raises Refusal."""
        raise NotImplementedError


class _Append(_Encoded, frozen=True):
    audio: str

    def decoded(self) -> ClientEvent:
        if len(self.audio) > MAX_AUDIO_CHARS:
            raise Refusal("invalid_value", "audio is longer than 15 MiB; append it in pieces.", "audio")
        try:
            return client_events.AppendAudio(decode_base64(self.audio))
        except MediaError as error:
            raise Refusal("invalid_value", f"audio: {error}.", "audio") from None


class _Create(_Encoded, frozen=True):
    item: dict[str, Any]
    previous_item_id: str | None = None

    def decoded(self) -> ClientEvent:
        return client_events.CreateItem(decode_item(self.item, "item"), self.previous_item_id)


class _CreateResponse(_Encoded, frozen=True):
    response: dict[str, Any] | None = None

    def decoded(self) -> ClientEvent:
        """Split the fields: ``conversation`` and ``input`` select the prompt, all others are settings of this
        response.
        """
        patch = dict(self.response or {})
        kept, inputs = patch.pop("conversation", None) != "none", patch.pop("input", None)
        if inputs is None:
            return client_events.CreateResponse(patch, kept)
        if not isinstance(inputs, list):
            raise Refusal("invalid_type", "response.input must be a list of items.", "response.input")
        entries = cast("list[Any]", inputs)
        if len(entries) > MAX_INPUTS:
            raise Refusal("invalid_value", f"response.input has more than {MAX_INPUTS} items.", "response.input")
        items = tuple(decode_input(item, f"response.input[{i}]") for i, item in enumerate(entries))
        return client_events.CreateResponse(patch, kept, items)


class _Frame(_Encoded, frozen=True):
    image_url: str

    def decoded(self) -> ClientEvent:
        return client_events.EncodedCameraFrame(picture_url(self.image_url, "image_url"))


class _Delay(_Encoded, frozen=True):
    delay_ms: float

    def decoded(self) -> ClientEvent:
        if not 0 <= self.delay_ms <= MAX_DELAY_MS:
            raise Refusal("invalid_value", f"delay_ms must be from 0 to {MAX_DELAY_MS}.", "delay_ms")
        return client_events.PlayoutDelay(self.delay_ms / 1000)


_EVENTS: dict[str, type[ClientEvent | _Encoded]] = {
    "session.update": client_events.UpdateSession,
    "input_audio_buffer.append": _Append,
    "input_audio_buffer.commit": client_events.CommitAudio,
    "input_audio_buffer.clear": client_events.ClearAudio,
    "output_audio_buffer.clear": client_events.ClearOutputAudio,
    "conversation.item.create": _Create,
    "conversation.item.retrieve": client_events.RetrieveItem,
    "conversation.item.truncate": client_events.TruncateItem,
    "conversation.item.delete": client_events.DeleteItem,
    "response.create": _CreateResponse,
    "response.cancel": client_events.CancelResponse,
    # Our extensions, all optional:
    "parley.camera.frame": _Frame,
    "parley.playout.delay": _Delay,
}


def _parse(text: str) -> dict[str, Any]:
    try:
        event = strict_json.decode(text)
    except strict_json.BadJson as error:
        raise Refusal("invalid_json", f"The message is not valid JSON: {error}.") from None
    if not isinstance(event, dict):
        raise Refusal("invalid_event", "An event must be a JSON object with a 'type'.")
    return cast("dict[str, Any]", event)


def _client_event(event: dict[str, Any]) -> ClientEvent:
    name = event.get("type")
    if not isinstance(name, str):
        raise Refusal("missing_required_parameter", "The event has no 'type'.", "type")
    if name not in _EVENTS:
        raise Refusal("unknown_event", f"Unknown client event {name[:100]!r}.", "type")
    try:
        fields = msgspec.convert(event, _EVENTS[name])
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        code = "missing_required_parameter" if "missing required" in what else "invalid_type"
        raise Refusal(code, f"{name}: {what}.", where.rstrip("`") or None) from None
    return fields.decoded() if isinstance(fields, _Encoded) else fields
