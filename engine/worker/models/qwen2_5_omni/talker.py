"""The talker: rows of the thinker to codes, fifty a second, one row a code while there is text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.chunk import Chunk
from engine.errors import EngineError, StageFailed
from engine.worker.models.qwen2_5_omni.feed import PromptEnd, PromptRows, ReplyRow
from engine.worker.models.qwen2_5_omni.source import CODE_S, Qwen2_5OmniSource
from engine.worker.models.qwen2_5_omni.talker_net import END, LEAD, PAD, Qwen2_5TalkerNet
from engine.worker.omni import talker
from engine.worker.stage_request import StageRequest
from engine.worker.talker.talker_state import estimated


@dataclass(slots=True, kw_only=True)
class Qwen2_5TalkerState(talker.OmniTalkerState):
    """A voice on its way, fifty codes a second."""

    @property
    def reached(self) -> int:
        return min(self.characters, estimated(self.answered * CODE_S))


class Talker(talker.OmniTalker[Qwen2_5TalkerNet]):
    """The stage: it hears the prompt, and says what its thinker writes."""

    source_class = Qwen2_5OmniSource
    net_class = Qwen2_5TalkerNet
    speech_class = Qwen2_5TalkerState
    prompt_class = PromptRows
    lead_class = PromptEnd
    text_class = ReplyRow
    frame_s, num_lead = CODE_S, LEAD
    end, pad = END, PAD
    top_p = 0.8

    def check(self, item: Any) -> None:
        width = self.source.text.hidden_size
        if isinstance(item, PromptRows):
            count = len(item.names)
            if item.hidden.shape != (count, width) or item.positions.shape != (3, count):
                raise StageFailed(f"rows of a prompt do not fit together: {item.hidden.shape}, {count} names")
        if isinstance(item, ReplyRow) and item.hidden.shape != (width,):
            raise StageFailed(f"a row of the answer has the shape {list(item.hidden.shape)}, not [{width}]")

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        self.net.release()
        return super().step(reqs)

    def prompt_embeddings(self, piece: PromptRows, start: int) -> Tensor:
        return self.net.project(piece.hidden[start:])

    def lead(self, req: StageRequest, lead: PromptEnd) -> None:
        """Raises StageFailed where rows are missing: conditioned on others, a talker says something else."""
        if (found := len(req.state.names)) != lead.count:
            raise StageFailed(f"the talker has {found} rows of a prompt of {lead.count}")

    def first_embeddings(self, reqs: Sequence[StageRequest], texts: Sequence[int]) -> Tensor:
        return self.net.lead_embeddings([req.state.voice for req in reqs], texts)

    def text_id(self, token: ReplyRow) -> int:
        return self.net.hold(token.hidden)
