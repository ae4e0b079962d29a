"""The talker: rows of the thinker to codes, fifty a second, one row a code while there is text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine import core
from engine.chunk import Chunk, Codes, Usage, kinds
from engine.core import Facets, StageInfo
from engine.errors import EngineError, StageFailed, WeightsError
from engine.worker.models.qwen2_5_omni.feed import PromptEnd, PromptRows, ReplyRow, Speakable, read
from engine.worker.models.qwen2_5_omni.source import CODE_S, Source
from engine.worker.models.qwen2_5_omni.talker_net import END, LEAD, PAD, TalkerNet
from engine.worker.nn.sampler import SamplingParams
from engine.worker.omni import talker
from engine.worker.omni.source import MAX_PENDING
from engine.worker.omni.talker_feed import TextEnd
from engine.worker.prefix import Prefixes
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.talker import stage
from engine.worker.talker.speech import estimated


@dataclass(slots=True, kw_only=True)
class Speech(talker.Speech):
    """A voice on its way, fifty codes a second."""

    @property
    def reached(self) -> int:
        return min(self.characters, estimated(self.answered * CODE_S))


class Talker(talker.Talker[Any]):
    """The stage: it hears the prompt, and says what its thinker writes."""

    prompt_class, lead_class = PromptRows, PromptEnd
    frame_s, num_lead = CODE_S, LEAD
    end, pad = END, PAD

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return cls._info(Source(config))

    @classmethod
    def _info(cls, source: Source) -> StageInfo:
        return StageInfo(
            takes=kinds(PromptRows, PromptEnd, ReplyRow, TextEnd, Usage), emits=kinds(Usage), feeds=kinds(Codes),
            slots=source.slots, max_pending=MAX_PENDING, checkpoints=kinds(Codes),
            facets=Facets(voices=tuple(core.Voice(id, id.capitalize()) for id in source.voices)),
        )  # fmt: skip

    def __init__(self, config: StageConfig) -> None:
        self.source = source = Source(config)
        self.info = self._info(source)
        if not source.voices:
            raise WeightsError(f"{source.folder}: this checkpoint has no talker; host the thinker alone")
        self.net = TalkerNet(source)
        self.piece, self.room = source.piece, self.net.room
        self.prefixes = Prefixes(source.remembered)
        generation = source.generation
        self.sampled = {
            "temperature": generation.get("talker_temperature", 0.9),
            "top_k": self.net.shape.top_k,
            "top_p": generation.get("talker_top_p", 0.8),
        }

    def open(self, req: StageRequest) -> None:
        asked = req.request.sampling
        req.state = Speech(
            voice=self.source.voice(req.request),
            params=SamplingParams(asked.seed, asked.greedy, **self.sampled),
            spoken=stage.spoken_before(req, 1),
        )
        self.net.open(req.slot)

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Yield what the thinker says, as it is. Raises StageFailed where it does not belong together."""
        width = self.source.text.hidden_size
        async for chunk in inputs:
            item = read(chunk)
            if isinstance(item, PromptRows):
                count = len(item.names)
                if item.hidden.shape != (count, width) or item.positions.shape != (3, count):
                    raise StageFailed(f"rows of a prompt do not fit together: {item.hidden.shape}, {count} names")
            if isinstance(item, ReplyRow) and item.hidden.shape != (width,):
                raise StageFailed(f"a row of the answer has the shape {list(item.hidden.shape)}, not [{width}]")
            yield item

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

    def taken(self, req: StageRequest, item: Speakable) -> int | None:
        if isinstance(item, ReplyRow):
            req.state.characters = item.text_end
            return self.net.hold(item.hidden)
        return super().taken(req, item)
