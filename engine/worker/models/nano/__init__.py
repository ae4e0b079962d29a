"""nano, the built-in model: ears, eyes, thinker and voice that a laptop's CPU runs faster than one can listen.

How it was made, from what, and what it cannot do: ``engine/training/nano``. numpy, ONNX Runtime and pocketsphinx only.
"""

from __future__ import annotations

from engine.core import ModelInfo, TokenCost
from engine.worker.models.nano.ears import Ears
from engine.worker.models.nano.thinker import CONTEXT, Thinker
from engine.worker.models.nano.voice import FRAME_S, Code2Wav, Talker
from engine.worker.stage import Family, Place


def _info(place: Place) -> ModelInfo:
    return ModelInfo(
        name="nano",
        voices=("rms",),
        abilities=frozenset({"text", "audio", "image", "tools", "speech"}),
        frame_s=FRAME_S,
        context=CONTEXT,
        # A token a character, and a mark for each of the user's words; speech counts as its words, a picture as a
        # third of the line that tells what a turn shows: a camera gives a turn three. No instructions.
        cost=TokenCost(character=1.25, instruction=0.0, audio_s=20.0, image=20.0, message=3.0),
    )


FAMILY = Family(
    info=_info,
    stages={"ears": Ears, "thinker": Thinker, "talker": Talker, "code2wav": Code2Wav},
)
