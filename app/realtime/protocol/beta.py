"""The Realtime API's beta, which ended in 2026: detection of its clients, and the error they receive.

Such clients would not know the events and would send settings that are ignored. They are refused with one sentence and
OpenAI's error code. Source: openai-python and openai-node, ``beta/realtime``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.refusal import Refusal

CODE = "beta_api_shape_disabled"
CLOSE = 4000
"""The close code that OpenAI uses for such a WebSocket."""

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
"""The beta's fields, and their present names."""


def asked_for(header: str, subprotocols: Iterable[str]) -> bool:
    """Return whether a client requests the beta, by its ``OpenAI-Beta`` header or a browser's subprotocols."""
    header_words = {one.strip().lower() for one in header.split(",")}
    return "realtime=v1" in header_words or "openai-beta.realtime-v1" in subprotocols


def refusal() -> Refusal:
    message = (
        "The Realtime beta is not supported: remove the OpenAI-Beta header, and send sessions in the GA format, "
        'as in {"type": "realtime", "output_modalities": ["audio"], "audio": {"input": {}, "output": {}}}.'
    )
    return Refusal(CODE, message)


def check_shape(patch: dict[str, Any], path: str) -> None:
    """Raise Refusal for settings in the beta's format. Next to GA fields, its fields are unknown fields like any
    other.
    """
    if "audio" in patch or "output_modalities" in patch:
        return
    if old := [name for name in _PLACES if name in patch]:
        moved = ", ".join(f"{path}.{name} is {path}.{_PLACES[name]}" for name in old)
        raise Refusal(CODE, f"These settings use the beta's format; in the GA format {moved}.", f"{path}.{old[0]}")
