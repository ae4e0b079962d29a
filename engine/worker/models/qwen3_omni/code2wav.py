"""Codec frames to sound, sample for sample what the whole would be, however it is cut."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.chunk import Audio, Chunk, Codes, kinds
from engine.core import Facets, StageInfo
from engine.errors import EngineError, WeightsError
from engine.worker.models.qwen3_omni.source import FRAME_S, ROWS_AHEAD, Source
from engine.worker.models.qwen3_omni.speech import FRAME_SAMPLES
from engine.worker.nn.codec import CodecDecoder
from engine.worker.nn.conv import Piece
from engine.worker.nn.device import to_device
from engine.worker.stage import Books, Place, Seat, Window, warm_up

WARM_S = 2.0  # of a start, at most


@dataclass(slots=True)
class Sound:
    """How many frames have been decoded."""

    frames: int = 0


class Code2Wav:
    """Codec frames to sound, sample for sample what the whole would be, however it is cut."""

    @classmethod
    def describe(cls, place: Place) -> StageInfo:
        return StageInfo(
            takes=kinds(Codes), emits=kinds(Audio), slots=place.slots, rows_ahead=ROWS_AHEAD,
            facets=Facets(frame_s=FRAME_S),
        )  # fmt: skip

    def __init__(self, place: Place) -> None:
        self.source = source = Source(place)
        self.info = self.describe(place)
        if not source.voices:
            raise WeightsError(f"{source.folder}: this checkpoint has no code2wav; host the thinker alone")
        config = source.config.code2wav_config
        read = source.reader("code2wav.", torch.float32)  # it is small, and in bfloat16 a sixth of the sound is error
        self.net = CodecDecoder(read, config, source.slots)

    def warm_up(self) -> None:
        self._warm(time.monotonic() + WARM_S)

    def _warm(self, until_s: float) -> None:
        """Beginnings of answers, in batches of every size: what libraries prepare for a shape takes longer than it."""
        for count in range(1, self.source.slots + 1):
            if time.monotonic() < until_s:
                warm_up(self, count, Window(np.zeros((1, self.net.groups), np.int16)))

    def open(self, seat: Seat) -> None:
        seat.state = Sound()

    def adapt(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return Books(self.net.groups, self.net.book, FRAME_SAMPLES).windows(seat, inputs)

    @torch.inference_mode()
    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        alike: dict[tuple[int, bool], list[Seat]] = {}
        for seat in seats:
            if seat.rows:
                alike.setdefault((len(seat.rows[0].codes), seat.state.frames == 0), []).append(seat)
            else:
                seat.done = True
        results: dict[int, list[Chunk]] = {}
        for (_, fresh), group in alike.items():
            rows: list[Window] = [seat.rows.popleft() for seat in group]
            waves = self.decode(group, np.stack([row.codes for row in rows]), fresh)
            for seat, wave, row in zip(group, waves, rows, strict=True):
                seat.state.frames += len(row.codes)
                results[id(seat)] = [Audio(wave, row.marks)]
        return [results.get(id(seat), []) for seat in seats]

    def decode(self, seats: Sequence[Seat], codes: NDArray[np.int16], fresh: bool) -> NDArray[np.float32]:
        """Sound [batch, samples] of the next frames [batch, frames, groups], all beginnings or none."""
        piece = Piece.of([seat.slot for seat in seats], fresh, self.source.device)
        ids = to_device(codes.astype(np.int64), self.source.device)
        return self.net.decode(ids, [seat.state.frames for seat in seats], piece).float().cpu().numpy()
