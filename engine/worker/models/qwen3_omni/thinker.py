"""The thinker: what is heard, seen and read, to text and tool calls, and to the rows from which the talker speaks."""

from __future__ import annotations

from engine.worker.models.qwen3_omni.encoders import Qwen3OmniAudioEncoder, Qwen3OmniVisionEncoder
from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.omni import thinker


class Thinker(thinker.OmniThinker):
    """Text out, token by token; each token to be spoken goes to the talker by its id."""

    source_class = Qwen3OmniSource
    ears, eyes = Qwen3OmniAudioEncoder, Qwen3OmniVisionEncoder
