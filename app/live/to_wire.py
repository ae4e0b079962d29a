"""Encoding of the OpenAI Live protocol: the JSON of its server events.

Source: openai-python ``types/live``. Stateless.
"""

from __future__ import annotations

from typing import Any

import orjson

from app.ids import new_id
from app.live.timeline import TimedText
from app.refusal import Refusal

Wire = dict[str, Any]


def text_of(event: Wire) -> str:
    """Return the JSON of an event with a new id."""
    return orjson.dumps({"event_id": new_id("event"), **event}).decode()


def error(refusal: Refusal, event_id: str | None) -> Wire:
    param = {} if refusal.param is None else {"param": refusal.param}
    told = {"type": refusal.kind, "code": refusal.code, "message": str(refusal), **param, **answers(event_id)}
    return {"type": "error", "error": told}


def error_text(refusal: Refusal, event_id: str | None) -> str:
    return text_of(error(refusal, event_id))


def transcript(side: str, fragment: TimedText) -> Wire:
    """Return a transcript event. ``side`` is "input" or "output"."""
    span = {"start_ms": fragment.start_ms, "end_ms": fragment.end_ms}
    return {"type": f"session.{side}_transcript.delta", "delta": fragment.text, **span}


def delegation(id: str, target: str, response_id: str | None, offset_ms: int) -> Wire:
    named = {} if response_id is None else {"response_id": response_id}
    created = {"id": id, "type": "delegation", "target": target, **named}
    return {"type": "session.delegation.created", "delegation": created, "offset_ms": offset_ms}


def answers(event_id: str | None) -> Wire:
    """Return the field that names the client's event."""
    return {} if event_id is None else {"client_event_id": event_id}
