"""The thinker: what is heard, seen and read, to text and tool calls, and to the rows from which the talker speaks."""

from __future__ import annotations

from engine.worker.models.qwen3_omni.encoders import AudioEncoder, VisionEncoder
from engine.worker.models.qwen3_omni.source import Source
from engine.worker.omni import thinker


class Thinker(thinker.Thinker):
    """Text out, token by token; each token to be spoken goes to the talker by its id."""

    source_class = Source
    ears, eyes = AudioEncoder, VisionEncoder
