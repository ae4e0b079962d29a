"""The user's side of a session: what the microphone and the camera bring becomes turns."""

from app.realtime.input.audio_buffer import InputAudioBuffer
from app.realtime.input.turn_events import (
    IdleTimedOut,
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
    "TurnCommitted",
    "TurnDropped",
    "TurnEvent",
    "TurnPaused",
    "TurnResumed",
    "TurnStarted",
    "TurnStopped",
    "VoiceBuffered",
]
