"""nano, the built-in model: ears, eyes, thinker and voice that a laptop's CPU runs faster than one can listen.

How it was made, from what, and what it cannot do: ``engine/training/nano``. numpy, ONNX Runtime and pocketsphinx only.
"""

STAGES = {
    "ears": f"{__name__}.ears:Ears",
    "thinker": f"{__name__}.thinker:Thinker",
    "talker": f"{__name__}.talker:Talker",
    "code2wav": f"{__name__}.code2wav:Code2Wav",
}
