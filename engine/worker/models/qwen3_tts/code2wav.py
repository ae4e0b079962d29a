"""The code2wav stage: codec frames to audio with the checkpoint's 12 Hz decoder.

The frames of a cloned recording are decoded first, without output.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from engine.chunk import Chunk, Codes, Tensors, kinds
from engine.errors import EngineError, StageFailed
from engine.worker.models.qwen3_tts.front import ResidualBooks
from engine.worker.models.qwen3_tts.source import Qwen3TtsSource
from engine.worker.models.qwen3_tts.talker import Recording
from engine.worker.nn.codec import CodecDecoder
from engine.worker.nn.conv import slot_states
from engine.worker.nn.weights import WeightReader
from engine.worker.stage import StageConfig, guarded
from engine.worker.stage_request import StageRequest
from engine.worker.talker import code2wav

PIECE = 25  # frames of a recording per step, two seconds
KEPT = 16
"""Number of recordings whose decoder state is cached, about 5 MB each at the real size."""


class Code2Wav(code2wav.Code2WavStage):
    """The code2wav stage. The decoder state after a recording is computed once and reused by all requests of its
    voice.
    """

    takes = kinds(Codes, Recording)

    def __init__(self, config: StageConfig) -> None:
        source = Qwen3TtsSource(config)
        sizes = source.config_of_decoder
        dtype, slots = code2wav.sound_dtype(source.options.sound_dtype), source.slots + 1
        read = WeightReader(source.codec, "decoder.", source.device, dtype)
        net = CodecDecoder(read, sizes, slots, ResidualBooks(read, sizes, slots), late=False)
        rounds = source.options.sound_dtype == "tfloat32"
        super().__init__(self.describe(config), net, source.device, source.static, rounds)
        self._states = slot_states(net)
        self._kept: OrderedDict[bytes, list[Tensor]] = OrderedDict()

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Yield the recording's frames, if there are any, then windows of the answer's frames."""
        first = await anext(inputs, None)
        if isinstance(first, Tensors):
            yield self._recording(first)
            first = None
        async for window in self.books.windows(req, _behind(first, inputs)):
            yield window

    def _recording(self, chunk: Tensors) -> Recording:
        """Read a recording's frames. Raises StageFailed if they are invalid, before any code is looked up."""
        try:
            found = chunk.read(Recording)
        except msgspec.ValidationError as error:
            raise StageFailed(f"the message {chunk.name} from the talker is invalid: {error}") from None
        frames, books = found.frames, self.books
        fits = frames.ndim == 2 and frames.shape[1] == books.count and len(frames)
        if not fits or frames.min() < 0 or frames.max() >= books.size:
            raise StageFailed(
                f"a recording must have codes [frames, {books.count}] below {books.size} (got the shape {frames.shape})"
            )
        return found

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        before = [req for req in reqs if req.pending and isinstance(req.pending[0], Recording)]
        results: dict[int, Sequence[Chunk] | EngineError] = {
            id(req): guarded(self, req, self._take_in, req.pending[0].frames) for req in before
        }
        others = [req for req in reqs if id(req) not in results]
        results |= {id(req): found for req, found in zip(others, super().step(others), strict=True)}
        return [results[id(req)] for req in reqs]

    @torch.inference_mode()
    def _take_in(self, req: StageRequest, frames: Any) -> list[Chunk]:
        """Advance a slot's state through a recording, one piece per step, without output."""
        name, at = frames.tobytes(), req.state.frames
        if at == 0 and name in self._kept:
            self._kept.move_to_end(name)
            for state, kept in zip(self._states, self._kept[name], strict=True):
                state[req.slot] = kept
            req.state.frames = len(frames)
        else:
            piece = np.ascontiguousarray(frames[at : at + PIECE])
            self.decode([req], piece[None], fresh=at == 0)
            req.state.frames += len(piece)
            if req.state.frames == len(frames):
                self._keep(name, req.slot)
        if req.state.frames == len(frames):
            req.pending.popleft()
        return []

    def _keep(self, name: bytes, slot: int) -> None:
        self._kept[name] = [state[slot].clone() for state in self._states]
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)


async def _behind(first: Chunk | None, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
    if first is not None:
        yield first
    async for chunk in inputs:
        yield chunk
