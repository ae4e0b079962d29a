"""The thinker: what is heard, seen and read, to text, and to the rows from which the talker speaks."""

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
    """Each slot's newest token lies in ``reply`` [slots, width], embedding and last hidden row together."""

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
    """Text out, token by token; a token goes to the talker as a row, once it was eaten."""

    source_class = Qwen2_5OmniSource
    net_class = Qwen2_5ThinkerNet
    ears, eyes = Qwen2_5OmniAudioEncoder, Qwen2_5OmniVisionEncoder
    net: Qwen2_5ThinkerNet

    def _begin(self, req: StageRequest) -> None:
        """A text to be said as it stands goes through the networks, too: its rows are spoken, not its ids."""
        super()._begin(req)
        thought: ThinkerState = req.state
        if thought.script is not None:
            assert thought.prompt is not None
            room = self.source.context - len(thought.prompt.ids) - 1
            if len(thought.script) > room:
                raise ContextOverflow(f"the text has {len(thought.script)} tokens; there is room for {room}")
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
        """Have the talker say the token."""
        thought: ThinkerState = req.state
        if not self.source.voices:
            return
        thought.hidden.append(row[None])
        if req.request.speaks and not thought.silent:
            thought.unspoken.append(ReplyRow(row, thought.characters))
