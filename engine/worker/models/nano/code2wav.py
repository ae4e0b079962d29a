"""Code2wav of nano: codec frames -> sound at 24 kHz.

A causal net with carried tails turns codes into F0 and filters, which `source` renders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import numpy as np

from engine.chunk import Audio, Checkpoint, Chunk, Codes, kinds
from engine.core import Facets, StageInfo
from engine.errors import EngineError
from engine.worker.models.nano.source import Source
from engine.worker.models.nano.voice import BOOKS, FRAME_S, FRAME_SAMPLES, SIZE, Floats, run, session, voice_of
from engine.worker.stage import Books, Place, Seat, Window, guarded, state_due, warm_up

WARM = 4  # frames: more than a first chunk


class Code2Wav:
    """Codec frames -> float32 at 24 kHz."""

    @classmethod
    def describe(cls, place: Place) -> StageInfo:
        return StageInfo(takes=kinds(Codes), emits=kinds(Audio), slots=place.slots, facets=Facets(frame_s=FRAME_S))

    def __init__(self, place: Place) -> None:
        self.info = self.describe(place)
        self._net = session(place, "code2wav")
        shapes = {given.name: given.shape for given in self._net.get_inputs()}
        self._slow = np.full((place.slots, *shapes["slow"][1:]), 0, np.float32)
        self._fast = np.full((place.slots, *shapes["fast"][1:]), 0, np.float32)

    def warm_up(self) -> None:
        warm_up(self, self.info.slots, Window(np.zeros((WARM, BOOKS), np.int16)))

    def open(self, seat: Seat) -> None:
        """Begin, or go on behind the frames that a lost replica's state covers."""
        voice_of(seat.request)
        source = seat.state = Source(seat.request.sampling.seed)
        self._slow[seat.slot] = self._fast[seat.slot] = 0
        if (left := seat.checkpoint) is not None:
            self._slow[seat.slot], self._fast[seat.slot] = left["slow"], left["fast"]
            source.go_on(left["source"])

    def _checkpoint(self, seat: Seat) -> Checkpoint:
        slow, fast = self._slow[seat.slot].copy(), self._fast[seat.slot].copy()
        return Checkpoint({"slow": slow, "fast": fast, "source": seat.state.left()})

    def adapt(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return Books(BOOKS, SIZE, FRAME_SAMPLES).windows(seat, inputs, seat.state.frames)

    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        by_length: dict[int, list[Seat]] = defaultdict(list)
        for seat in seats:
            if seat.rows:
                by_length[len(seat.rows[0].codes)].append(seat)
            else:
                seat.done = True
        sounds: dict[int, list[Chunk] | EngineError] = {}
        for alike in by_length.values():
            rows = [seat.rows.popleft() for seat in alike]
            for seat, controls, row in zip(alike, self._controls(alike, rows), rows, strict=True):
                sounds[id(seat)] = guarded(self, seat, self._rendered, controls, row)
        return [sounds.get(id(seat), []) for seat in seats]

    def _rendered(self, seat: Seat, controls: Floats, window: Window) -> list[Chunk]:
        """The sound of a window's codes, and now and then the state behind it."""
        sound = Audio(seat.state.render(controls), window.marks)
        due = state_due(seat.state.frames - len(window.codes), seat.state.frames)
        return [sound, self._checkpoint(seat)] if due else [sound]

    def _controls(self, seats: Sequence[Seat], rows: Sequence[Window]) -> Floats:
        """Windows of one length -> [seats, 4 x frames, 133]; the conv tails stay with the slots."""
        slots = np.array([seat.slot for seat in seats])
        inputs = {"codes": np.stack([row.codes for row in rows]).astype(np.int64)}
        inputs["voice"] = np.array([voice_of(seat.request) for seat in seats], np.int64)
        inputs |= {"slow": self._slow[slots], "fast": self._fast[slots]}
        controls, self._slow[slots], self._fast[slots] = run(self._net, ("controls", "slow_out", "fast_out"), inputs)
        return controls
