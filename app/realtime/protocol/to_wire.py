"""Encoding of the OpenAI Realtime GA protocol: from server events to JSON texts.

One event may become several on the wire, in the protocol's order. The session decides the order of events. Stateless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

import msgspec
import orjson
import pybase64

from app.ids import new_id
from app.realtime.protocol import server_events
from app.realtime.protocol.items import Item
from app.realtime.protocol.server_events import ServerEvent
from app.realtime.protocol.wire_hosted import hosted_events
from app.realtime.protocol.wire_items import encode_item

WireEvent = dict[str, Any]


def encode(event: ServerEvent, numbers: Iterator[int] | None = None) -> list[str]:
    """Return the JSON texts of an event, each with an id, and with a number if the client asked for them.

    Some events become several on the wire: a complete item is both ``added`` and ``done``.
    """
    wires = (_numbered(one, numbers) for one in _wire_events(event))
    if not isinstance(event, server_events.DtmfReceivedEvent):  # the only protocol event without an id
        wires = ({"event_id": new_id("event"), **one} for one in wires)
    return [orjson.dumps(one).decode() for one in wires]


def _numbered(wire: WireEvent, numbers: Iterator[int] | None) -> WireEvent:
    """Add a sequence number to our extension's fields."""
    return wire if numbers is None else {**wire, "parley": {**wire.get("parley", {}), "seq": next(numbers)}}


def _wire_events(event: ServerEvent) -> list[WireEvent]:
    if isinstance(event, server_events.ResponseEvent):
        return _response_events(event)
    if isinstance(event, server_events.PlainEvent):
        return [{"type": _PLAIN[type(event)], **msgspec.structs.asdict(event)}]
    if isinstance(event, server_events.InputEvent):
        return _input_events(event)
    if isinstance(event, server_events.ItemEvent):
        return _item_events(event)
    if isinstance(event, server_events.CallEvent):
        return _call_events(event)
    if isinstance(event, server_events.HostedToolEvent):
        return hosted_events(event, _item_event)
    if isinstance(event, server_events.LiveEvent):
        return []
    return _session_events(event)


_PLAIN: dict[type[server_events.PlainEvent], str] = {
    server_events.SpeechStartedEvent: "input_audio_buffer.speech_started",
    server_events.TimeoutTriggeredEvent: "input_audio_buffer.timeout_triggered",
    server_events.AudioCommittedEvent: "input_audio_buffer.committed",
    server_events.AudioClearedEvent: "input_audio_buffer.cleared",
    server_events.ItemDeletedEvent: "conversation.item.deleted",
    server_events.OutputAudioStartedEvent: "output_audio_buffer.started",
    server_events.OutputAudioStoppedEvent: "output_audio_buffer.stopped",
    server_events.OutputAudioClearedEvent: "output_audio_buffer.cleared",
    server_events.TranscriptionDeltaEvent: "conversation.item.input_audio_transcription.delta",
    # Our extensions, only for clients that request them:
    server_events.QueueUpdatedEvent: "parley.queue.updated",
    server_events.SummarizedEvent: "parley.conversation.summarized",
    server_events.TranscriptionPartialEvent: "parley.input_audio_transcription.partial",
    server_events.SpeakerFoundEvent: "parley.input_audio_transcription.speaker",
    server_events.OutputAudioPausedEvent: "parley.output_audio.paused",
    server_events.OutputAudioResumedEvent: "parley.output_audio.resumed",
}
"""Wire types of the events that are encoded field by field."""


def _session_events(event: server_events.SessionEvent) -> list[WireEvent]:
    match event:
        case server_events.SessionCreatedEvent(session):  # no conversation.created: clients expect session.updated next
            return [{"type": "session.created", "session": encode_session(session)}]
        case server_events.SessionUpdatedEvent(session):
            return [{"type": "session.updated", "session": encode_session(session)}]
        case (
            server_events.SessionEndedEvent() | server_events.ObeyedEvent()
        ):  # confirm events that this dialect does not have
            return []
        case server_events.RateLimitsEvent(limit, remaining):
            requests = {"name": "requests", "limit": limit, "remaining": remaining, "reset_seconds": 0.0}
            return [{"type": "rate_limits.updated", "rate_limits": [requests]}]
        case server_events.ErrorEvent(refusal, event_id):
            error = {"type": refusal.kind, "code": refusal.code, "message": str(refusal), "param": refusal.param}
            return [{"type": "error", "error": {**error, "event_id": event_id}}]
        case _:
            assert_never(event)


def _input_events(event: server_events.InputEvent) -> list[WireEvent]:
    match event:
        case server_events.SpeechStoppedEvent(item_id, end_ms, probability, turn_ms):
            stopped = {"type": "input_audio_buffer.speech_stopped", "item_id": item_id, "audio_end_ms": end_ms}
            ours = {**_turn_ms(turn_ms), **_over_probability(probability)}
            return [{**stopped, "parley": ours} if ours else stopped]
        case server_events.DtmfReceivedEvent(key, at_s):
            return [{"type": "input_audio_buffer.dtmf_event_received", "event": key, "received_at": at_s}]
        case server_events.TranscriptionCompletedEvent(item_id, transcript, seconds):
            usage = {"type": "duration", "seconds": round(seconds, 3)}
            text = {"item_id": item_id, "content_index": 0, "transcript": transcript}
            return [{"type": f"{_TRANSCRIPTION}.completed", **text, "usage": usage}]
        case server_events.TranscriptionFailedEvent(item_id, code, message):
            error = {"type": "server_error", "code": code, "message": message}
            return [{"type": f"{_TRANSCRIPTION}.failed", "item_id": item_id, "content_index": 0, "error": error}]
        case _:
            assert_never(event)


_TRANSCRIPTION = "conversation.item.input_audio_transcription"


def _item_events(event: server_events.ItemEvent) -> list[WireEvent]:
    match event:
        case server_events.ItemAddedEvent(item, previous_id):
            return [_item_event("added", item, previous_id), _item_event("done", item, previous_id)]
        case server_events.ItemRetrievedEvent(item, sounds):
            return [{"type": "conversation.item.retrieved", "item": encode_item(item, sounds)}]
        case server_events.ItemTruncatedEvent(item_id, content_index, audio_end_ms, played_text):
            where = {"item_id": item_id, "content_index": content_index, "audio_end_ms": audio_end_ms}
            return [{"type": "conversation.item.truncated", **where, "parley": {"heard_text": played_text}}]
        case _:
            assert_never(event)


def _response_events(event: server_events.ResponseEvent) -> list[WireEvent]:
    match event:
        case server_events.ResponseCreatedEvent(response):
            return [{"type": "response.created", "response": _response(response)}]
        case server_events.MessageCreatedEvent(ref, item, previous_id):
            return [
                *_output_item("added", ref, item, previous_id),
                {"type": "response.content_part.added", **_content(ref), "part": _content_part(ref, "")},
            ]
        case server_events.TextDeltaEvent(ref, text):
            kind = "output_audio_transcript" if ref.spoken else "output_text"
            return [{"type": f"response.{kind}.delta", **_content(ref), "delta": text}]
        case server_events.AudioDeltaEvent(ref, pcm):
            delta = pybase64.b64encode(pcm).decode("ascii")
            return [{"type": "response.output_audio.delta", **_content(ref), "delta": delta}]
        case server_events.AudioAlignmentEvent(ref, marks):  # our extension, only for clients that enabled it
            return [{"type": "parley.output_audio.alignment", **_content(ref), "marks": marks}]
        case server_events.MessageDoneEvent(ref, item, text, previous_id):
            return [
                *_content_done(ref, text),
                {"type": "response.content_part.done", **_content(ref), "part": _content_part(ref, text)},
                *_output_item("done", ref, item, previous_id),
            ]
        case server_events.ResponseDoneEvent(response):
            return [{"type": "response.done", "response": _response(response)}]
        case _:
            assert_never(event)


def _call_events(event: server_events.CallEvent) -> list[WireEvent]:
    match event:
        case server_events.CallCreatedEvent(ref, item, previous_id):
            return _output_item("added", ref, item, previous_id)
        case server_events.CallDeltaEvent(ref, call_id, text):
            return [{"type": f"{_ARGUMENTS}.delta", **_called(ref, call_id), "delta": text}]
        case server_events.CallDoneEvent(ref, item, previous_id):
            done = {**_called(ref, item.call_id), "name": item.name, "arguments": item.arguments}
            return [{"type": f"{_ARGUMENTS}.done", **done}, *_output_item("done", ref, item, previous_id)]
        case _:
            assert_never(event)


def _output_item(moment: str, ref: server_events.OutputItemRef, item: Item, previous_id: str | None) -> list[WireEvent]:
    """Return ``response.output_item`` and, if the conversation contains the item, ``conversation.item`` events."""
    head = {"response_id": ref.response_id, "output_index": ref.index}
    output: WireEvent = {"type": f"response.output_item.{moment}", **head, "item": encode_item(item)}
    kept = [_item_event(moment, item, previous_id)] if ref.kept else []
    return [output, *kept] if moment == "added" else [*kept, output]


def _item_event(moment: str, item: Item, previous_id: str | None) -> WireEvent:
    """Return an item event. ``previous_item_id`` is null for the first item, since some clients distinguish null from
    absent.
    """
    return {"type": f"conversation.item.{moment}", "previous_item_id": previous_id, "item": encode_item(item)}


def _content(ref: server_events.OutputItemRef) -> WireEvent:
    ids = {"response_id": ref.response_id, "item_id": ref.item_id}
    return {**ids, "output_index": ref.index, "content_index": 0}


def _content_part(ref: server_events.OutputItemRef, text: str) -> WireEvent:
    return {"type": "audio", "transcript": text} if ref.spoken else {"type": "text", "text": text}


def _content_done(ref: server_events.OutputItemRef, text: str) -> list[WireEvent]:
    if not ref.spoken:
        return [{"type": "response.output_text.done", **_content(ref), "text": text}]
    return [
        {"type": "response.output_audio.done", **_content(ref)},
        {"type": "response.output_audio_transcript.done", **_content(ref), "transcript": text},
    ]


_ARGUMENTS = "response.function_call_arguments"


def _called(ref: server_events.OutputItemRef, call_id: str) -> WireEvent:
    ids = {"response_id": ref.response_id, "item_id": ref.item_id}
    return {**ids, "output_index": ref.index, "call_id": call_id}


def encode_session(view: server_events.SessionView) -> WireEvent:
    """Encode a session's options and state as the API's session object."""
    options: WireEvent = msgspec.to_builtins(view.options)
    options["tools"] += view.tool_servers
    kind = "realtime.session"
    if not view.options.can_respond:
        kind = "realtime.transcription_session"
        audio = {"input": options["audio"]["input"]}
        options = {"type": options["type"], "include": options["include"], "audio": audio}
    head = {"id": view.id, "object": kind, "expires_at": view.expires_at_s}
    ours = {**view.loaded, **msgspec.to_builtins(view.options.parley)}
    return {**head, **options, "parley": ours}


def _response(view: server_events.ResponseView) -> WireEvent:
    output = view.options.audio.output
    done = view.outcome != "in_progress"
    return {
        "object": "realtime.response",
        "id": view.id,
        "status": view.outcome,
        "status_details": _status_details(view) if done else None,
        "output": [encode_item(item) for item in view.output],
        "conversation_id": view.conversation_id,
        "output_modalities": view.options.output_modalities,
        "max_output_tokens": view.options.max_output_tokens,
        "audio": {"output": {"format": msgspec.to_builtins(output.format), "voice": output.voice}},
        "usage": _usage(view.usage) if view.usage else None,
        "metadata": view.options.metadata,
        **({"parley": _ledger(view)} if view.ledger is not None else {}),
    }


def _status_details(view: server_events.ResponseView) -> WireEvent:
    details: WireEvent = {"type": view.outcome}
    if view.reason is not None:
        details["reason"] = view.reason
    if view.error is not None:
        code, message = view.error
        details["error"] = {"type": "server_error", "code": code, "message": message}
    return details


def _usage(usage: server_events.ResponseUsage) -> WireEvent:
    """Return the usage object. Cached tokens of any kind count as text in the protocol's breakdown."""
    output = usage.text_tokens + usage.audio_tokens
    typed = usage.input_tokens - usage.audio_input_tokens - usage.image_tokens
    kinds = {"text_tokens": typed, "audio_tokens": usage.audio_input_tokens, "image_tokens": usage.image_tokens}
    cached = {"text_tokens": usage.cached_tokens, "audio_tokens": 0, "image_tokens": 0}
    return {
        "total_tokens": usage.input_tokens + output,
        "input_tokens": usage.input_tokens,
        "output_tokens": output,
        "input_token_details": {**kinds, "cached_tokens": usage.cached_tokens, "cached_tokens_details": cached},
        "output_token_details": {"text_tokens": usage.text_tokens, "audio_tokens": usage.audio_tokens},
    }


def _ledger(view: server_events.ResponseView) -> WireEvent:
    """Return the parts of the time to first audio: an extension of the protocol."""
    terms = {name: round(ms, 3) for name, ms in (view.ledger or {}).items()}
    ahead = {"ahead_ms": round(view.ahead_ms, 3)} if view.ahead_ms else {}
    turn = _turn_ms(view.turn_ms)
    over = _over_probability(view.over_probability)
    counts = {} if view.turn_counts is None else {"turns": view.turn_counts}
    return {"ledger": {"ttfa_ms": round(view.ttfa_ms or 0.0, 3), "terms_ms": terms, **ahead, **turn, **over, **counts}}


def _turn_ms(silence_ms: float | None) -> WireEvent:
    """Return the silence that ended the turn: ours, not the protocol's."""
    return {} if silence_ms is None else {"turn_ms": round(silence_ms, 3)}


def _over_probability(probability: float | None) -> WireEvent:
    """Return how sure the end-of-turn model was that the turn was over: ours, not the protocol's."""
    return {} if probability is None else {"over_probability": round(probability, 3)}
