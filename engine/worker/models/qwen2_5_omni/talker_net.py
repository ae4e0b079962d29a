"""The talker's networks: rows of its slots' prompts and codes to hidden rows, and those to codes.

What goes in is a sum, projected: of a code's embedding and a row of the thinker's. The projection is linear, so each
part is projected by itself, the codes' table once. State lies in slots: the cache, which codes a voice has spoken
(they are penalised), and the last code's embedding. Knows no stage and no request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.models.qwen2_5_omni.source import Source, Voice
from engine.worker.nn.cuda_graph_runner import CudaGraphRunner
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput
from engine.worker.nn.decoder import Decoder
from engine.worker.nn.device import to_device
from engine.worker.nn.sampler import BatchSamplingParams, draw, penalised
from engine.worker.nn.slots import Batch, DecodeSlots
from engine.worker.talker.net import TALKER
from engine.worker.talker.speech import ANSWER_FRAMES

END, PAD, FIRST = range(3)
"""Texts of every step: the text's end, what comes behind it, and the first one that is a row of the thinker's."""
LEAD = 2
"""Rows with which the talker's own turn begins."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The code that ends an answer, and how many of the likeliest codes are drawn from."""

    end: int
    top_k: int


class TalkerNet:
    """The checkpoint's talker. ``room`` rows fit into a slot."""

    def __init__(self, source: Source) -> None:
        self.config = config = source.config.talker_config
        self.device, self.dtype, self.width = source.device, source.dtype, int(config.hidden_size)
        read, wide = source.reader("talker."), int(config.embedding_size)
        projection = read.below("thinker_to_talker_proj")
        self.projection = projection("weight", self.width, wide), projection("bias", self.width)
        self.codes = F.linear(read("model.embed_tokens.weight", config.vocab_size, wide), self.projection[0])
        self.head = read("codec_head.weight", config.vocab_size, self.width)
        self.decoder = Decoder(read.below("model"), config)
        self.room, own = source.context + ANSWER_FRAMES, source.slots + source.static
        self.cache = self.decoder.cache(own, self.room)
        table = source.checkpoint.tensor("thinker.model.embed_tokens.weight", (source.text.vocab_size, wide))
        self._fixed = table[[config.tts_text_end_token_id, config.tts_text_pad_token_id]].float().numpy()
        self._begins = {one.begin: table[one.begin].float().numpy() for one in source.voices.values()}
        self._texts: list[NDArray[np.float32]] = []
        self.seen_codes = torch.zeros(own, config.vocab_size, device=self.device, dtype=torch.bool)
        self.last_frame_embed, self._next = torch.zeros(2, own, self.width, device=self.device, dtype=self.dtype)
        self.shape = Shape(config.tts_codec_end_token_id, source.generation.get("talker_top_k", 40))
        self._ends = to_device([config.tts_codec_pad_token_id, self.shape.end], self.device)
        self.logit_mask = torch.full((config.vocab_size,), -torch.inf, device=self.device)
        self.logit_mask[: source.config.token2wav_config.dit_config.num_embeds] = 0  # what lies above is no sound
        self.logit_mask[self._ends] = 0
        self.penalty = source.generation.get("talker_repetition_penalty", 1.05)
        self._true = torch.ones((), device=self.device, dtype=torch.bool)
        self.graphs: CudaGraphRunner | None = None
        if source.static:
            self.graphs = CudaGraphRunner("talker", self._step, source.slots, self.room, self.shape.top_k, self.device)
            self.graphs.warm()

    def open(self, slot: int) -> None:
        """A new answer: the reference counts the ids that stand for its prompt as spoken."""
        config = self.config
        self.seen_codes[slot] = False
        prompt = [config.tts_codec_mask_token_id, config.tts_codec_pad_token_id, config.tts_codec_start_token_id]
        self.seen_codes[slot].index_put_((to_device(prompt, self.device),), self._true)

    def project(self, hidden: NDArray[np.float32]) -> Tensor:
        """Rows [n, embedding_size] of the thinker's as rows of the talker."""
        return F.linear(to_device(np.ascontiguousarray(hidden), self.device).to(self.dtype), *self.projection)

    def hold(self, row: NDArray[np.float32]) -> int:
        """Hold a row of the thinker's until ``release``; return the text that stands for it."""
        self._texts.append(row)
        return FIRST + len(self._texts) - 1

    def release(self) -> None:
        """Let go of the rows that were held."""
        self._texts.clear()

    def text_embeddings(self, texts: Sequence[int]) -> Tensor:
        """Rows [n, width] of texts."""
        return self.project(np.stack([self._fixed[i] if i < FIRST else self._texts[i - FIRST] for i in texts]))

    def lead_embeddings(self, voices: Sequence[Voice], texts: Sequence[int]) -> Tensor:
        """The rows [batch, LEAD, width] with which turns of its own begin; the last holds the first text."""
        begins = self.project(np.stack([self._begins[voice.begin] for voice in voices]))
        embeddings = torch.stack((begins, self.text_embeddings(texts)), 1)
        return embeddings + self.codes[[self.config.tts_codec_pad_token_id, self.config.tts_codec_start_token_id]]

    def lead(self, slots: Sequence[int]) -> None:
        """The last of a turn's LEAD rows is to be the next one of these slots."""
        self.last_frame_embed[to_device(slots, self.device)] = self.codes[self.config.tts_codec_start_token_id]

    def next_embeddings(self, slots: Sequence[int], texts: Sequence[int]) -> Tensor:
        """The rows [batch, width] behind each slot's last code."""
        return self.last_frame_embed[to_device(slots, self.device)] + self.text_embeddings(texts)

    def append(self, batch: Batch) -> Tensor:
        """Take rows in; of each piece the hidden row of its last [pieces, width]."""
        hidden, _ = self.decoder.append(batch, self.cache)
        return hidden if len(hidden) == len(batch) else hidden[to_device(batch.lasts, self.device)]

    def frames(
        self, slots: Sequence[int], hidden: Tensor, params: BatchSamplingParams, steps: Sequence[int]
    ) -> NDArray[np.int16]:
        """A code [1] for each slot, of hidden rows; the device is asked once, at the end."""
        found = self._codes(to_device(slots, self.device), hidden, params, to_device(steps, self.device))
        return found.cpu().numpy().astype(np.int16)

    def speak(self, inputs: Sequence[DecodeInput]) -> NDArray[np.int16]:
        """Take in a text for each slot, behind its last code; its next code [1]."""
        assert self.graphs is not None
        slots = to_device([one.slot for one in inputs], self.device)
        self._next[slots] = self.text_embeddings([one.token for one in inputs])
        return self.graphs(inputs).astype(np.int16)

    def _step(self, batch: DecodeBatch, bucket: int) -> Tensor:
        """``speak`` as a graph captures it: codes [batch, 1]."""
        row = self.last_frame_embed[batch.slots] + self._next[batch.slots]
        angles = self.decoder.rope(batch.positions.expand(3, -1)[..., None], self.dtype)
        where = DecodeSlots.of(batch.slots, batch.starts, bucket, self.dtype)
        hidden, _ = self.decoder.forward(row[:, None], angles, where, self.cache)
        return self._codes(batch.slots, hidden[:, 0], batch.params, batch.steps)

    def _codes(self, slots: Tensor, hidden: Tensor, params: BatchSamplingParams, steps: Tensor) -> Tensor:
        """Codes [batch, 1], all ends alike; what they leave in their slots. Nothing waits."""
        logits = F.linear(hidden, self.head).float()
        drawn = draw(penalised(logits, self.seen_codes[slots], self.penalty) + self.logit_mask, params, TALKER, steps)
        known = drawn.clamp(min=0)
        self.seen_codes.index_put_((slots, known), self._true)
        self.last_frame_embed[slots] = self.codes[known]
        ended = (drawn[:, None] == self._ends).any(-1)
        return torch.where(ended, self.shape.end, drawn)[:, None]

    def follow(self, slot: int, frames: NDArray[np.int16], given: int = 0) -> Tensor:
        """Take codes [n, 1] as spoken; the rows [n − 1, width] that lie between them, without their text."""
        codes = to_device(frames[:, 0].astype(np.int64), self.device)
        embeddings = self.codes[codes]
        self.last_frame_embed[slot] = embeddings[-1]
        self.seen_codes[slot].index_put_((codes[given:],), self._true)
        return embeddings[:-1]

    def forget(self, slot: int) -> None:
        """Clear a slot whose rows may be no numbers."""
        self.cache.clear(slot)
        self.last_frame_embed[slot] = 0
