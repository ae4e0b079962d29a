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
from engine.deployment.did_you_mean import nearest
from engine.errors import ConfigError, RequestError
from engine.worker.models.nano.inference import load
from engine.worker.stage import StageConfig

VOICES = ("rms", "slt", "awb")
"""Voices in the order of their ids in the networks."""
WHO = {
    "rms": ("Ross, a man", "en-US"),
    "slt": ("Sally, a woman", "en-US"),
    "awb": ("Angus, a man", "en-GB"),
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


def default_voice(config: StageConfig) -> str:
    """Return the voice of requests that name none: the option ``voice``, or the first voice.

    Raises ConfigError for an unknown voice.
    """
    name = config.options.get("voice") or VOICES[0]
    if name not in VOICES:
        raise ConfigError(f"options.voice: there is no voice {name!r:.80} ({nearest(str(name), VOICES)})")
    return name


def voice_of(request: Request, default: str) -> int:
    """Return the id of the requested voice, or of the default one. Raises RequestError for an unknown voice."""
    name = default if request.voice is None else request.voice
    if name not in VOICES:
        raise RequestError(f"nano has no voice {name!a:.100} (known: {', '.join(VOICES)})")
    return VOICES.index(name)
