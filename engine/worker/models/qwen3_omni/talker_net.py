"""The talker's networks: rows of its slots' prompts and frames to hidden rows, and those to codec frames.

Its state lies in slots: the cache, which codes it has spoken (they are penalised), and what of the last frame goes
into the next row. Knows no stage and no request.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.worker.models.qwen3_omni.source import PREDICTOR, TALKER, Source
from engine.worker.models.qwen3_omni.speech import ANSWER_FRAMES
from engine.worker.nn.cuda_graph_runner import CudaGraphRunner
from engine.worker.nn.decode_batch import DecodeBatch, DecodeInput
from engine.worker.nn.decoder import Decoder
from engine.worker.nn.device import to_device
from engine.worker.nn.predictor import Predictor
from engine.worker.nn.projection import Projection
from engine.worker.nn.sampler import BatchSamplingParams, draw, penalised
from engine.worker.nn.slots import Batch, DecodeSlots

LEAD = 9
"""Rows with which the talker's own turn begins."""


class TalkerNet:
    """The checkpoint's talker, with its code predictor. ``room`` rows fit into a slot."""

    def __init__(self, source: Source) -> None:
        self.config = config = source.config.talker_config
        read, text = source.reader("talker."), config.text_config
        self.device, self.dtype, self.width, self._marks = source.device, source.dtype, text.hidden_size, source.marks
        embed_tokens = source.checkpoint.tensor(
            "thinker.model.embed_tokens.weight", (source.text.vocab_size, source.text.hidden_size)
        )
        self.embed_tokens = embed_tokens if self.device.type == "cpu" else embed_tokens.to(self.device, self.dtype)
        """The thinker's table; on a CPU it stays in its file, of which only what is spoken is touched."""
        sizes = config.thinker_hidden_size, text.intermediate_size, self.width
        self.project_text = Projection(read.below("text_projection"), *sizes)
        self.project_hidden = Projection(read.below("hidden_projection"), *sizes)
        self.codes = read("model.codec_embedding.weight", text.vocab_size, self.width)
        self.head = read("codec_head.weight", text.vocab_size, self.width)
        text.shared_expert_intermediate_size = text.shared_expert_intermediate_size or 0
        self.decoder = Decoder(read.below("model"), text)
        self.room = source.context + ANSWER_FRAMES
        slots = source.slots + source.static  # of the last one, and of its row below, nobody's steps are
        self.cache = self.decoder.cache(slots, self.room)
        self.predictor = Predictor(read.below("code_predictor"), config.code_predictor_config, source.slots, PREDICTOR)
        self.seen_codes = torch.zeros(slots, text.vocab_size, device=self.device, dtype=torch.bool)
        self.last_frame_embed = torch.zeros(slots, self.width, device=self.device, dtype=self.dtype)
        self.logit_mask = torch.zeros(text.vocab_size, device=self.device)
        self.logit_mask[-1024:] = -torch.inf  # a code above the codebook is no sound, but the end
        self.logit_mask[config.codec_eos_token_id] = 0
        self.penalty = source.generation.get("talker_repetition_penalty", 1.05)
        self.top_k: int = source.generation.get("talker_top_k", 50)
        self._true = torch.ones((), device=self.device, dtype=torch.bool)
        self.graphs: CudaGraphRunner | None = None
        if source.static:
            self.graphs = CudaGraphRunner("talker", self._step, source.slots, self.room, self.top_k, self.device)
            self.graphs.warm()

    def text_embeddings(self, ids: Sequence[int]) -> Tensor:
        """Projected embeddings of text ids."""
        return self._spoken(to_device(ids, self.embed_tokens.device))

    def _spoken(self, ids: Tensor) -> Tensor:
        return self.project_text(self.embed_tokens[ids].to(self.device, self.dtype))

    def user_embeddings(self, ids: NDArray[np.int64], media: NDArray[np.float32]) -> Tensor:
        """Rows of a user's turn: words by their embedding, sounds and pictures by what was thought ``media``."""
        embeddings = self.text_embeddings(ids.tolist())
        if len(media):
            seen = to_device(np.flatnonzero(self._marks.stand(ids)), self.device)
            embeddings[seen] = self.project_hidden(to_device(media.copy(), self.device).to(self.dtype))
        return embeddings

    def lead_embeddings(self, leads: Sequence[Sequence[int]], voices: Sequence[int], texts: Sequence[int]) -> Tensor:
        """The rows [batch, LEAD, width] with which turns of its own begin; the last holds the first text token."""
        config, marks = self.config, self._marks
        ids = [[*lead, *[marks.pad] * 4, marks.begin, text] for lead, text in zip(leads, texts, strict=True)]
        thinking = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id]
        ends = [config.codec_pad_id, config.codec_bos_id]
        codes = to_device([[*thinking, voice, *ends] for voice in voices], self.device)
        embeddings = self.text_embeddings([id for one in ids for id in one]).view(len(ids), LEAD, self.width)
        embeddings[:, 3:] += self.codes[codes]
        return embeddings

    def next_embeddings(self, slots: Sequence[int], texts: Sequence[int]) -> Tensor:
        """The rows [batch, width] behind each slot's last frame."""
        return self.last_frame_embed[to_device(slots, self.device)] + self.text_embeddings(texts)

    def lead(self, slots: Sequence[int]) -> None:
        """The last of a turn's LEAD rows is to be the next one of these slots."""
        self.last_frame_embed[to_device(slots, self.device)] = self.codes[self.config.codec_bos_id]

    def frame_embeddings(self, codes: Tensor) -> Tensor:
        """Return what of frames [n, groups] goes into the next rows: the sum of their embeddings."""
        rest = torch.zeros(len(codes), self.width, device=codes.device, dtype=self.dtype)
        for book, embedding in enumerate(self.predictor.codes, 1):
            rest = rest + embedding[codes[:, book]]
        return self.codes[codes[:, 0]] + rest

    def append(self, batch: Batch) -> Tensor:
        """Take rows in; of each piece the hidden row of its last [pieces, width]."""
        hidden, _ = self.decoder.append(batch, self.cache)
        return hidden if len(hidden) == len(batch) else hidden[to_device(batch.lasts, self.device)]

    def frames(
        self, slots: Sequence[int], hidden: Tensor, params: BatchSamplingParams, steps: Sequence[int]
    ) -> NDArray[np.int16]:
        """A frame [groups] for each slot, of hidden rows; the device is asked once, at the end."""
        found = self._frames(to_device(slots, self.device), hidden, params, to_device(steps, self.device))
        return found.cpu().numpy().astype(np.int16)

    def speak(self, inputs: Sequence[DecodeInput]) -> NDArray[np.int16]:
        """Take in a text token for each slot, behind its last frame; its next frame [groups]."""
        assert self.graphs is not None
        return self.graphs(inputs).astype(np.int16)

    def _step(self, batch: DecodeBatch, bucket: int) -> Tensor:
        """``speak`` as a graph captures it: codes [batch, groups]."""
        row = self.last_frame_embed[batch.slots] + self._spoken(batch.tokens)
        angles = self.decoder.rope(batch.positions.expand(3, -1)[..., None], self.dtype)
        where = DecodeSlots.of(batch.slots, batch.starts, bucket, self.dtype)
        hidden, _ = self.decoder.forward(row[:, None], angles, where, self.cache)
        return self._frames(batch.slots, hidden[:, 0], batch.params, batch.steps)

    def _frames(self, slots: Tensor, hidden: Tensor, params: BatchSamplingParams, steps: Tensor) -> Tensor:
        """Code 0, then the predictor's [batch, groups]; what they leave in their slots. Nothing waits."""
        logits = penalised(F.linear(hidden, self.head).float(), self.seen_codes[slots], self.penalty) + self.logit_mask
        first = draw(logits, params, TALKER, steps)
        self.seen_codes.index_put_((slots, first.clamp(min=0)), self._true)  # Python's own True would be copied there
        embedded = self.codes[first.clamp(min=0)]
        rest, total = self.predictor.frame(hidden, embedded, params, steps)
        self.last_frame_embed[slots] = embedded + total
        return torch.cat((first[:, None], rest), 1)

    def follow(self, slot: int, frames: NDArray[np.int16]) -> Tensor:
        """Take frames [n, groups] as spoken; the rows [n − 1, width] that lie between them, without their text."""
        codes = to_device(frames.astype(np.int64), self.device)
        embeddings = self.frame_embeddings(codes)
        self.last_frame_embed[slot] = embeddings[-1]
        self.seen_codes[slot].index_put_((codes[:, 0],), self._true)
        return embeddings[:-1]

    def forget(self, slot: int) -> None:
        """Clear a slot whose rows may be no numbers."""
        self.cache.clear(slot)
        self.last_frame_embed[slot] = 0
