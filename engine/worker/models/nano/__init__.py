"""nano, the built-in model: speech recognition, vision, language and voice for a laptop CPU.

All parts run faster than real time and need only numpy, ONNX Runtime and pocketsphinx. ``engine/training/nano``
documents the training, the data and the limits.
"""

STAGES = {
    "ears": f"{__name__}.ears:Ears",
    "thinker": f"{__name__}.thinker:Thinker",
    "talker": f"{__name__}.talker:Talker",
    "code2wav": f"{__name__}.code2wav:Code2Wav",
}
