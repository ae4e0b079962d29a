"""Prefills through a decoder stack, as CUDA graphs if kernels are used: one per row count, to which batches are padded.

Without graphs, even a short prompt takes about two thousand launches, and the GPU waits for nearly all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.worker.nn.captured import Captured, Given
from engine.worker.nn.cuda_graph_runner import doubled
from engine.worker.nn.decoder import TransformerDecoder
from engine.worker.nn.slots import Batch, KvSlots, PiecesInPlace, pieces_in_place

FEWEST, MOST = 32, 2048  # minimum and maximum rows of a graph; larger batches take several
PER_BLOCK = 16  # minimum rows of a kernel's block, except for the last of a piece
AXES = 3  # axes of rope positions


class Prefills:
    """Runs batches into a cache, see ``TransformerDecoder.append``. If ``static``, the cache's last slot is for
    padding.
    """

    def __init__(self, name: str, decoder: TransformerDecoder, cache: KvSlots, tap: int, static: bool) -> None:
        self._decoder = decoder
        self._cache = cache
        self._tap = tap
        self.sizes = doubled(FEWEST, MOST) if static and decoder.kernels is not None else []
        self._captured = Captured(name, self._compute, self._idle, decoder.device)

    def warm(self) -> None:
        """Capture all graphs in advance."""
        self._captured.warm(self.sizes)

    def __call__(self, batch: Batch, added: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """See ``TransformerDecoder.append``. The result of a graph is valid until the next call."""
        counts = batch.counts
        if added or not self.sizes or max(counts) > MOST:
            return self._decoder.append(batch, self._cache, self._tap, added)
        parts = batch.parts(MOST, self._most_pieces)
        if len(parts) == 1:
            return self._replayed(batch, sum(counts))
        each = [[one.clone() for one in self._replayed(part, sum(part.counts))] for part in parts]
        hidden, tapped = (torch.cat(both) for both in zip(*each, strict=True))
        return hidden, tapped

    def _replayed(self, batch: Batch, count: int) -> tuple[Tensor, Tensor]:
        """Run a batch that fits into one graph."""
        size = next(size for size in self.sizes if size >= count)
        assert self._decoder.kernels is not None
        at, blocks = pieces_in_place(
            self._cache, batch.slots, batch.starts, batch.counts, self._decoder.kernels, size - count
        )
        positions = np.concatenate(batch.positions, 1).T
        hidden, tapped = self._captured(size, torch.cat(batch.embeddings), positions, at, blocks)
        return hidden[:count], tapped[:count]

    @property
    def _most_pieces(self) -> int:
        return 2 * len(self._cache.begins)

    def _idle(self, size: int) -> Sequence[Given]:
        width = self._decoder.config.hidden_size
        nobody = self._cache.begin(len(self._cache.begins) - 1)
        return (
            torch.zeros(size, width, device=self._decoder.device, dtype=self._decoder.dtype),
            np.zeros((size, AXES), np.float32),
            np.full(size, nobody),
            np.zeros((size // PER_BLOCK + self._most_pieces, 4), np.int64),
        )

    def _compute(self, size: int, x: Tensor, positions: Tensor, at: Tensor, blocks: Tensor) -> tuple[Tensor, Tensor]:
        kernels = self._decoder.kernels
        assert kernels is not None
        angles = self._decoder.angles(positions.T[:, None])
        where = PiecesInPlace(at[None], blocks, kernels)
        return self._decoder.fused(x[None], angles, where, self._cache, self._tap)
