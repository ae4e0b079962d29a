"""Qwen3-Omni-MoE: text, sound, pictures and video in; text and streaming speech out; as transformers computes it.

The thinker writes text; the talker turns it into codec frames, one text token a frame; code2wav makes them sound. What
goes from the thinker to the talker (``speakable``): the ids of the user's turns with their positions, and, where
sound or pictures stand, the thinker's hidden rows; then one id for each token to be spoken. The talker looks ids up in
the thinker's table of embeddings, which it maps (a GPU has its own), so that no tensor travels for text.

What was computed for a session is kept and taken over by its next request up to where the two prompts differ. A live
turn is prefilled while it is spoken: what comes before it at once, and of it each window of the encoder (eight seconds,
or ``options.window_s``) once that is full. At its end only the open window is left.

On a GPU a step of the thinker, and a whole frame of the talker with its code predictor, are one CUDA graph each, for
batch sizes and context lengths that double. ``options.graphs``: ``auto`` (where there is a GPU), ``on``
(the same steps anywhere; a CPU captures nothing) or ``off``. Prompts are computed kernel by kernel.

It has no recogniser: there is no transcript of what the user said. How far the voice is in the text (``text_end``) is
an estimate.

Source: the checkpoint's config.json and transformers 5.23, models/qwen3_omni_moe. It knows no socket and no session.
"""

from __future__ import annotations

from typing import Any

from engine.core import ModelInfo, Voice
from engine.worker.models.qwen3_omni.code2wav import Code2Wav
from engine.worker.models.qwen3_omni.source import Source
from engine.worker.models.qwen3_omni.talker import Talker
from engine.worker.models.qwen3_omni.thinker import Thinker
from engine.worker.stage import Family, Place


def _info(place: Place) -> ModelInfo:
    source = Source(place)
    abilities: list[Any] = ["text", "audio", "image", "video", "tools", *(["speech"] if source.voices else [])]
    return ModelInfo(
        name="qwen3_omni",
        voices=tuple(Voice(id, id.capitalize()) for id in source.voices),
        languages=(),
        abilities=frozenset(abilities),
        frame_s=0.08,
        context=source.context,
    )


FAMILY = Family(
    info=_info,
    stages={"thinker": Thinker, "talker": Talker, "code2wav": Code2Wav},
    rows_ahead=4096,  # a row is one id: text need not wait for the voice, which eats twelve a second
)
