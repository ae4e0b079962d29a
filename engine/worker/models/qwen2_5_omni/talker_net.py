"""The talker's networks: rows of its slots' prompts and codes to hidden rows, and those to codes.

What goes in is a sum, projected: of a code's embedding and a row of the thinker's. The projection is linear, so each
part is projected by itself, the codes' table once. A frame is one code. Knows no stage and no request.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.models.qwen2_5_omni.source import Qwen2_5OmniSource, TalkerVoice
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput
from engine.worker.nn.device import to_device
from engine.worker.nn.sampling_params import BatchSamplingParams
from engine.worker.talker import net
from engine.worker.talker.net import TalkerShape
from engine.worker.talker.talker_state import ANSWER_FRAMES

END, PAD, FIRST = range(3)
"""Texts of every step: the text's end, what comes behind it, and the first one that is a row of the thinker's."""
LEAD = 2
"""Rows with which the talker's own turn begins."""


class Qwen2_5TalkerNet(net.TalkerNet):
    """The checkpoint's talker."""

    def __init__(self, source: Qwen2_5OmniSource) -> None:
        self.config = config = source.config.talker_config
        read, wide, generation = source.reader("talker."), int(config.embedding_size), source.generation
        shape = TalkerShape(
            decoder=config,
            begin=config.tts_codec_start_token_id,
            end=config.tts_codec_end_token_id,
            penalty=generation.get("talker_repetition_penalty", 1.05),
            top_k=generation.get("talker_top_k", 40),
        )
        room = source.context + ANSWER_FRAMES
        super().__init__(read, shape, room, source.slots, source.static, source.shared(room))
        projection = read.below("thinker_to_talker_proj")
        self.projection = projection("weight", self.width, wide), projection("bias", self.width)
        self.codes = F.linear(read("model.embed_tokens.weight", config.vocab_size, wide), self.projection[0])
        table = source.text_table()
        self._fixed = table[[config.tts_text_end_token_id, config.tts_text_pad_token_id]].float().numpy()
        self._begins = {one.begin: table[one.begin].float().numpy() for one in source.voices.values()}
        self._texts: list[NDArray[np.float32]] = []
        self._next = torch.zeros_like(self.last_frame_embed)
        self._ends = to_device([config.tts_codec_pad_token_id, shape.end], self.device)
        self.logit_mask = torch.full((config.vocab_size,), -torch.inf, device=self.device)
        self.logit_mask[: source.config.token2wav_config.dit_config.num_embeds] = 0  # what lies above is no sound
        self.logit_mask[self._ends] = 0
        if source.static:
            self.capture(source.slots)

    def open(self, slot: int) -> None:
        """A new answer: the reference counts the ids that stand for its prompt as spoken."""
        super().open(slot)
        config = self.config
        prompt = [config.tts_codec_mask_token_id, config.tts_codec_pad_token_id, config.tts_codec_start_token_id]
        self.seen_codes[slot].index_put_((to_device(prompt, self.device),), self.true)

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

    def lead_embeddings(self, voices: Sequence[TalkerVoice], texts: Sequence[int]) -> Tensor:
        """The rows [batch, LEAD, width] with which turns of its own begin; the last holds the first text."""
        begins = self.project(np.stack([self._begins[voice.begin] for voice in voices]))
        embeddings = torch.stack((begins, self.text_embeddings(texts)), 1)
        return embeddings + self.codes[[self.config.tts_codec_pad_token_id, self.config.tts_codec_start_token_id]]

    def speak(self, inputs: Sequence[DecodeInput]) -> NDArray[np.int16]:
        slots = to_device([one.slot for one in inputs], self.device)
        self._next[slots] = self.text_embeddings([one.token for one in inputs])
        return super().speak(inputs)

    def batch_embeddings(self, batch: DecodeBatch) -> Tensor:
        return self._next[batch.slots]

    def complete(
        self, slots: Tensor, hidden: Tensor, first: Tensor, params: BatchSamplingParams, steps: Tensor
    ) -> Tensor:
        """Codes [batch, 1], all ends alike."""
        self.last_frame_embed[slots] = self.codes[first.clamp(min=0)]
        ended = (first[:, None] == self._ends).any(-1)
        return torch.where(ended, self.shape.end, first)[:, None]
