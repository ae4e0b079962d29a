"""Base of stages that turn codec frames to sound, sample for sample what the whole would be, however it is cut."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from engine.chunk import Audio, Chunk, kinds
from engine.core import Facets, StageInfo
from engine.errors import EngineError
from engine.worker.codec_frames import Books, Window
from engine.worker.nn.codec import CodecDecoder
from engine.worker.nn.conv import Piece
from engine.worker.nn.device import to_device
from engine.worker.stage import StageConfig, warm_up
from engine.worker.stage_request import StageRequest
from engine.worker.talker.pending import MAX_PENDING
from engine.worker.talker.speech import FRAME_S, FRAME_SAMPLES

WARM_S = 2.0  # seconds of a start, at most


@dataclass(slots=True)
class Sound:
    """The decoded part of an answer: how many frames, with those that stood before it."""

    frames: int = 0


class Code2Wav:
    """Codec frames to sound, sample for sample what the whole would be, however it is cut."""

    plannable: ClassVar[bool] = True

    def __init__(self, info: StageInfo, net: CodecDecoder, device: torch.device) -> None:
        self.info, self.net, self._device = info, net, device

    def warm_up(self) -> None:
        self._warm(time.monotonic() + WARM_S)

    def _warm(self, until_s: float) -> None:
        """Beginnings of answers, in batches of every size: what libraries prepare for a shape takes longer than it."""
        for count in range(1, self.info.slots + 1):
            if time.monotonic() < until_s:
                warm_up(self, count, Window(np.zeros((1, self.net.front.groups), np.int16)))

    def open(self, req: StageRequest) -> None:
        req.state = Sound()

    @property
    def books(self) -> Books:
        return Books(self.net.front.groups, self.net.front.book, FRAME_SAMPLES)

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return self.books.windows(req, inputs)

    @torch.inference_mode()
    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        alike: dict[tuple[int, bool], list[StageRequest]] = {}
        for req in reqs:
            if req.pending:
                alike.setdefault((len(req.pending[0].codes), req.state.frames == 0), []).append(req)
            else:
                req.done = True
        results: dict[int, list[Chunk]] = {}
        for (_, fresh), group in alike.items():
            windows: list[Window] = [req.pending.popleft() for req in group]
            waves = self.decode(group, np.stack([row.codes for row in windows]), fresh)
            for req, wave, row in zip(group, waves, windows, strict=True):
                req.state.frames += len(row.codes)
                results[id(req)] = [Audio(wave, row.marks)]
        return [results.get(id(req), []) for req in reqs]

    def decode(self, reqs: Sequence[StageRequest], codes: NDArray[np.int16], fresh: bool) -> NDArray[np.float32]:
        """Sound [batch, samples] of the next frames [batch, frames, groups], all beginnings or none."""
        piece = Piece.of([req.slot for req in reqs], fresh, self._device)
        ids = to_device(codes.astype(np.int64), self._device)
        return self.net.decode(ids, [req.state.frames for req in reqs], piece).float().cpu().numpy()


def code2wav_info(config: StageConfig, *takes: Any) -> StageInfo:
    """Describe such a stage, which takes these kinds of chunks."""
    return StageInfo(
        takes=kinds(*takes), emits=kinds(Audio), slots=config.slots, max_pending=MAX_PENDING,
        facets=Facets(frame_s=FRAME_S),
    )  # fmt: skip
