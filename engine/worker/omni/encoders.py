"""The encoders of sound and pictures: what is heard and seen in a prompt, as rows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.worker.nn.device import to_device
from engine.worker.nn.encoders import encoder
from engine.worker.nn.weights import Reader
from engine.worker.omni.block import Block
from engine.worker.omni.prompt import Prompt
from engine.worker.omni.source import Source


class Encoders:
    """Transformers' own modules, of the classes that a family names, with the checkpoint's weights."""

    def __init__(self, source: Source, read: Reader, ears: type[Any], eyes: type[Any]) -> None:
        config = source.config.thinker_config
        self._source = source
        self.ears = encoder(ears, config.audio_config, read.below("audio_tower"))
        self.eyes = encoder(eyes, config.vision_config, read.below("visual"))

    def embed(self, embed_tokens: Tensor, asked: Sequence[tuple[Prompt, int]]) -> list[tuple[Tensor, list[Tensor]]]:
        """Return for each prompt the embeddings [ids, width], and what deepstack adds to the first layers.

        Blocks that are ``computed`` already are not encoded: their rows are empty. The sounds of all prompts go through
        the encoder together.
        """
        left = [_left(prompt, computed) for prompt, computed in asked]
        audio_embeds = self._audio_embeds([prompt for prompt, _ in asked], left)
        both = zip(asked, left, audio_embeds, strict=True)
        return [self._filled(embed_tokens, prompt, blocks, sound) for (prompt, _), blocks, sound in both]

    def _filled(
        self, embed_tokens: Tensor, prompt: Prompt, left: Sequence[tuple[int, Block]], audio_embeds: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        marks, device, dtype = self._source.marks, self._source.device, self._source.dtype
        ids = prompt.ids
        new = np.arange(len(ids)) >= min((start for start, _ in left), default=len(ids))
        embeddings, deep = embed_tokens[to_device(ids, device)], list[Tensor]()
        if audio_embeds is not None:
            embeddings[to_device(np.flatnonzero((ids == marks.audio) & new), device)] = audio_embeds
        if pixels := [one.pixels for _, one in left if one.pixels is not None]:
            grids = to_device([one.patches for _, one in left if one.pixels is not None], device)
            seen = self.eyes(torch.cat(pixels).to(device, dtype), grid_thw=grids)
            at = to_device(np.flatnonzero(((ids == marks.image) | (ids == marks.video)) & new), device)
            embeddings[at] = seen.pooler_output
            for features in getattr(seen, "deepstack_features", None) or ():
                deep.append(torch.zeros_like(embeddings))
                deep[-1][at] = features
        return embeddings, deep

    def _audio_embeds(
        self, prompts: Sequence[Prompt], left: Sequence[Sequence[tuple[int, Block]]]
    ) -> list[Tensor | None]:
        """Return the embeddings of what each prompt has left to hear, None where that is nothing.

        An encoder may pad sounds that are shorter than a piece to the longest one it gets, and hear the padding: so a
        prompt's own longest sound decides, whether that one is new or not. Prompts go together whose longest are alike.
        """
        mels = [[one.mel for _, one in blocks if one.mel is not None] for blocks in left]
        padded: dict[int, list[int]] = {}
        for i in (i for i, own in enumerate(mels) if own):
            longest = max(0 if one.mel is None else one.mel.shape[1] for one in prompts[i].blocks)
            padded.setdefault(min(longest, self._source.audio.piece), []).append(i)
        found: list[Tensor | None] = [None] * len(prompts)
        for whole, those in padded.items():
            embeddings = self._hear([mel for i in those for mel in mels[i]], whole)
            counts = [sum(self._source.audio.tokens(mel.shape[1]) for mel in mels[i]) for i in those]
            for i, own in zip(those, embeddings.split(counts), strict=True):
                found[i] = own
        return found

    def _hear(self, mels: Sequence[Tensor], whole: int) -> Tensor:
        """Encode windows [mels, frames], padded to ``whole``, as rows [rows, width]."""
        short = max(mel.shape[1] for mel in mels) < whole
        given = [*mels, *([torch.zeros(len(mels[0]), whole)] if short else [])]
        lengths = to_device([mel.shape[1] for mel in given], self._source.device)
        embeddings = self.ears(torch.cat(given, 1).to(self._source.device, self._source.dtype), feature_lens=lengths)
        count = sum(self._source.audio.tokens(mel.shape[1]) for mel in mels)
        return embeddings.last_hidden_state[:count]


def _left(prompt: Prompt, computed: int) -> list[tuple[int, Block]]:
    """The blocks that reach beyond what is in the cache, and where their rows begin."""
    return [
        (start, one)
        for start, one in zip(prompt.starts, prompt.blocks, strict=True)
        if start + one.num_positions > computed
    ]
