"""nano's code2wav stage: codec frames to 24 kHz audio.

A causal convolutional network turns codes into F0 and filter gains, which `source` renders.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import numpy as np

from engine.chunk import Audio, Checkpoint, Chunk, Codes, kinds
from engine.core import Facets, StageInfo
from engine.errors import EngineError
from engine.worker.codec import Codec, Window, state_due
from engine.worker.models.nano.inference import run
from engine.worker.models.nano.options import check_options
from engine.worker.models.nano.source import ExcitationSource
from engine.worker.models.nano.voice import (
    BOOKS,
    FRAME_S,
    FRAME_SAMPLES,
    SIZE,
    Floats,
    default_voice,
    session,
    voice_of,
)
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest

WARM = 4  # frames, more than the first chunk has


class Code2Wav:
    """Decodes codec frames to float32 audio at 24 kHz."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        check_options(config)
        return StageInfo(takes=kinds(Codes), emits=kinds(Audio), slots=config.slots, facets=Facets(frame_s=FRAME_S))

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._default_voice = default_voice(config)
        self._net = session(config, "code2wav")
        shapes = {given.name: given.shape for given in self._net.get_inputs()}
        self._slow = np.full((config.slots, *shapes["slow"][1:]), 0, np.float32)
        self._fast = np.full((config.slots, *shapes["fast"][1:]), 0, np.float32)

    def warm_up(self) -> None:
        warm_up(self, self.info.slots, Window(np.zeros((WARM, BOOKS), np.int16)))

    def open(self, req: StageRequest) -> None:
        """Start an answer, or resume after the frames that a lost replica's checkpoint covers."""
        voice_of(req.request, self._default_voice)
        source = req.state = ExcitationSource(req.request.sampling.seed)
        self._slow[req.slot] = self._fast[req.slot] = 0
        if (left := req.checkpoint) is not None:
            self._slow[req.slot], self._fast[req.slot] = left["slow"], left["fast"]
            source.go_on(left["source"])

    def _checkpoint(self, req: StageRequest) -> Checkpoint:
        slow, fast = self._slow[req.slot].copy(), self._fast[req.slot].copy()
        return Checkpoint({"slow": slow, "fast": fast, "source": req.state.left()})

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return Codec(BOOKS, SIZE, FRAME_SAMPLES).windows(req, inputs, req.state.frames)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        by_length: dict[int, list[StageRequest]] = defaultdict(list)
        for req in reqs:
            if req.pending:
                by_length[len(req.pending[0].codes)].append(req)
            else:
                req.done = True
        sounds: dict[int, list[Chunk] | EngineError] = {}
        for alike in by_length.values():
            windows = [req.pending.popleft() for req in alike]
            for req, controls, row in zip(alike, self._controls(alike, windows), windows, strict=True):
                sounds[id(req)] = guarded(self, req, self._rendered, controls, row)
        return [sounds.get(id(req), []) for req in reqs]

    def _rendered(self, req: StageRequest, controls: Floats, window: Window) -> list[Chunk]:
        """Return the audio of a window of codes, and at times a checkpoint."""
        sound = Audio(req.state.render(controls), window.marks)
        due = state_due(req.state.frames - len(window.codes), req.state.frames)
        return [sound, self._checkpoint(req)] if due else [sound]

    def _controls(self, reqs: Sequence[StageRequest], windows: Sequence[Window]) -> Floats:
        """Return the synthesizer's control values (F0 and filter gains), and update the slots' conv states.

        They are [requests, 4 x frames, 133], one row per 10 ms. All windows have the same length.
        """
        slots = np.array([req.slot for req in reqs])
        inputs = {"codes": np.stack([row.codes for row in windows]).astype(np.int64)}
        inputs["voice"] = np.array([voice_of(req.request, self._default_voice) for req in reqs], np.int64)
        inputs |= {"slow": self._slow[slots], "fast": self._fast[slots]}
        controls, self._slow[slots], self._fast[slots] = run(self._net, ("controls", "slow_out", "fast_out"), inputs)
        return controls
