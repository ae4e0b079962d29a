"""Encodes recordings for voice cloning, to codec frames and speaker embeddings.

Runs once at startup, in float32 on the CPU.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from engine.core import Wave
from engine.worker.models.qwen3_tts.mimi import MimiEncoder
from engine.worker.models.qwen3_tts.source import Qwen3TtsSource
from engine.worker.models.qwen3_tts.speaker import SpeakerEncoder
from engine.worker.nn.weights import WeightReader


class Recordings:
    """The encoders of a Base checkpoint."""

    def __init__(self, source: Qwen3TtsSource) -> None:
        read = WeightReader(source.checkpoint, "speaker_encoder.", torch.device("cpu"), torch.float32)
        self._speaker = SpeakerEncoder(read, source.config.speaker_encoder_config)
        sizes = source.codec.config
        self._samples = sizes["encode_downsample_rate"]
        read = WeightReader(source.codec, "encoder.", torch.device("cpu"), torch.float32)
        self._encoder = MimiEncoder(read, sizes["encoder_config"], sizes["encoder_valid_num_quantizers"])

    @torch.inference_mode()
    def speaker(self, wave: Wave) -> torch.Tensor:
        """Return the speaker embedding [width] of a recording at 24 kHz."""
        return self._speaker(torch.from_numpy(wave))

    @torch.inference_mode()
    def frames(self, wave: Wave) -> NDArray[np.int16]:
        """Encode a recording, which must be at 24 kHz, to codec codes [frames, groups].

        Its end is padded to a whole frame.
        """
        count = -(-len(wave) // self._samples)
        return self._encoder(torch.from_numpy(wave))[:, :count].T.contiguous().numpy().astype(np.int16)
