"""The talker: rows of the thinker to codec frames, one text token a frame."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from engine.chunk import Chunk, Codes, Usage, kinds
from engine.core import Facets, StageInfo, Voice
from engine.errors import EngineError, StageFailed, WeightsError
from engine.worker.codec_frames import frames_of
from engine.worker.models.qwen3_omni.source import FRAME_S, Source
from engine.worker.models.qwen3_omni.speakable import Lead, Speakable, TextToken, UserTurns, read
from engine.worker.models.qwen3_omni.talker_net import LEAD, TalkerNet
from engine.worker.nn.sampler import SamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.omni.source import MAX_PENDING, to_keep
from engine.worker.omni.talker_feed import TextEnd
from engine.worker.prefix import Prefixes
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.talker import speech, stage


@dataclass(frozen=True, slots=True)
class PrefixKV:
    """The computed state of a conversation's user turns: keys and values [layers, heads, rows, dim]."""

    keys: Tensor
    values: Tensor


@dataclass(slots=True, kw_only=True)
class Speech(speech.Speech):
    """A voice on its way, behind the user's turns.

    ``names`` are those of the user's rows so far, of which the first ``num_cached_tokens`` were taken over from an
    earlier request; ``lead`` is how its own turn begins.
    """

    voice: int
    lead: tuple[int, ...] = ()
    names: list[int] = field(default_factory=list[int])
    num_cached_tokens: int = 0
    usage: Usage | None = None
    unkept: bool = False
    """Whether the user's turns are still to be kept for the session: when the first frame is on its way to be sound."""


class Talker(stage.Talker[TalkerNet]):
    """The stage: it hears the user's turns, and says what its thinker writes."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return cls._info(Source(config))

    @classmethod
    def _info(cls, source: Source) -> StageInfo:
        return StageInfo(
            takes=kinds(UserTurns, Lead, TextToken, TextEnd, Usage), emits=kinds(Usage), feeds=kinds(Codes),
            slots=source.slots, max_pending=MAX_PENDING, checkpoints=kinds(Codes),
            facets=Facets(voices=tuple(Voice(id, id.capitalize()) for id in source.voices)),
        )  # fmt: skip

    def __init__(self, config: StageConfig) -> None:
        self.source = source = Source(config)
        self.info = self._info(source)
        if not source.voices:
            raise WeightsError(f"{source.folder}: this checkpoint has no talker; host the thinker alone")
        self.net = TalkerNet(source)
        self.piece, self.end, self.pad = source.piece, source.marks.end, source.marks.pad
        self.prefixes: Prefixes[PrefixKV] = Prefixes(source.remembered)
        generation = source.generation
        self.sampled = {
            "temperature": generation.get("talker_temperature", 0.9),
            "top_k": self.net.shape.top_k,
            "top_p": generation.get("talker_top_p", 1.0),
        }

    def open(self, req: StageRequest) -> None:
        asked = req.request.sampling
        req.state = Speech(
            voice=self.source.voice(req.request),
            params=SamplingParams(asked.seed, asked.greedy, **self.sampled),
            spoken=stage.spoken_before(req, self.net.predictor.groups),
        )
        self.net.seen_codes[req.slot] = False

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Yield what the thinker says, as it is. Raises StageFailed where it does not belong together."""
        async for chunk in inputs:
            item = read(chunk)
            if isinstance(item, UserTurns):
                self._check(item)
            yield item

    def _check(self, user: UserTurns) -> None:
        ids, names, positions, media = len(user.ids), len(user.names), user.positions.shape[1], len(user.media)
        placeholders = np.count_nonzero(self.source.marks.stand(user.ids))
        if not (ids == names == positions) or placeholders != media:
            counts = f"{ids} ids, {names} names, {positions} positions, {placeholders} placeholders, {media} media"
            raise StageFailed(f"the parts of a turn that the thinker sent do not fit together: {counts}")

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        for req in to_keep([req for req in reqs if req.state.frames]):  # behind the first sound
            self._remember(req)
        results = super().step(reqs)
        for req in reqs:
            if req.done and req.state.unkept:
                self._remember(req)
        return results

    def prefill(self, req: StageRequest, batch: Batch) -> int:
        """Take in what comes before the text, up to one piece of the user's; how many rows that had."""
        speech, computed = req.state, 0
        while req.pending and isinstance(item := req.pending[0], UserTurns | Lead):
            if isinstance(item, UserTurns) and computed:
                break
            req.pending.popleft()
            if speech.prepared:
                continue  # sent again by another thinker, in place of one that was lost
            if isinstance(item, UserTurns):
                computed = self._hear(req, batch, item)
            else:
                speech.lead, speech.position = item.ids, item.position
                speech.prepared = speech.unkept = True
                most = frames_of(req.request.max_audio_s, FRAME_S)
                speech.limit = min(most, self.net.room - speech.num_computed_tokens - LEAD)
        return computed

    def first_embeddings(self, reqs: Sequence[StageRequest], texts: Sequence[int]) -> Tensor:
        return self.net.lead_embeddings([req.state.lead for req in reqs], [req.state.voice for req in reqs], texts)

    def taken(self, req: StageRequest, item: Speakable) -> int | None:
        speech: Speech = req.state
        if isinstance(item, Usage):
            speech.usage = item
        elif isinstance(item, TextToken):
            speech.characters = item.text_end
            return item.id
        elif not speech.ended:
            return self.end_text(req)
        return None

    def cut(self, req: StageRequest) -> list[Chunk]:
        """It has spoken as long as it may; once the text's usage is known, say that it was cut."""
        speech: Speech = req.state
        for item in req.pending:
            speech.usage = item if isinstance(item, Usage) else speech.usage
        req.pending.clear()
        speech.ended = False
        req.done = req.ended or speech.usage is not None
        if speech.usage is None:
            return []
        return [Usage(speech.usage.input_tokens, speech.usage.output_tokens, finish="length")]

    def _hear(self, req: StageRequest, batch: Batch, user: UserTurns) -> int:
        """Add a piece of the user's turns. Returns how many rows were new."""
        speech: Speech = req.state
        again = min(len(speech.names) - user.at, len(user.ids))  # of this piece, from a thinker that was lost
        speech.names += user.names[again:].tolist()
        computed = again + self._recall(req)
        if computed < len(user.ids):
            before = np.count_nonzero(self.source.marks.stand(user.ids[:computed]))
            embeddings = self.net.user_embeddings(user.ids[computed:], user.media[before:])
            self.add(req, batch, embeddings, user.positions[:, computed:])
        return len(user.ids) - computed

    def _recall(self, req: StageRequest) -> int:
        """Take over what the session has of the newest rows, if it had all those before; how many."""
        speech: Speech = req.state
        before = speech.num_computed_tokens
        found = (
            self.prefixes.find(req.request.session, speech.names, before)
            if speech.num_cached_tokens == before
            else None
        )
        if found is None or found[0] <= before:
            return 0
        speech.num_computed_tokens = speech.num_cached_tokens = found[0]
        self.net.cache.restore(req.slot, found[1].keys, found[1].values, before, speech.num_computed_tokens)
        return speech.num_computed_tokens - before

    def _remember(self, req: StageRequest) -> None:
        """Keep what was computed of the user's turns, for the session's next request."""
        speech: Speech = req.state
        speech.unkept = False
        if speech.num_cached_tokens < len(speech.names):
            prefix = PrefixKV(*self.net.cache.copy(req.slot, len(speech.names)))
            self.prefixes.keep(req.request.session, speech.names, prefix, prefix.keys.nbytes + prefix.values.nbytes)
