"""The user's side of a session: what the microphone and the camera bring becomes turns."""

from app.realtime.input.audio_buffer import InputAudioBuffer
from app.realtime.input.turn_events import TurnEvent

__all__ = [
    "InputAudioBuffer",
    "TurnEvent",
]
