"""The settings of the turn detector: from those of the session and the server, and from how things stand."""

from __future__ import annotations

from app.realtime.input.noise_reduction import MARGIN_DB
from app.realtime.input.speculation import Speculation
from app.realtime.input.turn_detector import TurnConfig
from app.realtime.ports import Moment
from app.realtime.protocol import Options, SemanticVad, ServerVad
from app.realtime.session_context import SessionContext

HAND_PAUSE_MS = 1000
"""Silence after which an answer is begun at the latest while the user holds a key."""

NEVER_MS = 24 * 3_600_000
"""Milliseconds beyond any session's life."""


def turn_config(
    options: Options, context: SessionContext, speculation: Speculation, moment: Moment, overlap_ms: int
) -> TurnConfig:
    """Return the detector's settings at ``moment``, where speech has to last for ``overlap_ms`` to begin."""
    detection, turns = options.audio.input.turn_detection, context.turns
    if detection is None:  # it finds only when to listen, and when to begin an answer: no silence ends the turn
        return TurnConfig(
            silence_duration_ms=NEVER_MS,
            min_speech_ms=turns.min_speech_ms,
            echo_guard=False,
            pause_ms=speculation.pause_ms(HAND_PAUSE_MS) if turns.guess_ms else NEVER_MS,
        )
    match detection:
        case ServerVad(silence_duration_ms=silence_ms):
            pass
        case SemanticVad():
            silence_ms = context.judge.silence_ms(moment, detection.waits)
    return TurnConfig(
        detection.threshold,
        detection.prefix_padding_ms,
        silence_ms,
        turns.min_speech_ms,
        turns.echo_guard,
        speculation.pause_ms(silence_ms) if options.auto_responds else silence_ms,
        overlap_ms,
        _margin_db(options),
    )


def _margin_db(options: Options) -> float:
    """The user's voice is taken to be so far above those around."""
    wanted = options.audio.input.noise_reduction
    return 0.0 if wanted is None else MARGIN_DB * wanted.strength
