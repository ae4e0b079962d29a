"""The thinker stage: audio, images and text to text, and to the rows that the talker speaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ContextOverflow
from engine.worker.models.qwen2_5_omni.encoders import Qwen2_5OmniAudioEncoder, Qwen2_5OmniVisionEncoder
from engine.worker.models.qwen2_5_omni.feed import ReplyRow
from engine.worker.models.qwen2_5_omni.source import Qwen2_5OmniSource
from engine.worker.nn.device import to_device
from engine.worker.nn.slots import Batch, CachePositions, OneRow
from engine.worker.nn.weights import WeightReader
from engine.worker.omni import source, thinker, thinker_net
from engine.worker.omni.thinker_state import ThinkerState
from engine.worker.stage_request import StageRequest


class Qwen2_5ThinkerNet(thinker_net.ThinkerNet):
    """The thinker's network. ``reply`` [slots, width] holds embedding plus last hidden row of each slot's newest
    token.
    """

    def __init__(self, source: source.OmniSource, read: WeightReader) -> None:
        size = source.slots + source.static, source.text.hidden_size
        self.reply = torch.zeros(size, device=source.device, dtype=source.dtype)
        super().__init__(source, read)

    def _forward(self, tokens: Tensor, positions: Tensor, where: CachePositions | OneRow) -> Tensor:
        hidden = super()._forward(tokens, positions, where)
        self.reply[where.index] = hidden + self.embed_tokens[tokens]
        return hidden

    def follow(self, batch: Batch) -> Tensor:
        return super().follow(batch) + torch.cat(batch.embeddings)


class Thinker(thinker.OmniThinker):
    """Writes text token by token, and sends each token's row to the talker once it is computed."""

    source_class = Qwen2_5OmniSource
    net_class = Qwen2_5ThinkerNet
    ears, eyes = Qwen2_5OmniAudioEncoder, Qwen2_5OmniVisionEncoder
    net: Qwen2_5ThinkerNet

    def _begin(self, req: StageRequest) -> None:
        """Set up an answer. A given text passes through the network too, because the talker needs its rows."""
        super()._begin(req)
        thought: ThinkerState = req.state
        if thought.script is not None:
            assert thought.prompt is not None
            room = self.source.context - len(thought.prompt.ids) - 1
            if len(thought.script) > room:
                raise ContextOverflow(f"the text has {len(thought.script)} tokens, but the context has room for {room}")
            thought.kept = deque([*thought.script, next(iter(self.ends))])
            thought.script = None

    def _write(self, reqs: Sequence[StageRequest]) -> list[int]:
        tokens = super()._write(reqs)
        if not self.source.voices:
            return tokens
        slots = to_device([req.slot for req in reqs], self.source.device)
        for req, row in zip(reqs, self.net.reply[slots].float().cpu().numpy(), strict=True):
            self._ate(req, row)
        return tokens

    def _ate(self, req: StageRequest, row: NDArray[np.float32]) -> None:
        """Send the computed token to the talker."""
        thought: ThinkerState = req.state
        if not self.source.voices:
            return
        thought.hidden.append(row[None])
        if req.request.speaks and not thought.silent:
            thought.unspoken.append(ReplyRow(row, thought.characters))
