"""Encodes recordings for voice cloning, to codec frames and speaker embeddings.

Runs once at startup, in float32 on the CPU.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from engine.core import Wave
from engine.worker.models.qwen3_tts.source import Qwen3TtsSource
from engine.worker.models.qwen3_tts.speaker import SpeakerEmbedder
from engine.worker.nn.conv import ConvBatch
from engine.worker.nn.mimi import MimiEncoder, mimi_sizes
from engine.worker.nn.weights import WeightReader


class Recordings:
    """The encoders of a Base checkpoint."""

    def __init__(self, source: Qwen3TtsSource) -> None:
        read = WeightReader(source.checkpoint, "speaker_encoder.", torch.device("cpu"), torch.float32)
        self._speaker = SpeakerEmbedder(read, source.config.speaker_encoder_config)
        sizes = source.codec.config
        self._samples = sizes["encode_downsample_rate"]
        read = WeightReader(source.codec, "encoder.", torch.device("cpu"), torch.float32)
        config = mimi_sizes(sizes["encoder_config"], f"{source.codec.folder}: encoder_config")
        self._encoder = MimiEncoder(read, config, sizes["encoder_valid_num_quantizers"])

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
        first = torch.zeros(1, dtype=torch.long)
        codes = self._encoder(torch.from_numpy(wave)[None], first, ConvBatch(first, fresh=True))
        return codes[0, :count].numpy().astype(np.int16)
