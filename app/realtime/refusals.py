"""Refusals of a session: events that its transport cannot obey, and responses that it cannot start or stop."""

from __future__ import annotations

from app.realtime.protocol import client_events
from app.refusal import Refusal

_ACTIVE = "conversation_already_has_active_response"


def wrong_transport(
    event: client_events.AppendAudio | client_events.ClearOutputAudio | client_events.PlayoutDelay,
) -> Refusal:
    """Return the refusal of an event that the session's transport carries in another way."""
    match event:
        case client_events.AppendAudio():
            message = "This transport receives the microphone as a media track: audio can't be appended."
        case client_events.PlayoutDelay():
            message = "On this transport the client plays the audio: truncate the item instead."
        case client_events.ClearOutputAudio():
            message = "This transport can't clear output audio, since the client plays it: cancel the response."
    return Refusal("invalid_event_for_transport", message, "type")


def response_active(id: str) -> Refusal:
    """Return the error for requesting a response while the conversation's response ``id`` is in progress."""
    message = f"Conversation already has an active response in progress: {id}. Wait until it is finished."
    return Refusal(_ACTIVE, message)


def voice_active() -> Refusal:
    """Return the refusal of a second spoken response where the server plays: two voices would be mixed."""
    return Refusal(_ACTIVE, "A spoken response is being played: ask for text only, or wait until it has ended.")


def too_many_responses(count: int) -> Refusal:
    """Return the refusal of one more out-of-band response."""
    return Refusal("too_many_responses", f"{count} responses are in progress; wait until one has ended.")


def no_active_response(id: str | None) -> Refusal:
    """Return the refusal of a cancellation: response ``id``, or any response, is not in progress."""
    message = "Cancellation failed: no active response found"
    return Refusal("response_cancel_not_active", message, None if id is None else "response_id")


def not_in_duplex(
    event: client_events.CommitAudio
    | client_events.CreateItem
    | client_events.CreateResponse
    | client_events.AddContext,
    model: str,
) -> Refusal:
    """Return the refusal of an event that has no effect on a duplex model.

    Requests for a response have the code that clients expect while the model answers already.
    """
    duplex = f"{model} listens while it speaks"
    match event:
        case client_events.CommitAudio():
            message = f"{duplex}: it has heard all audio, and there is nothing to commit."
            return Refusal("input_audio_buffer_commit_empty", message)
        case client_events.CreateResponse():
            return Refusal(_ACTIVE, f"{duplex}, and decides itself when to speak: just talk to it.")
        case client_events.CreateItem() | client_events.AddContext():
            message = f"{duplex}, and reads only system messages from before the first audio: say it instead."
            return Refusal("not_supported", message, "type")
