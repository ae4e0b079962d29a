"""Qwen2.5-Omni checkpoint: configuration, voices, special tokens, and layout of audio and video."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from engine.errors import WeightsError
from engine.worker.models.qwen2_5_omni.defaults import DEFAULTS
from engine.worker.models.qwen2_5_omni.feed import Qwen2_5TalkerFeed
from engine.worker.models.qwen2_5_omni.positions import PairedPositions
from engine.worker.nn.weights import read_json
from engine.worker.omni import source
from engine.worker.omni.sound import AudioLayout
from engine.worker.omni.special_tokens import SpecialTokens
from engine.worker.stage import StageConfig

CODE_S = 0.02
VOICES = "spk_dict.pt"


@dataclass(frozen=True, slots=True, eq=False)
class TalkerVoice:
    """A voice of the checkpoint."""

    begin: int
    """Text token with which the talker starts to speak in this voice."""
    speaker: Tensor
    """Speaker embedding [enc_emb_dim]."""
    mel: Tensor
    """Mel spectrogram [frames, mel_dim] of a recording."""


class Qwen2_5OmniSource(source.OmniSource):
    """The checkpoint, as used by every stage."""

    family = "qwen2_5_omni"
    architecture = "Qwen2_5OmniForConditionalGeneration"
    defaults = DEFAULTS
    files = (VOICES,)

    def __init__(self, config: StageConfig) -> None:
        super().__init__(config)
        for decoder in (self.text, self.config.talker_config):  # implied by Qwen2, but missing in config.json
            decoder.qkv_bias = True
            decoder.head_norms = False
            decoder.rope_parameters = {**decoder.rope_parameters, "mrope_interleaved": False}

    @cached_property
    def voices(self) -> Mapping[str, TalkerVoice]:
        """The checkpoint's voices; empty for text-only checkpoints. Raises WeightsError.

        The file is a torch pickle, loaded with ``weights_only``.
        """
        if not self.config.enable_audio_output:
            return {}
        file = self.folder / VOICES
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
            return {str(name).lower(): _voice(one) for name, one in found.items()}
        except FileNotFoundError:
            raise WeightsError(f"{file} is missing, so the checkpoint is incomplete. Download it again.") from None
        except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, KeyError, TypeError) as error:
            raise WeightsError(f"{file} has no readable voices ({type(error).__name__}). Download it again.") from None

    @cached_property
    def marks(self) -> SpecialTokens:
        """Special tokens (cached, because every step uses them)."""
        thinker = self.config.thinker_config
        return SpecialTokens(
            audio=thinker.audio_token_index,
            image=thinker.image_token_index,
            video=thinker.video_token_index,
            audio_start=thinker.audio_start_token_id,
            audio_end=thinker.audio_end_token_id,
        )

    @cached_property
    def positions(self) -> PairedPositions:
        """Rope positions with integer times; a video and its audio alternate in chunks of ``seconds_per_chunk``."""
        thinker = self.config.thinker_config
        per_second = thinker.position_id_per_seconds
        return PairedPositions(self.marks, per_second, int(per_second * thinker.seconds_per_chunk))

    @cached_property
    def talker_feed(self) -> Qwen2_5TalkerFeed:
        return Qwen2_5TalkerFeed(self.marks, bool(self.voices))

    @cached_property
    def audio(self) -> AudioLayout:
        """Audio layout: windows of 2 n_window frames; each sound is padded to the extractor's maximum length."""
        window = 2 * self.config.thinker_config.audio_config.n_window
        padded = int(read_json(self.folder / "preprocessor_config.json").get("n_samples", 4_800_000))
        return AudioLayout(window, audio_tokens, padded=padded, shortest_s=0.03)


def audio_tokens(frames: int) -> int:
    """Return the number of encoder rows for a number of mel frames: one per four frames."""
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


def _voice(found: Mapping[str, Any]) -> TalkerVoice:
    mel = found["ref_mel"].float()
    return TalkerVoice(int(found["bos_token"]), found["cond"].float().flatten(), mel.reshape(-1, mel.shape[-1]))
