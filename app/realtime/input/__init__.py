"""The user's side of a session: what the microphone and the camera bring becomes turns."""

from app.realtime.input.audio_buffer import InputAudioBuffer
from app.realtime.input.noise_reduction import available as noise_suppression_available
from app.realtime.input.turn_events import (
    IdleTimedOut,
    OverlapStarted,
    TurnCommitted,
    TurnDropped,
    TurnEvent,
    TurnPaused,
    TurnResumed,
    TurnStarted,
    TurnStopped,
    VoiceBuffered,
)

__all__ = [
    "IdleTimedOut",
    "InputAudioBuffer",
    "OverlapStarted",
    "TurnCommitted",
    "TurnDropped",
    "TurnEvent",
    "TurnPaused",
    "TurnResumed",
    "TurnStarted",
    "TurnStopped",
    "VoiceBuffered",
    "noise_suppression_available",
]
