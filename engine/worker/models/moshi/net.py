"""The networks of Moshi: each step hears a frame of the user's speech, and says the next frame of the model's own.

A session has a slot with its whole past. All sessions of a step compute the same operations, wherever they are, so
that a step is one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core import Wave
from engine.worker.models.moshi.lm import MoshiLm
from engine.worker.models.moshi.prompt import SILENCE, SystemPrompt
from engine.worker.nn import sampling_params
from engine.worker.nn.captured import Captured
from engine.worker.nn.conv import ConvBatch, slot_states
from engine.worker.nn.cuda_graph_runner import SHORTEST, doubled
from engine.worker.nn.device import to_device, to_host
from engine.worker.nn.mimi import MimiDecoder, MimiEncoder
from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams, SamplingParams
from engine.worker.nn.weights import WeightReader

SILENT = -2
"""Text token of a frame before the model's first one, whose sound is silence."""


@dataclass(slots=True)
class MoshiSession:
    """Where a session is."""

    heard: int
    """The first position at which the model hears the user. At position 0 it reads initial tokens only."""
    said: int
    """The first position whose step completes a frame of the model's speech."""
    prompt: SystemPrompt | None = None
    """The rest of the prompt."""
    position: int = 0


class MoshiNet:
    """A checkpoint's networks for at most ``slots`` sessions. One more slot takes the frames of no session.

    The codec computes in the dtype of its own reader: float32, because rounding would be audible.
    """

    def __init__(self, lm: MoshiLm, codec: WeightReader, codec_sizes: Any, slots: int) -> None:
        self.lm = lm
        self.slots = slots
        self.frame_samples = int(codec_sizes.frame_samples)
        self.encoder = MimiEncoder(codec, codec_sizes, lm.sizes.user, slots + 1)
        self.decoder = MimiDecoder(codec, codec_sizes, lm.sizes.own, slots + 1)
        self.sessions: dict[int, MoshiSession] = {}
        self._states = [*slot_states(self.encoder), *slot_states(self.decoder)]
        self._captured = Captured("moshi", self._compute, self._idle, lm.device, codec.static)
        self._lengths = doubled(SHORTEST, lm.window) if lm.temporal.kernels is None else [lm.window]

    @torch.inference_mode()
    def open(self, slot: int, prompt: SystemPrompt | None = None) -> None:
        """Begin a session in a slot. With a prompt, ``prepare`` must run until it is done, before the first step."""
        for state in self._states:
            state[slot] = 0
        lag = self.lm.sizes.lag
        start = MoshiSession(1, lag) if prompt is None else MoshiSession(prompt.length, prompt.length, prompt)
        self.sessions[slot] = start

    @torch.inference_mode()
    def prepare(self, slot: int, params: SamplingParams, rows: int) -> bool:
        """Compute at most ``rows`` rows of a session's prompt, and return whether it is done."""
        session = self.sessions[slot]
        prompt = session.prompt
        if prompt is None:
            return True
        inputs = self._inputs(prompt, session.position, rows)
        hidden = self.lm.fed(slot, session.position, inputs)
        session.position += len(inputs)
        if session.position < prompt.length:
            return False
        batch = BatchSamplingParams.of([params], self.lm.device)
        drawn = self.lm.drawn(hidden, batch, to_device([session.position - 1], self.lm.device))[0]
        after = to_device(prompt.after, self.lm.device)
        own = 1 + self.lm.sizes.own
        first = torch.cat((torch.where(after[:own] < 0, drawn.clamp(min=0), after[:own]), after[own:].clamp(min=0)))
        self.lm.force(slot, session.position, first)
        self._quiet(slot)
        session.prompt = None
        session.said -= 1
        return True

    @torch.inference_mode()
    def step(
        self, frames: Wave, slots: Sequence[int], params: Sequence[SamplingParams]
    ) -> tuple[NDArray[np.int64], Wave]:
        """Hear the next frame of each session, and return the next frame that the model says.

        Args:
            frames: Sound [batch, frame_samples] at 24 kHz, in [-1, 1].
            slots: The sessions' slots.
            params: Seeds and greediness. Temperatures are the model's.

        Returns:
            Text tokens [batch] and sound [batch, frame_samples]. A token is SILENT before the first frame, and FAILED
            if the model's logits were NaN.
        """
        sessions = [self.sessions[slot] for slot in slots]
        rows = [
            (slot, one.position, one.position - one.heard, one.position - one.said)
            for slot, one in zip(slots, sessions, strict=True)
        ]
        table = np.concatenate((np.array(rows, np.int64), sampling_params.packed(params).T), 1)
        longest = max(one.position for one in sessions)
        tokens, waves = self._captured(self._key(len(slots), longest), np.ascontiguousarray(frames), table)
        for one in sessions:
            one.position += 1
        return to_host(tokens)[: len(slots)], to_host(waves)[: len(slots)]

    def warm(self) -> None:
        """Capture the CUDA graphs of all batch sizes; no effect on other devices."""
        self._captured.warm([(size, length) for length in self._lengths for size in doubled(1, self.slots)])

    def _quiet(self, slot: int) -> None:
        """Begin a session's sound with the last frame of the prompt, which is silent and is not played."""
        codes = to_device([[SILENCE]], self.lm.device)
        self.decoder(codes, codes.new_zeros(1), ConvBatch(to_device([slot], self.lm.device), fresh=False))

    def _inputs(self, prompt: SystemPrompt, start: int, count: int) -> Tensor:
        """Return at most ``count`` input rows [n, width] of a prompt from position ``start``."""
        if prompt.voice is not None and start < prompt.voiced:
            return prompt.voice[start : start + count].to(self.lm.device, self.lm.dtype)
        first = start - prompt.voiced
        return self.lm.embedded(to_device(prompt.tokens[first : first + count], self.lm.device))

    def _key(self, batch: int, longest: int) -> tuple[int, int]:
        """Return the rows of a step, and the positions of the cache that it reads."""
        if not self._captured.captures:
            return batch, min(longest + 1, self.lm.window)
        size = next(size for size in doubled(1, self.slots) if size >= batch)
        return size, next(length for length in self._lengths if length > min(longest, self.lm.window - 1))

    def _compute(self, key: tuple[int, int], frames: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        slots, positions, heard, said = table[:, :4].unbind(1)
        params = BatchSamplingParams.unpacked(table[:, 4:].T, 0)
        listens = torch.where(heard < 0, self.slots, slots)
        codes = self.encoder(frames, heard.clamp(min=0), ConvBatch(listens, fresh=False))[:, 0]
        tokens = self.lm.step(slots, positions, codes, params, key[1])
        speaks = torch.where(said < 0, self.slots, slots)
        spoken = tokens[:, None, 1:].clamp(0, self.lm.sizes.codes - 1)
        waves = self.decoder(spoken, said.clamp(min=0), ConvBatch(speaks, fresh=False))
        silent = (said < 0) & (tokens[:, 0] != FAILED)
        return torch.where(silent, SILENT, tokens[:, 0]), waves.masked_fill((said < 0)[:, None], 0)

    def _idle(self, key: tuple[int, int]) -> tuple[Wave, NDArray[np.int64]]:
        """Return frames of no session."""
        table = np.zeros((key[0], 9), np.int64)
        table[:, 0] = self.slots
        table[:, 2:4] = -1
        table[:, 4:] = sampling_params.packed([SamplingParams(0)])[:, 0]
        return np.zeros((key[0], self.frame_samples), np.float32), table
