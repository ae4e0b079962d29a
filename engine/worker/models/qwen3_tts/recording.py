"""Recordings of people as what a voice is made of: codec frames, and the embedding of who speaks.

Computed once, at the start, in float32 on the CPU. Knows no stage.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import MimiConfig, MimiModel

from engine.core import Wave
from engine.worker.models.qwen3_tts.source import Source
from engine.worker.models.qwen3_tts.speaker import SpeakerEncoder
from engine.worker.nn.weights import Checkpoint, Reader


class Recordings:
    """The encoders of a Base checkpoint."""

    def __init__(self, source: Source) -> None:
        read = Reader(source.checkpoint, "speaker_encoder.", torch.device("cpu"), torch.float32)
        self._speaker = SpeakerEncoder(read, source.config.speaker_encoder_config)
        sizes = source.codec.config
        self._books, self._samples = sizes["encoder_valid_num_quantizers"], sizes["encode_downsample_rate"]
        self._encoder = _mimi(source.codec, sizes["encoder_config"])

    @torch.inference_mode()
    def speaker(self, wave: Wave) -> torch.Tensor:
        """The embedding [width] of who speaks in a recording at 24 kHz."""
        return self._speaker(torch.from_numpy(wave))

    @torch.inference_mode()
    def frames(self, wave: Wave) -> NDArray[np.int16]:
        """The codec frames [frames, groups] of a recording at 24 kHz; the last may be cut off in it."""
        codes = self._encoder.encode(torch.from_numpy(wave)[None, None], return_dict=True).audio_codes
        count = -(-len(wave) // self._samples)
        return codes[0, : self._books, :count].T.contiguous().numpy().astype(np.int16)


def _mimi(checkpoint: Checkpoint, config: dict[str, Any]) -> Any:
    """The codec's encoder, which is Mimi's without its decoder (Défossez et al. 2024)."""
    logging.getLogger("transformers.modeling_rope_utils").setLevel(logging.ERROR)
    model: Any = MimiModel(MimiConfig(**config)).eval().requires_grad_(False)
    state = {
        name: checkpoint.tensor(f"encoder.{_old(name)}", value.shape).float()
        for name, value in model.state_dict().items()
        if name.startswith(("encoder.", "quantizer.")) and not name.endswith("initialized")
    }
    model.load_state_dict(state, strict=False)
    return model


def _old(name: str) -> str:
    """The name of a weight in the checkpoint: transformers has moved the parts of the encoder together since."""
    return re.sub(r"^encoder\.(encoder_transformer|downsample)", r"\1", name).replace("encoder_seanet.", "")
