"""Code that the two stages of nano's voice share: its voices, the codec's shape, and how a network is opened and run.

Talker (`talker`): letters to codec frames of 40 ms. Code2Wav (`code2wav`): those to what `source` renders at 24 kHz.
Numpy and ONNX Runtime only; trained by engine/training/nano. Neither stage knows the thinker, a socket or another
request, and how the text or the frames are cut never changes the sound.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engine.core import SPEAKER_RATE_HZ, Request
from engine.errors import RequestError
from engine.worker.models.nano.inference import load
from engine.worker.stage import StageConfig

VOICES = ("rms", "slt", "awb")
"""Voices by their number in the networks. The first is the one that speaks where none is asked for."""
WHO = {
    "rms": ("Rms, a man", "en-US"),
    "slt": ("Slt, a woman", "en-US"),
    "awb": ("Awb, a Scottish man", "en-GB"),
}
"""The name that people call each voice, and its language."""
FRAME_S = 0.04
FRAME_SAMPLES = round(FRAME_S * SPEAKER_RATE_HZ)
BOOKS, SIZE, LATENT = 8, 512, 64

Floats = NDArray[np.float32]


def session(config: StageConfig, name: str) -> ort.InferenceSession:
    """Load one network of the voice, from the configured folder or the built-in one. Raises WeightsError."""
    folder = config.weights or Path(__file__).parents[3] / "weights" / "nano"
    return load(folder / f"{name}.onnx", config.threads)


def voice_of(request: Request) -> int:
    """The number of the voice that is asked for. Raises RequestError where there is none."""
    if request.voice is None:
        return 0
    if request.voice not in VOICES:
        raise RequestError(f"nano has no voice {request.voice!a:.100}: {', '.join(VOICES)}")
    return VOICES.index(request.voice)
