"""The talker stage: thinker rows to codes, 50 per second, one row per code while there is text."""

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
    """State of an answer, at 50 codes per second."""

    @property
    def reached(self) -> int:
        return min(self.characters, estimated(self.answered * CODE_S))


class Talker(talker.OmniTalker[Qwen2_5TalkerNet]):
    """The talker stage: reads the prompt, and speaks the thinker's text."""

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
                raise StageFailed(
                    f"prompt rows from the thinker do not match: hidden rows {item.hidden.shape}, {count} names"
                )
        if isinstance(item, ReplyRow) and item.hidden.shape != (width,):
            raise StageFailed(f"an answer row from the thinker has the shape {list(item.hidden.shape)}, not [{width}]")

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        self.net.release()
        return super().step(reqs)

    def prompt_embeddings(self, piece: PromptRows, start: int) -> Tensor:
        return self.net.project(piece.hidden[start:])

    def lead(self, req: StageRequest, lead: PromptEnd) -> None:
        """Check that all prompt rows have arrived. Raises StageFailed, because missing rows would change the speech."""
        if (found := len(req.state.names)) != lead.count:
            raise StageFailed(f"the talker received only {found} of the prompt's {lead.count} rows from the thinker")

    def first_embeddings(self, reqs: Sequence[StageRequest], texts: Sequence[int]) -> Tensor:
        return self.net.lead_embeddings([req.state.voice for req in reqs], texts)

    def text_id(self, token: ReplyRow) -> int:
        return self.net.hold(token.hidden)
