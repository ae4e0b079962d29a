"""The encoders of sound and pictures: what is heard and seen in a prompt, as rows of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.worker.nn.device import to_device
from engine.worker.nn.encoder import Grid
from engine.worker.nn.weights import WeightReader
from engine.worker.omni.block import Block, PictureGrid
from engine.worker.omni.prompt import Prompt
from engine.worker.omni.source import OmniSource

Seen = dict[int, tuple[Tensor, ...]]
"""The encoder's rows of pictures [cells, width], by their names, and what deepstack adds to the first layers."""
Embedded = tuple[Tensor, list[Tensor], Seen]
"""Embeddings [ids, width] of a prompt, what deepstack adds to the first layers, and what is seen in rows to come."""


AudioEncoder = Callable[[Tensor, Sequence[int]], Tensor]
"""Frames [mels, frames] of sounds, which have such lengths, to rows [rows, width]."""
VisionEncoder = Callable[[Tensor, Sequence[Grid]], list[Tensor]]
"""Patches [patches, values] of pictures to rows [cells, width], and to those of deepstack."""


class Encoders:
    """The networks that a family names, with the checkpoint's weights."""

    def __init__(
        self,
        source: OmniSource,
        read: WeightReader,
        ears: Callable[[WeightReader, Any], AudioEncoder],
        eyes: Callable[[WeightReader, Any], VisionEncoder],
    ) -> None:
        config = source.config.thinker_config
        self._source = source
        self.ears = ears(read.below("audio_tower"), config.audio_config)
        self.eyes = eyes(read.below("visual"), config.vision_config)

    def embed(self, embed_tokens: Tensor, asked: Sequence[tuple[Prompt, int, Seen]]) -> list[Embedded]:
        """Make the rows of prompts, of which so many are computed already, and so much is known that is seen.

        What lies in computed rows is not encoded: they are empty. The sounds of all prompts go through the encoder
        together.
        """
        left, device = [_left(prompt, computed) for prompt, computed, _ in asked], self._source.device
        prompts = [prompt for prompt, _, _ in asked]
        embeddings = embed_tokens[to_device(np.concatenate([one.ids for one in prompts]), device)]
        sounds, counts = self._audio_embeds(prompts, left), [len(one.ids) for one in prompts]
        audio_at = [
            first + start + one.audio_indices
            for first, blocks in zip(np.cumsum([0, *counts[:-1]]).tolist(), left, strict=True)
            for start, one in blocks
            if one.mel is not None
        ]
        if audio_at:
            given = torch.cat([own for own in sounds if own is not None])
            embeddings[to_device(np.concatenate(audio_at), device)] = given
        each = zip(embeddings.split(counts), asked, left, strict=True)
        return [self._shown(own, *one, blocks) for own, one, blocks in each]

    def _shown(
        self, embeddings: Tensor, prompt: Prompt, computed: int, known: Seen, left: Sequence[tuple[int, Block]]
    ) -> Embedded:
        """Embeddings of one prompt with what is seen in it."""
        device, deep = self._source.device, list[Tensor]()
        shown = [
            (start + indices, picture)
            for start, one in left
            for indices, picture in zip(one.visual_indices, one.pictures, strict=True)
            if start + indices[-1] >= computed
        ]
        seen = self._seen([*(picture for _, picture in shown), *prompt.ahead], known)
        if shown:
            at = to_device(np.concatenate([indices for indices, _ in shown]), device)
            embeddings[at], *more = map(torch.cat, zip(*(seen[picture.name] for _, picture in shown), strict=True))
            for features in more:
                deep.append(torch.zeros_like(embeddings))
                deep[-1][at] = features
        return embeddings, deep, seen

    def _seen(self, pictures: Sequence[PictureGrid], known: Seen) -> Seen:
        """Encode those of some pictures that are not known."""
        new = {one.name: one for one in pictures if one.name not in known}
        found = {one.name: known[one.name] for one in pictures if one.name in known}
        if new:
            device, dtype = self._source.device, self._source.dtype
            pixels = torch.cat([one.pixels for one in new.values()]).to(device, dtype, non_blocking=True)
            features = self.eyes(pixels, [one.patches for one in new.values()])
            cells = [math.prod(one.grid) for one in new.values()]
            found |= zip(new, zip(*(one.split(cells) for one in features), strict=True), strict=True)
        return found

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
        lengths = [mel.shape[1] for mel in given]
        sound = torch.cat(given, 1).to(self._source.device, self._source.dtype, non_blocking=True)
        embeddings = self.ears(sound, lengths)
        count = sum(self._source.audio.tokens(mel.shape[1]) for mel in mels)
        return embeddings[:count]


def _left(prompt: Prompt, computed: int) -> list[tuple[int, Block]]:
    """The blocks that reach beyond what is in the cache, and where their rows begin."""
    return [
        (start, one)
        for start, one in zip(prompt.starts, prompt.blocks, strict=True)
        if start + one.num_positions > computed
    ]
