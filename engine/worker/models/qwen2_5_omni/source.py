"""Qwen2.5-Omni's checkpoint: its config, its voices, its ids with a meaning, and how it lays out sound and video."""

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
    """A voice: the text id ``begin`` with which the talker begins to speak as it; for the sound a speaker's embedding
    ``speaker`` [enc_emb_dim] and a ``mel`` [frames, mel_dim] of a recording."""

    begin: int
    speaker: Tensor
    mel: Tensor


class Qwen2_5OmniSource(source.OmniSource):
    """The checkpoint as every stage sees it."""

    family = "qwen2_5_omni"
    architecture = "Qwen2_5OmniForConditionalGeneration"
    defaults = DEFAULTS
    files = (VOICES,)

    def __init__(self, config: StageConfig) -> None:
        super().__init__(config)
        for decoder in (self.text, self.config.talker_config):  # Qwen2's layers, which the config does not tell
            decoder.qkv_bias = True
            decoder.head_norms = False
            decoder.rope_parameters = {**decoder.rope_parameters, "mrope_interleaved": False}

    @cached_property
    def voices(self) -> Mapping[str, TalkerVoice]:
        """The checkpoint's voices; none where it writes text alone. Raises WeightsError.

        They lie in a file of torch's, of which nothing but tensors and plain values is read.
        """
        if not self.config.enable_audio_output:
            return {}
        file = self.folder / VOICES
        try:
            found = torch.load(file, map_location="cpu", weights_only=True)
            return {str(name).lower(): _voice(one) for name, one in found.items()}
        except FileNotFoundError:
            raise WeightsError(f"{file}: missing; the checkpoint is incomplete, download it again") from None
        except (pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, KeyError, TypeError) as error:
            raise WeightsError(f"{file}: holds no voices that can be read ({type(error).__name__})") from None

    @cached_property
    def marks(self) -> SpecialTokens:
        """Asked for at every step."""
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
        """Positions in time are whole numbers; a video and its sound take turns by chunks of some seconds."""
        thinker = self.config.thinker_config
        per_second = thinker.position_id_per_seconds
        return PairedPositions(self.marks, per_second, int(per_second * thinker.seconds_per_chunk))

    @cached_property
    def talker_feed(self) -> Qwen2_5TalkerFeed:
        return Qwen2_5TalkerFeed(self.marks, bool(self.voices))

    @cached_property
    def audio(self) -> AudioLayout:
        """Windows of 2 n_window frames; every sound is padded to the longest that the extractor takes."""
        window = 2 * self.config.thinker_config.audio_config.n_window
        padded = int(read_json(self.folder / "preprocessor_config.json").get("n_samples", 4_800_000))
        return AudioLayout(window, audio_tokens, padded=padded, shortest_s=0.03)


def audio_tokens(frames: int) -> int:
    """Rows that the encoder makes of so many mel frames: one of four."""
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


def _voice(found: Mapping[str, Any]) -> TalkerVoice:
    mel = found["ref_mel"].float()
    return TalkerVoice(int(found["bos_token"]), found["cond"].float().flatten(), mel.reshape(-1, mel.shape[-1]))
