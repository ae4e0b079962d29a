"""Code shared by the two stages of nano's voice: voices, codec shape, loading of networks.

`talker` turns letters into codec frames of 40 ms; `code2wav` decodes them, and `source` renders the result at 24 kHz.
Trained by engine/training/nano. The audio does not depend on how the text or the frames are cut.
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
"""Voices in the order of their ids in the networks. The first is the default."""
WHO = {
    "rms": ("Rms, a man", "en-US"),
    "slt": ("Slt, a woman", "en-US"),
    "awb": ("Awb, a Scottish man", "en-GB"),
}
"""Display name and language of each voice."""
FRAME_S = 0.04
FRAME_SAMPLES = round(FRAME_S * SPEAKER_RATE_HZ)
BOOKS, SIZE, LATENT = 8, 512, 64

Floats = NDArray[np.float32]


def session(config: StageConfig, name: str) -> ort.InferenceSession:
    """Load a network of the voice from the configured folder, or the built-in one. Raises WeightsError."""
    folder = config.weights or Path(__file__).parents[3] / "weights" / "nano"
    return load(folder / f"{name}.onnx", config.threads)


def voice_of(request: Request) -> int:
    """Return the id of the requested voice. Raises RequestError for an unknown voice."""
    if request.voice is None:
        return 0
    if request.voice not in VOICES:
        raise RequestError(f"nano has no voice {request.voice!a:.100} (known: {', '.join(VOICES)})")
    return VOICES.index(request.voice)
