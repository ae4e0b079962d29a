"""Base class of stages that decode codec frames to audio. The samples do not depend on how the frames are batched."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Audio, Chunk, Codes, Kind, kinds
from engine.core import Facets, StageInfo
from engine.errors import ConfigError, EngineError
from engine.worker.codec import Codec, Window
from engine.worker.nn.captured import Captured
from engine.worker.nn.codec import CodecDecoder
from engine.worker.nn.conv import ConvBatch
from engine.worker.nn.cuda_graph_runner import doubled
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.talker.pending import MAX_PENDING
from engine.worker.talker.talker_state import FRAME_S, FRAME_SAMPLES

WARM_S = 2.0  # maximum seconds of warm-up on a CPU
WARM_GPU_S = 30.0  # the same on a GPU, where the first use of each shape takes 30 to 100 ms
MOST_FRAMES = 400
"""Maximum codec frames, over all requests, that one step decodes. A GPU decodes about that many in the 80 ms of audio
of one frame (estimated).
"""
RAMP = (16, 8, 4, 2, 1)
"""Window lengths in frames on a GPU, where each new shape costs planning time. Other windows are split into these."""
DTYPES = {
    "float32": torch.float32,
    "tfloat32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(slots=True)
class DecodedAudio:
    """Number of an answer's frames that have been decoded, including those that precede the answer."""

    frames: int = 0


class Code2WavStage:
    """Decodes codec frames to audio. The samples do not depend on how the frames are cut into windows or batched.

    A GPU plans its convolutions for every new shape, so there are few shapes: batches are padded to a power of two,
    windows are split by RAMP, and all shapes are warmed up before the first request. The network has one slot more than
    the stage, which the padding rows use.
    """

    plannable: ClassVar[bool] = True
    most_work_bytes: ClassVar[int] = 2_700_000_000
    """GPU memory of graphs and steps for MOST_FRAMES, measured on an H200 with the shapes of Qwen3-Omni-30B-A3B."""

    takes: ClassVar[frozenset[Kind]] = kinds(Codes)

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(
            takes=cls.takes,
            emits=kinds(Audio),
            slots=config.slots,
            max_pending=MAX_PENDING,
            facets=Facets(frame_s=FRAME_S),
        )

    def __init__(
        self, info: StageInfo, net: CodecDecoder, device: torch.device, graphs: bool, rounds: bool = False
    ) -> None:
        """Create the stage.

        ``rounds`` allows TF32 in this stage's convolutions (10-bit mantissa, on a GPU).
        """
        self.info = info
        self.net = net
        self._rounds = rounds
        self.planned = device.type != "cpu"
        """Whether the device plans each shape anew (any device but a CPU), so that there must be few shapes."""
        self._captured = Captured("code2wav", self._computed, self._idle, device, graphs)

    @property
    def work_bytes(self) -> int:
        """Estimated GPU memory of graphs and steps, proportional to the largest number of frames in a step."""
        return self.most_work_bytes * min(MOST_FRAMES, RAMP[0] * self.info.slots) // MOST_FRAMES

    @property
    def sizes(self) -> list[int]:
        """The batch sizes in use."""
        return doubled(1, self.info.slots) if self.planned else list(range(1, self.info.slots + 1))

    def warm_up(self) -> None:
        self.warm(time.monotonic() + (WARM_GPU_S if self.planned else WARM_S))

    @torch.inference_mode()
    def warm(self, until_s: float) -> None:
        """Decode batches of every size until ``until_s`` (monotonic seconds), so that libraries prepare each shape.

        The largest batches come first, because the memory they allocate fits the others. On a CPU, only first windows
        of answers are decoded.
        """
        for count in RAMP if self.planned else (1,):
            most = max(1, MOST_FRAMES // count)
            sizes = [size for size in self.sizes if size < 2 * most]
            for size, fresh in itertools.product(reversed(sizes), (True, False) if self.planned else (True,)):
                if time.monotonic() < until_s:
                    nothing = np.zeros((size, count, self.net.front.groups), np.int16)
                    self._captured.warm([(size, count, fresh)])
                    self.decoded([self.info.slots] * size, [0] * size, nothing, fresh)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # memory of the runs before the graph capture

    def open(self, req: StageRequest) -> None:
        req.state = DecodedAudio()

    @property
    def books(self) -> Codec:
        return Codec(self.net.front.groups, self.net.front.book, FRAME_SAMPLES)

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
        room = MOST_FRAMES
        for (count, fresh), group in sorted(alike.items(), key=lambda one: (not one[0][1], one[0][0])):
            group = group[: room // count] if results else group[: max(1, room // count)]
            if not group:
                break  # these stay pending for the next step
            room -= count * len(group)
            windows: list[Window] = [req.pending.popleft() for req in group]
            waves = self.decode(group, np.stack([row.codes for row in windows]), fresh)
            for req, wave, row in zip(group, waves, windows, strict=True):
                req.state.frames += len(row.codes)
                results[id(req)] = [Audio(wave, row.marks)]
        return [results.get(id(req), []) for req in reqs]

    def decode(self, reqs: Sequence[StageRequest], codes: NDArray[np.int16], fresh: bool) -> NDArray[np.float32]:
        """Return the audio [batch, samples] of the next frames [batch, frames, groups].

        ``fresh``: whether the frames are the first ones of their answers. A batch never mixes first and later frames.
        """
        slots, at, waves = [req.slot for req in reqs], 0, list[Tensor]()
        for count in self.cuts(codes.shape[1]):
            starts = [req.state.frames + at for req in reqs]
            waves.append(self.decoded(slots, starts, codes[:, at : at + count], fresh and at == 0))
            at += count
        return torch.cat(waves, 1).float().cpu().numpy()

    def cuts(self, frames: int) -> list[int]:
        """Return the lengths of the windows into which a number of frames is split."""
        if not self.planned:
            return [frames]
        found: list[int] = []
        for count in RAMP:
            found += [count] * ((frames - sum(found)) // count)
        return found

    def decoded(self, slots: Sequence[int], starts: Sequence[int], codes: NDArray[np.int16], fresh: bool) -> Tensor:
        """Return the audio [batch, samples] on the device. The batch is padded to the next size of ``sizes``."""
        size = next(size for size in self.sizes if size >= len(slots))
        given = codes.astype(np.int64), np.array(starts, np.int64), np.array(slots, np.int64)
        return self._captured((size, codes.shape[1], fresh), *given)[0][: len(slots)].clone()

    def _idle(self, shape: tuple[int, int, bool]) -> tuple[NDArray[np.int64], ...]:
        size, count, _ = shape
        nobodys = np.zeros((size, count, self.net.front.groups), np.int64)
        return nobodys, np.zeros(size, np.int64), np.full(size, self.info.slots)

    def _computed(self, shape: tuple[int, int, bool], codes: Tensor, starts: Tensor, slots: Tensor) -> tuple[Tensor]:
        torch.backends.cudnn.allow_tf32 = self._rounds  # only for this stage's convolutions
        try:
            return (self.net.decode(codes, starts, ConvBatch(slots, shape[2])),)
        finally:
            torch.backends.cudnn.allow_tf32 = False


def sound_dtype(wanted: Any) -> torch.dtype:
    """Return the dtype named by ``options.sound_dtype``. Raises ConfigError."""
    if wanted not in DTYPES:
        raise ConfigError(f"options.sound_dtype: {wanted!r:.80} is not one of {', '.join(DTYPES)}")
    return DTYPES[wanted]
