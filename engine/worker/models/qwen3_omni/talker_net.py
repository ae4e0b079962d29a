"""The talker's networks: converts the thinker's ids and hidden rows to talker rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.models.qwen3_omni.source import Qwen3OmniSource
from engine.worker.nn.device import to_device
from engine.worker.nn.projection import Projection
from engine.worker.talker import rvq_net
from engine.worker.talker.rvq_net import RvqTalkerShape
from engine.worker.talker.talker_state import ANSWER_FRAMES

LEAD = 9
"""Rows that begin the talker's own turn."""


class Qwen3TalkerNet(rvq_net.RvqTalkerNet):
    """The checkpoint's talker, with the thinker's text embedding table."""

    def __init__(self, source: Qwen3OmniSource) -> None:
        self.config = config = source.config.talker_config
        read = source.reader("talker.")
        text = config.text_config
        self._marks = source.marks
        text.shared_expert_intermediate_size = text.shared_expert_intermediate_size or 0
        shape = RvqTalkerShape(
            decoder=text,
            predictor=config.code_predictor_config,
            text_width=config.thinker_hidden_size,
            text_inner=text.intermediate_size,
            begin=config.codec_bos_id,
            end=config.codec_eos_token_id,
            penalty=source.generation.get("talker_repetition_penalty", 1.05),
            top_k=source.generation.get("talker_top_k", 50),
        )
        inner = config.thinker_hidden_size, text.intermediate_size, text.hidden_size
        self.project_hidden = Projection(read.below("hidden_projection"), *inner)
        room = source.context + ANSWER_FRAMES
        super().__init__(read, shape, source.text_table(), room, source.slots, source.static, source.shared(room))

    def user_embeddings(self, ids: NDArray[np.int64], media: NDArray[np.float32]) -> Tensor:
        """Return the rows of a user turn: text from embeddings, audio and images from the thinker's hidden rows
        ``media``.
        """
        embeddings = self.text_embeddings(ids.tolist())
        if len(media):
            seen = to_device(np.flatnonzero(self._marks.stand(ids)), self.device)
            embeddings[seen] = self.project_hidden(to_device(media.copy(), self.device).to(self.dtype))
        return embeddings

    def lead_embeddings(self, leads: Sequence[Sequence[int]], voices: Sequence[int], texts: Sequence[int]) -> Tensor:
        """Return the rows [batch, LEAD, width] that begin the talker's turns; the last includes the first text
        token.
        """
        config, marks = self.config, self._marks
        ids = [[*lead, *[marks.pad] * 4, marks.begin, text] for lead, text in zip(leads, texts, strict=True)]
        thinking = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id]
        ends = [config.codec_pad_id, config.codec_bos_id]
        codes = to_device([[*thinking, voice, *ends] for voice in voices], self.device)
        embeddings = self.text_embeddings([id for one in ids for id in one]).view(len(ids), LEAD, self.width)
        embeddings[:, 3:] += self.codes[codes]
        return embeddings
