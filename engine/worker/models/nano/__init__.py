"""nano, the built-in model: ears, eyes, thinker and voice that a laptop's CPU runs faster than one can listen.

How it was made, from what, and what it cannot do: ``engine/training/nano``. numpy, ONNX Runtime and pocketsphinx only.
"""

from __future__ import annotations

from engine.core import Ability, ModelInfo, TokenCost, Voice
from engine.worker.models.nano.code2wav import Code2Wav
from engine.worker.models.nano.deaf import Deaf, hears
from engine.worker.models.nano.talker import Talker
from engine.worker.models.nano.thinker import Thinker
from engine.worker.models.nano.tokens import CONTEXT
from engine.worker.models.nano.voice import FRAME_S, VOICES, WHO
from engine.worker.stage import Family, Place, Stage

ABILITIES: frozenset[Ability] = frozenset({"text", "audio", "image", "tools", "speech"})
EXAMPLES = (
    "What can you do?",
    "What is seventeen plus twenty five?",
    "Spell the word morning.",
    "What day comes after Tuesday?",
    "Count to nine.",
    "My name is Anna.",
    "Repeat after me: good morning.",
)


def _info(place: Place) -> ModelInfo:
    return ModelInfo(
        name="nano",
        voices=tuple(Voice(id, *WHO[id]) for id in VOICES),
        abilities=ABILITIES if hears() else ABILITIES - {"audio"},
        frame_s=FRAME_S,
        context=CONTEXT,
        # A word and its mark are two tokens, but a word that is not known has a token a letter; speech counts as its
        # words, a picture is one mark. No instructions.
        cost=TokenCost(character=0.6, instruction=0.0, audio_s=10.0, image=1.0, message=3.0),
        examples=EXAMPLES,
    )


def _ears(place: Place) -> Stage:
    if not hears():
        return Deaf(place)
    from engine.worker.models.nano.ears import Ears

    return Ears(place)


FAMILY = Family(
    info=_info,
    stages={"ears": _ears, "thinker": Thinker, "talker": Talker, "code2wav": Code2Wav},
)
