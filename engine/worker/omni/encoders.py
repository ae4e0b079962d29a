"""The audio and vision encoders: they compute the embeddings of a prompt's media."""

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
"""The vision encoder's rows by picture name: [cells, width], then the deepstack features for the first layers."""
Embedded = tuple[Tensor, list[Tensor], Seen]
"""The embeddings [ids, width] of a prompt, the deepstack features of the first layers, and the encoded pictures."""


AudioEncoder = Callable[[Tensor, Sequence[int]], Tensor]
"""Takes concatenated mel frames [mels, frames] of audio clips, and their lengths; returns rows [rows, width]."""
VisionEncoder = Callable[[Tensor, Sequence[Grid]], list[Tensor]]
"""Takes patches [patches, values] of pictures; returns rows [cells, width], and the deepstack features."""


class Encoders:
    """The audio and vision encoders of an omni model family, with the checkpoint's weights."""

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
        """Return the input embeddings of prompts.

        Media whose rows are already computed are not encoded, and their rows stay empty. The audio of all prompts goes
        through the encoder together.

        Args:
            embed_tokens: The embedding table [ids, width].
            asked: For each prompt, the number of rows already computed, and the pictures already encoded.
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
        """Return one prompt's embeddings, including its pictures."""
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
        """Encode the pictures that are not in ``known``. Return all of them by name."""
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
        """Return the embeddings of each prompt's remaining audio; None if there is none.

        Some encoders pad short clips to the longest one in the batch, and the padding changes the result. So the
        padding depends on the longest clip of a prompt, whether that is new or not. Prompts with the same padding are
        encoded together.
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
        """Encode windows [mels, frames], padded to ``whole`` frames, as rows [rows, width]."""
        short = max(mel.shape[1] for mel in mels) < whole
        given = [*mels, *([torch.zeros(len(mels[0]), whole)] if short else [])]
        lengths = [mel.shape[1] for mel in given]
        sound = torch.cat(given, 1).to(self._source.device, self._source.dtype, non_blocking=True)
        embeddings = self.ears(sound, lengths)
        count = sum(self._source.audio.tokens(mel.shape[1]) for mel in mels)
        return embeddings[:count]


def _left(prompt: Prompt, computed: int) -> list[tuple[int, Block]]:
    """Return the blocks that are not completely in the cache, each with its first row."""
    return [
        (start, one)
        for start, one in zip(prompt.starts, prompt.blocks, strict=True)
        if start + one.num_positions > computed
    ]
