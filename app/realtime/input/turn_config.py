"""The settings of the turn detector: from those of the session and the server, and from the present moment."""

from __future__ import annotations

from typing import Literal

from app.realtime.input.noise_reduction import MARGIN_DB
from app.realtime.input.speculation import Speculation
from app.realtime.input.turn_detector import TurnConfig
from app.realtime.ports import EndpointingContext
from app.realtime.protocol import SemanticVad, ServerVad, SessionOptions
from app.realtime.session_context import SessionContext
from app.settings import TurnSettings

HAND_PAUSE_MS = 1000
"""Silence after which a response is begun at the latest while the user holds a key."""

Speaker = tuple[Literal["any", "first", "enrolled"], str | None]
"""Whose speech opens a turn, and the voiceprint of an enrolled voice."""

NEVER_MS = 24 * 3_600_000
"""Milliseconds beyond any session's life."""


def turn_config(
    detection: ServerVad | SemanticVad,
    options: SessionOptions,
    context: SessionContext,
    speculation: Speculation,
    moment: EndpointingContext,
    overlap_ms: int,
    wait_factor: float,
    echo_gain_db: float,
) -> TurnConfig:
    """Return the detector's settings at ``moment``; speech shorter than ``overlap_ms`` begins no turn.

    ``wait_factor`` multiplies the waits of an end-of-turn model (``WaitTuner``). ``echo_gain_db`` is the level of the
    loudest possible echo relative to the playback.
    """
    match detection:
        case ServerVad(silence_duration_ms=silence_ms):
            pass
        case SemanticVad():
            silence_ms = context.end_of_turn_model(detection.end_of_turn).silence_ms(moment, detection.waits)
            silence_ms = round(wait_factor * silence_ms)
    noise_reduction = options.audio.input.noise_reduction
    return TurnConfig(
        threshold=detection.threshold,
        prefix_padding_ms=detection.prefix_padding_ms,
        silence_duration_ms=silence_ms,
        min_speech_ms=context.turns.min_speech_ms,
        echo_gain_db=echo_gain_db,
        pause_ms=speculation.pause_ms(silence_ms) if options.auto_responds else silence_ms,
        overlap_ms=overlap_ms,
        margin_db=0.0 if noise_reduction is None else MARGIN_DB * noise_reduction.strength,
    )


def manual_config(turns: TurnSettings, speculation: Speculation) -> TurnConfig:
    """Return the detector's settings for turns that the client commits: no silence ends one."""
    return TurnConfig(
        silence_duration_ms=NEVER_MS,
        min_speech_ms=turns.min_speech_ms,
        pause_ms=speculation.pause_ms(HAND_PAUSE_MS) if turns.guess_ms else NEVER_MS,
    )


def speaker_of(options: SessionOptions, context: SessionContext) -> Speaker:
    """Return whose speech opens a turn: the session's setting, or else the server's."""
    detection = options.audio.input.turn_detection
    if detection is None or context.speaker_encoder is None:
        return "any", None
    if detection.speaker == "auto":
        return context.turns.speaker, None
    return detection.speaker, detection.voiceprint
