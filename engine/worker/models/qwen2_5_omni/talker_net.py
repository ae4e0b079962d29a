"""The talker's networks: prompt rows and codes to hidden rows, and hidden rows to codes.

The input is the projected sum of a code's embedding and a thinker row. The projection is linear, so both are projected
separately, and the codes' table only once. A frame is one code.
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
"""Text ids within a step: end of text, padding after it, and the first id of a held thinker row."""
LEAD = 2
"""Rows that begin the talker's own turn."""


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
        self.logit_mask[: source.config.token2wav_config.dit_config.num_embeds] = 0  # higher codes are not audio
        self.logit_mask[self._ends] = 0
        if source.static:
            self.capture(source.slots)

    def open(self, slot: int) -> None:
        """Reset a slot. Like the reference, the repetition penalty counts the special codes of the prompt as spoken."""
        super().open(slot)
        config = self.config
        prompt = [config.tts_codec_mask_token_id, config.tts_codec_pad_token_id, config.tts_codec_start_token_id]
        self.seen_codes[slot].index_put_((to_device(prompt, self.device),), self.true)

    def project(self, hidden: NDArray[np.float32]) -> Tensor:
        """Project thinker rows [n, embedding_size] to talker rows [n, width]."""
        return F.linear(to_device(np.ascontiguousarray(hidden), self.device).to(self.dtype), *self.projection)

    def hold(self, row: NDArray[np.float32]) -> int:
        """Store a thinker row until ``release``, and return a text id for it."""
        self._texts.append(row)
        return FIRST + len(self._texts) - 1

    def release(self) -> None:
        """Discard the stored rows."""
        self._texts.clear()

    def text_embeddings(self, texts: Sequence[int]) -> Tensor:
        """Return rows [n, width] of text ids."""
        return self.project(np.stack([self._fixed[i] if i < FIRST else self._texts[i - FIRST] for i in texts]))

    def lead_embeddings(self, voices: Sequence[TalkerVoice], texts: Sequence[int]) -> Tensor:
        """Return the rows [batch, LEAD, width] that begin the talker's turns; the last includes the first text."""
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
        """Return codes [batch, 1], with all end codes mapped to one."""
        self.last_frame_embed[slots] = self.codes[first.clamp(min=0)]
        ended = (first[:, None] == self._ends).any(-1)
        return torch.where(ended, self.shape.end, first)[:, None]
