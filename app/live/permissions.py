"""Permissions of a Live call's data channel: which events an untrusted page may send and receive.

Source: openai-python ``types/live/data_channel_config``. Sidebands are not restricted. Stateless.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, cast

import msgspec
import orjson
from msgspec import Struct

from app.realtime.protocol import Received
from app.refusal import Refusal


class _Selector(Struct, frozen=True, omit_defaults=True):
    type: str
    response_event: str | None = None


class DataChannelConfig(Struct, frozen=True, omit_defaults=True):
    """The client's ``client.data_channel``. None allows all events."""

    allowed_client_events: Literal["all"] | list[str] | None = None
    allowed_server_events: Literal["all"] | list[_Selector] | None = None


class ClientConfig(Struct, frozen=True):
    """The client's ``client``."""

    data_channel: DataChannelConfig


@dataclass(frozen=True, slots=True)
class Permissions:
    """The events that one data channel may carry; None means all."""

    client: frozenset[str] | None = None
    server: frozenset[tuple[str, str | None]] | None = None
    shown: dict[str, Any] = field(default_factory=dict[str, Any])
    """The settings as the client sees them."""

    def refused(self, text: str) -> Received | None:
        """Return the refusal of a client's message; None if it may pass."""
        if self.client is None:
            return None
        event = _event(text)
        kind = event.get("type")
        if not isinstance(kind, str) or kind in self.client:
            return None  # what is no event at all is refused by the dialect
        name = event.get("event_id")
        message = f"client.data_channel does not allow {kind[:100]!r} on the data channel; send it over a sideband."
        return Received(Refusal("event_not_allowed", message, "type"), name[:512] if isinstance(name, str) else None)

    def passes(self, text: str) -> bool:
        """Return whether the page may receive an event."""
        if self.server is None:
            return True
        event = _event(text)
        inner = cast("dict[str, Any]", event["event"])["type"] if event["type"] == "response.event" else None
        return (event["type"], inner) in self.server


def permissions_of(client: ClientConfig | None) -> Permissions:
    """Return the permissions of a ``session.start``. Raises Refusal."""
    if client is None:
        return Permissions()
    config = client.data_channel
    sent, received = config.allowed_client_events, config.allowed_server_events
    for i, one in enumerate(received if isinstance(received, list) else ()):
        if (one.type == "response.event") != (one.response_event is not None):
            path = f"session.client.data_channel.allowed_server_events[{i}].response_event"
            raise Refusal("invalid_value", f"{path} belongs to the type 'response.event', and only to it.", path)
    return Permissions(
        frozenset(sent) if isinstance(sent, list) else None,
        frozenset((one.type, one.response_event) for one in received) if isinstance(received, list) else None,
        msgspec.to_builtins(client),
    )


def _event(text: str) -> dict[str, Any]:
    try:
        tree = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", tree) if isinstance(tree, dict) else {}
