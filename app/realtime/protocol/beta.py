"""The Realtime API's beta, which ended in 2026: how a client that still speaks it is recognised, and the refusal it
gets.

Its clients would be answered in events that they don't know, and their settings ignored: they are refused in one
sentence, with the code that the hosted service has for it. Source: openai-python and openai-node, ``beta/realtime``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.refusal import Refusal

CODE = "beta_api_shape_disabled"
CLOSE = 4000
"""The code with which the hosted service closes such a WebSocket."""

_PLACES = {
    "modalities": "output_modalities",
    "voice": "audio.output.voice",
    "input_audio_format": "audio.input.format",
    "output_audio_format": "audio.output.format",
    "input_audio_transcription": "audio.input.transcription",
    "input_audio_noise_reduction": "audio.input.noise_reduction",
    "turn_detection": "audio.input.turn_detection",
    "max_response_output_tokens": "max_output_tokens",
}
"""The beta's fields, and where they are since."""


def asked_for(header: str, subprotocols: Iterable[str]) -> bool:
    """Whether a client wants the beta, by its ``OpenAI-Beta`` header or a browser's subprotocols."""
    header_words = {one.strip().lower() for one in header.split(",")}
    return "realtime=v1" in header_words or "openai-beta.realtime-v1" in subprotocols


def refusal() -> Refusal:
    message = (
        "The Realtime beta is not served: leave out the OpenAI-Beta header, and send sessions in the GA shape, "
        'as in {"type": "realtime", "output_modalities": ["audio"], "audio": {"input": {}, "output": {}}}.'
    )
    return Refusal(CODE, message)


def check_shape(patch: dict[str, Any], path: str) -> None:
    """Raises Refusal for settings in the beta's shape. Fields of it beside GA's are unknown fields like any other."""
    if "audio" in patch or "output_modalities" in patch:
        return
    if old := [name for name in _PLACES if name in patch]:
        moved = ", ".join(f"{path}.{name} is {path}.{_PLACES[name]}" for name in old)
        raise Refusal(CODE, f"These settings have the beta's shape; in the GA shape {moved}.", f"{path}.{old[0]}")
