"""The thinker stage: audio, images and text to text and tool calls, and to the messages for the talker."""

from __future__ import annotations

from engine.worker.models.qwen3_omni.encoders import Qwen3OmniAudioEncoder, Qwen3OmniVisionEncoder
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.omni import thinker


class Thinker(thinker.OmniThinker):
    """Writes text token by token, and sends each token to speak to the talker by its id."""

    source_class = Qwen3OmniSource
    ears, eyes = Qwen3OmniAudioEncoder, Qwen3OmniVisionEncoder
