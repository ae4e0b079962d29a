"""The talker stage: thinker rows to codec frames, one text token per frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from engine.errors import StageFailed
from engine.worker.models.qwen3_omni.source import FRAME_S, Qwen3OmniSource
from engine.worker.models.qwen3_omni.speakable import Lead, TextToken, UserTurns
from engine.worker.models.qwen3_omni.talker_net import LEAD, Qwen3TalkerNet
from engine.worker.omni import talker
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest


@dataclass(slots=True, kw_only=True)
class Qwen3OmniTalkerState(talker.OmniTalkerState):
    """State of an answer; ``lead`` are the token ids that start the assistant's turn."""

    lead: tuple[int, ...] = ()


class Talker(talker.OmniTalker[Qwen3TalkerNet]):
    """The talker stage: reads the user's turns, and speaks the thinker's text."""

    source_class = Qwen3OmniSource
    net_class = Qwen3TalkerNet
    speech_class = Qwen3OmniTalkerState
    prompt_class = UserTurns
    lead_class = Lead
    text_class = TextToken
    frame_s, num_lead = FRAME_S, LEAD
    top_p = 1.0

    def __init__(self, config: StageConfig) -> None:
        super().__init__(config)
        self.end = self.source.marks.end
        self.pad = self.source.marks.pad

    def check(self, item: Any) -> None:
        if not isinstance(item, UserTurns):
            return
        ids, names, positions, media = len(item.ids), len(item.names), item.positions.shape[1], len(item.media)
        placeholders = np.count_nonzero(self.source.marks.stand(item.ids))
        if not (ids == names == positions) or placeholders != media:
            counts = f"{ids} ids, {names} names, {positions} positions, {placeholders} placeholders, {media} media"
            raise StageFailed(f"the parts of a turn from the thinker do not match: {counts}")

    def prompt_embeddings(self, piece: UserTurns, start: int) -> Tensor:
        before = np.count_nonzero(self.source.marks.stand(piece.ids[:start]))
        return self.net.user_embeddings(piece.ids[start:], piece.media[before:])

    def lead(self, req: StageRequest, lead: Lead) -> None:
        req.state.lead = lead.ids

    def first_embeddings(self, reqs: Sequence[StageRequest], texts: Sequence[int]) -> Tensor:
        return self.net.lead_embeddings([req.state.lead for req in reqs], [req.state.voice for req in reqs], texts)

    def text_id(self, token: TextToken) -> int:
        return token.id
