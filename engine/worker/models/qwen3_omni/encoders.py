"""The encoders of sound and pictures: what is heard and seen in a prompt, as rows of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as reference

from engine.worker.models.qwen3_omni.prompt import Prompt
from engine.worker.models.qwen3_omni.sound import audio_tokens
from engine.worker.models.qwen3_omni.source import Source
from engine.worker.nn.device import put
from engine.worker.nn.encoders import encoder
from engine.worker.nn.weights import Reader


class Encoders:
    """Transformers' own modules with the checkpoint's weights."""

    def __init__(self, source: Source, read: Reader) -> None:
        config = source.config.thinker_config
        self._source, self._pieces = source, config.audio_config.n_window
        self.ears = encoder(reference.Qwen3OmniMoeAudioEncoder, config.audio_config, read.below("audio_tower"))
        self.eyes = encoder(reference.Qwen3OmniMoeVisionEncoder, config.vision_config, read.below("visual"))

    def rows(self, words: Tensor, prompt: Prompt, fed: int) -> tuple[Tensor, list[Tensor]]:
        """The prompt's rows [ids, width], words as in their table, and what deepstack adds to the first layers.

        Blocks that lie below ``fed`` are not encoded: their rows are empty.
        """
        marks, device, dtype = self._source.marks, self._source.device, self._source.dtype
        left = [(start, one) for start, one in zip(prompt.starts, prompt.blocks, strict=True) if start + one.rows > fed]
        ids = prompt.ids
        new = np.arange(len(ids)) >= min((start for start, _ in left), default=len(ids))
        rows, deep = words[put(ids, device)], list[Tensor]()
        if mels := [one.mel for _, one in left if one.mel is not None]:
            longest = max(0 if one.mel is None else one.mel.shape[1] for one in prompt.blocks)
            rows[put(np.flatnonzero((ids == marks.audio) & new), device)] = self._hear(mels, longest)
        if pixels := [one.pixels for _, one in left if one.pixels is not None]:
            grids = put([one.patches for _, one in left if one.pixels is not None], device)
            seen = self.eyes(torch.cat(pixels).to(device, dtype), grid_thw=grids)
            at = put(np.flatnonzero(((ids == marks.image) | (ids == marks.video)) & new), device)
            rows[at] = seen.pooler_output
            for features in seen.deepstack_features:
                deep.append(torch.zeros_like(rows))
                deep[-1][at] = features
        return rows, deep

    def _hear(self, mels: Sequence[Tensor], longest: int) -> Tensor:
        """What the encoder makes of windows [mels, frames]: rows [rows, width].

        It pads what is less than a piece to the longest that it gets, and hears that: the prompt's, whether that one is
        new or not.
        """
        whole = min(longest, 2 * self._pieces)
        short = max(mel.shape[1] for mel in mels) < whole
        given = [*mels, *([torch.zeros(len(mels[0]), whole)] if short else [])]
        lengths = put([mel.shape[1] for mel in given], self._source.device)
        rows = self.ears(torch.cat(given, 1).to(self._source.device, self._source.dtype), feature_lens=lengths)
        made = sum(audio_tokens(mel.shape[1], self._pieces) for mel in mels)
        return rows.last_hidden_state[:made]
