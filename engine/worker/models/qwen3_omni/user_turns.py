"""The part of a prompt that is sent to the talker: the user's turns piece by piece, and how its own begins. Computes
nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk, Tensors
from engine.worker.models.qwen3_omni.prompt import Prompt
from engine.worker.models.qwen3_omni.source import Marks
from engine.worker.models.qwen3_omni.speakable import Lead, UserTurns
from engine.worker.stage_request import StageRequest


def media(prompt: Prompt, piece: slice, marks: Marks) -> NDArray[np.int64]:
    """Return where in a piece of the prompt the user's sounds and pictures are."""
    a, b = np.searchsorted(prompt.spoken, (piece.start, piece.stop))
    at = prompt.spoken[a:b]
    return at[marks.stand(prompt.ids[at])]


def emit(req: StageRequest, prompt: Prompt, piece: slice, media_hidden: NDArray[np.float32]) -> list[Chunk]:
    """The chunks for the talker of a piece of the prompt; with the last piece, how its own turn begins."""
    req.state.num_sent = piece.stop
    if not req.request.speaks:
        return []
    a, b = (int(at) for at in np.searchsorted(prompt.spoken, (piece.start, piece.stop)))
    chunks: list[Chunk] = []
    if a < b:
        ids, positions, names = (
            prompt.ids[prompt.spoken[a:b]],
            prompt.spoken_positions[:, a:b],
            prompt.spoken_names[a:b],
        )
        chunks.append(Tensors.of(UserTurns(a, ids, positions, media_hidden, names), placed=True))
    if prompt.whole and piece.stop == len(prompt.ids):
        start = float(prompt.spoken_positions.max()) + 1 if prompt.spoken_positions.size else 0.0
        chunks.append(Tensors.of(Lead(tuple(prompt.lead), start)))
    return chunks
