"""Base class of talkers that prefill the thinker's prompt, piece by piece, and store it in a prefix cache.

A model family provides its checkpoint, its networks, the structs of its thinker's messages, and the embedding of prompt
rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from engine.chunk import Chunk, Codes, Usage, kinds
from engine.core import Facets, StageInfo, Voice
from engine.errors import EngineError, WeightsError
from engine.worker.codec import frames_of
from engine.worker.loop.prefix import Prefixes, shared
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.omni.kv_cache_admission import KvCacheAdmission
from engine.worker.omni.source import OmniSource
from engine.worker.omni.talker_feed import TextEnd, read
from engine.worker.omni.thinker_state import PrefixKV
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.talker import stage
from engine.worker.talker import talker_state as speech
from engine.worker.talker.pending import MAX_PENDING, replay_of, to_keep
from engine.worker.talker.stage import Net


@dataclass(slots=True, kw_only=True)
class OmniTalkerState(speech.TalkerState):
    """The state of one answer's speech."""

    voice: Any
    names: list[int] = field(default_factory=list[int])
    """Names of the prompt's rows so far."""
    num_cached_tokens: int = 0
    """The number of first rows that came from the prefix cache."""
    usage: Usage | None = None
    pieces: list[Any] = field(default_factory=list[Any])
    """Pieces of the prompt, stored while they may have to be processed again."""
    unkept: bool = False
    """Whether the prompt must still be stored in the prefix cache, which happens after the first frame."""


class OmniTalker(stage.TalkerStage[Net]):
    """A talker stage: it prefills the prompt, and speaks the thinker's text."""

    source_class: ClassVar[type[Any]]
    net_class: ClassVar[type[Any]]
    speech_class: ClassVar[type[Any]] = OmniTalkerState
    top_p: ClassVar[float]
    """The default, for a checkpoint whose generation_config.json has no value."""
    prompt_class: ClassVar[type[Any]]
    """A message with rows of the prompt, with ``names`` [rows] and ``positions`` [3, rows].

    ``at`` is the index of the first row.
    """
    lead_class: ClassVar[type[Any]]
    """A message that ends the prompt. The talker's own turn begins at its ``position``."""
    text_class: ClassVar[type[Any]]
    """A message with the next token of the answer, after which the answer has ``text_end`` characters."""
    frame_s: ClassVar[float]
    num_lead: ClassVar[int]
    """The number of rows that begin the talker's own turn."""
    prefixes: Prefixes[PrefixKV]

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return cls._info(cls.source_class(config))

    @classmethod
    def _info(cls, source: OmniSource) -> StageInfo:
        return StageInfo(
            takes=kinds(*cls.structs(), Usage),
            emits=kinds(Usage),
            feeds=kinds(Codes),
            slots=source.slots,
            max_pending=MAX_PENDING,
            checkpoints=kinds(Codes),
            replay=replay_of(source.dtype, source.device),
            facets=Facets(voices=tuple(Voice(id, id.capitalize()) for id in source.voices)),
        )

    def __init__(self, config: StageConfig) -> None:
        self.source = source = self.source_class(config)
        self.info = self._info(source)
        if not source.voices:
            raise WeightsError(f"{source.folder}: this checkpoint has no talker; host the thinker alone")
        self.net = self.net_class(source)
        self.piece = source.piece
        self.room = KvCacheAdmission(self.net.cache, _give_up)
        self.prefixes = Prefixes(source.remembered)
        generation = source.generation
        self.sampled = {
            "temperature": generation.get("talker_temperature", 0.9),
            "top_k": self.net.shape.top_k,
            "top_p": generation.get("talker_top_p", self.top_p),
        }

    def open(self, req: StageRequest) -> None:
        asked = req.request.sampling
        req.state = self.speech_class(
            voice=self.source.voice(req.request),
            params=SamplingParams(asked.seed, asked.greedy, **self.sampled),
            spoken=stage.spoken_before(req, self.net.groups),
        )
        self.net.open(req.slot)

    @classmethod
    def structs(cls) -> tuple[type[Any], ...]:
        """Return the structs that the thinker sends."""
        return cls.prompt_class, cls.lead_class, cls.text_class, TextEnd

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Yield the thinker's messages, decoded and checked. Raises StageFailed for an inconsistent one."""
        async for chunk in inputs:
            item = read(chunk, self.structs())
            self.check(item)
            yield item

    @abstractmethod
    def check(self, item: Any) -> None:
        """Raise StageFailed if the fields of a message from the thinker do not fit together."""

    @abstractmethod
    def text_id(self, token: Any) -> int:
        """Return the text id of a ``text_class`` struct."""

    @abstractmethod
    def prompt_embeddings(self, piece: Any, start: int) -> Tensor:
        """Return the embeddings [rows, width] of a ``prompt_class`` struct's rows, from row ``start`` on."""

    def lead(self, req: StageRequest, lead: Any) -> None:
        """Process the start of the talker's own turn. Raises StageFailed."""

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        if self.net.cache.shared:
            self._make_room(reqs)
        for req in to_keep([req for req in reqs if req.state.frames]):  # after the first frame
            self._remember(req)
        results = super().step(reqs)
        for req in reqs:
            if req.done and req.state.unkept:
                self._remember(req)
        return results

    def _make_room(self, reqs: Sequence[StageRequest]) -> None:
        """Reserve cache room for requests before they speak. Requests with complete prompts come first."""
        hearing = [req for req in reqs if req.pending and not req.state.prepared]
        leads = {id(req): any(isinstance(item, self.lead_class) for item in req.pending) for req in hearing}
        for req in sorted(hearing, key=lambda req: leads[id(req)], reverse=True):
            pieces = [item for item in req.pending if isinstance(item, self.prompt_class)]
            positions = max([len(req.state.names), *(item.at + len(item.names) for item in pieces)])
            more = self.num_lead + self._most_frames(req, positions) if leads[id(req)] else 0
            self.room.take(req, positions + more, leads[id(req)])

    def _most_frames(self, req: StageRequest, positions: int) -> int:
        """Return the maximum number of frames after ``positions`` positions of the prompt."""
        return min(frames_of(req.request.max_audio_s, self.frame_s), self.net.room - positions - self.num_lead)

    def prefill(self, req: StageRequest, batch: Batch) -> int:
        """Process the input before the text, at most one piece of the prompt. Return its number of rows."""
        speech, computed = req.state, 0
        if not self.room.has(req):
            return 0
        while req.pending and isinstance(item := req.pending[0], (self.prompt_class, self.lead_class)):
            if isinstance(item, self.prompt_class) and computed:
                break
            req.pending.popleft()
            if speech.prepared:
                continue  # sent again by the replacement of a lost thinker
            if isinstance(item, self.prompt_class):
                computed = self._hear(req, batch, item)
                speech.pieces.append(item)
            else:
                self.lead(req, item)
                speech.position = item.position
                speech.prepared = speech.unkept = True
                speech.limit = self._most_frames(req, speech.num_computed_tokens)
                speech.pieces.clear()
        return computed

    def taken(self, req: StageRequest, item: Any) -> int | None:
        speech: OmniTalkerState = req.state
        if isinstance(item, self.text_class):
            speech.characters = item.text_end
            return self.text_id(item)
        if isinstance(item, Usage):
            speech.usage = item
        elif not speech.ended:
            return self.end_text(req)
        return None

    def cut(self, req: StageRequest) -> list[Chunk]:
        """End speech at its maximum length. Once the text's usage is known, return it with finish "length"."""
        speech: OmniTalkerState = req.state
        for item in req.pending:
            speech.usage = item if isinstance(item, Usage) else speech.usage
        req.pending.clear()
        speech.ended = False
        req.done = req.ended or speech.usage is not None
        if speech.usage is None:
            return []
        return [Usage(speech.usage.input_tokens, speech.usage.output_tokens, finish="length")]

    def _hear(self, req: StageRequest, batch: Batch, piece: Any) -> int:
        """Add a piece of the prompt. Return its number of new rows.

        Some rows may be known from a lost thinker. Rows that have changed are discarded, with all rows after them.
        """
        speech: OmniTalkerState = req.state
        names = piece.names.tolist()
        again = shared(speech.names[piece.at :], names)
        if again < len(names):
            end = piece.at + again
            speech.names[end:] = names[again:]
            speech.num_computed_tokens = min(speech.num_computed_tokens, end)
            speech.num_cached_tokens = min(speech.num_cached_tokens, end)
        computed = again + self._recall(req)
        if computed < len(piece.names):
            self.add(req, batch, self.prompt_embeddings(piece, computed), piece.positions[:, computed:])
        return len(piece.names) - computed

    def _recall(self, req: StageRequest) -> int:
        """Reuse the session's computed rows, if all earlier rows were reused too. Return the number of reused rows."""
        speech: OmniTalkerState = req.state
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
        """Store the computed prompt for the session's next request."""
        speech: OmniTalkerState = req.state
        speech.unkept = False
        if speech.num_cached_tokens < len(speech.names):
            prefix = PrefixKV(*self.net.cache.copy(req.slot, len(speech.names)))
            self.prefixes.keep(req.request.session, speech.names, prefix, prefix.size)


def _give_up(req: StageRequest) -> None:
    """Discard the computed prompt, so that its pieces are processed again."""
    speech: OmniTalkerState = req.state
    req.pending.extendleft(reversed(speech.pieces))
    speech.pieces = []
    speech.names = []
    speech.num_computed_tokens = speech.num_cached_tokens = 0
