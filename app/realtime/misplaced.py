"""The refusals of events that make no sense on a session's transport, which carries sound in another way."""

from __future__ import annotations

from app.realtime.protocol import client_events
from app.refusal import Refusal


def misplaced(
    event: client_events.AppendAudio | client_events.ClearOutputAudio | client_events.PlayoutDelay,
) -> Refusal:
    """Return what the client is told of such an event."""
    match event:
        case client_events.AppendAudio():
            message = "The microphone's track is heard on this transport; audio can't be appended as well."
        case client_events.PlayoutDelay():
            message = "Here the client plays, and knows what was heard: truncate the item."
        case client_events.ClearOutputAudio():
            message = "output_audio_buffer.clear is for transports on which the server plays: cancel the response."
    return Refusal("invalid_event_for_transport", message, "type")
