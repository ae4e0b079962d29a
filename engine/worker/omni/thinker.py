"""The thinker stage: from text, audio, pictures and video to text and tool calls, and to the talker's input."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Chunk, Speech, Text, ToolCall, Usage, VideoFrame, kinds
from engine.core import Facets, StageInfo, TokenCost
from engine.errors import EngineError, StageFailed
from engine.worker.loop.prefix import Prefixes
from engine.worker.nn.device import to_device
from engine.worker.nn.sampling_params import FAILED, SamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.omni.answer_writer import AnswerWriter
from engine.worker.omni.encoders import Encoders
from engine.worker.omni.film import CAMERA
from engine.worker.omni.kv_cache_admission import KvCacheAdmission
from engine.worker.omni.prompt import Prompt
from engine.worker.omni.prompt_cache import PromptCache
from engine.worker.omni.prompter import Prompter
from engine.worker.omni.source import OmniSource
from engine.worker.omni.talker_feed import TextEnd
from engine.worker.omni.thinker_net import ThinkerNet
from engine.worker.omni.thinker_state import PrefixKV, PromptPiece, ThinkerState, deep
from engine.worker.stage import StageConfig, guarded
from engine.worker.stage_request import StageRequest
from engine.worker.talker.pending import MAX_PENDING, by_slot, replay_of, room_of, to_keep
from engine.worker.text.chat_encoder import TextPieces, tokenizer_of

ENCODED = 4  # a GPU encodes prompts of up to this many pieces in one step


class OmniThinker:
    """A thinker stage. A model family provides its source, networks and talker feed."""

    plannable: ClassVar[bool] = True
    work_bytes: ClassVar[int] = 2_500_000_000
    """Memory for graphs and steps, as measured on an H200 with the shapes of Qwen3-Omni-30B-A3B (benchmarks.gpu)."""
    source_class: ClassVar[type[OmniSource]]
    net_class: ClassVar[type[ThinkerNet]] = ThinkerNet
    ears: ClassVar[type[Any]]
    eyes: ClassVar[type[Any]]

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return cls._info(cls.source_class(config))

    @classmethod
    def _info(cls, source: OmniSource) -> StageInfo:
        facets = Facets(
            model=source.family,
            sees=frozenset({"image", "video"}),
            camera=CAMERA,
            context=source.context,
            cost=TokenCost(),
            tokenizer=tokenizer_of(source.folder),
        )
        replay = replay_of(source.dtype, source.device)
        return StageInfo(
            takes=kinds(Speech, VideoFrame),
            emits=kinds(Text, ToolCall, Usage),
            feeds=source.talker_feed.kinds | kinds(TextEnd, Usage),
            answers=True,
            says=True,
            slots=source.slots,
            max_pending=MAX_PENDING,
            facets=facets,
            replay=replay,
            checkpoints=frozenset() if replay == "exact" else kinds(Text, ToolCall),
        )

    def __init__(self, config: StageConfig) -> None:
        self.source = source = self.source_class(config)
        self.feed = source.talker_feed
        self.info = self._info(source)
        self.prompter = Prompter(source)
        self.chat = self.prompter.chat
        read = source.reader("thinker.")
        self.net = self.net_class(source, read)
        self.prefixes: Prefixes[PrefixKV] = Prefixes(source.remembered)
        self.cache = PromptCache(self.net.cache, self.prefixes, self.feed)
        self.room = KvCacheAdmission(self.net.cache, lambda req: req.state.give_up())
        self.encoders = Encoders(source, read, self.ears, self.eyes)
        ends = source.generation.get("eos_token_id", self.chat.added.get("<|im_end|>"))
        self.ends = frozenset(ends if isinstance(ends, list) else [ends])
        self.writer = AnswerWriter(self.chat, self.feed, self.ends, resumes=self.info.replay == "continue")

    def open(self, req: StageRequest) -> None:
        request, defaults = req.request, self.source.generation
        if request.speaks:
            self.source.voice(request)
        asked = request.sampling
        params = SamplingParams(
            seed=asked.seed,
            greedy=asked.greedy or asked.temperature == 0,
            temperature=defaults.get("temperature", 0.7) if asked.temperature is None else asked.temperature,
            top_k=self.net.top_k,
            top_p=defaults.get("top_p", 0.95) if asked.top_p is None else asked.top_p,
        )
        req.state = ThinkerState(request.max_text_tokens, params, TextPieces(self.chat), kept=self._kept(req))

    def _kept(self, req: StageRequest) -> deque[int]:
        """Return the tokens of an answer that a lost replica began.

        The thinker writes them again, and then continues.
        """
        ids = [id for chunk in req.kept if isinstance(chunk, Text | ToolCall) for id in chunk.token_ids]
        call = req.checkpoint
        if call is not None and len(ids) < call["start"] + len(call["ids"]):
            ids[call["start"] :] = call["ids"]  # the voice has stopped here
        if req.whole and req.kept:
            ids.append(next(iter(self.ends)))
        return deque(ids)

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async with aclosing(self.prompter.prompts(req.request, inputs)) as prompts:
            async for prompt in prompts:
                yield prompt

    @torch.inference_mode()
    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        results: dict[int, list[Chunk] | EngineError] = {}
        for req in reqs:
            if req.pending and (error := guarded(self, req, self._begin)):
                results[id(req)] = error
        sane = [req for req in reqs if id(req) not in results]
        for req in sorted(sane, key=lambda req: req.state.whole, reverse=True):
            if error := guarded(self, req, self._enter):
                results[id(req)] = error
        sane = [req for req in sane if id(req) not in results and self.room.has(req)]
        for req in to_keep([req for req in sane if not req.state.unspoken]):  # after the first audio
            self.cache.remember(req)
        results |= self._read(sane)
        writing = [req for req in sane if req.state.writing and id(req) not in results]
        unscripted = sorted((req for req in writing if req.state.script is None), key=by_slot)
        known = [req for req in unscripted if req.kept and req.state.kept]
        free = [req for req in unscripted if req not in known]
        if known:
            results |= self._follow(known)
        if free:
            written = zip(free, self._write(free), strict=True)
            results |= {id(req): guarded(self, req, self._take, id_) for req, id_ in written}
        for req in reqs:
            req.needs_input = not req.state.reading and not req.state.writing  # while the user is still speaking
        for req in writing:
            if (script := req.state.script) is not None:
                token = script.popleft() if script else next(iter(self.ends))
                results[id(req)] = guarded(self, req, self._take, token)
        return [results.get(id(req), []) for req in reqs]

    def _begin(self, req: StageRequest) -> None:
        """Take the newest version of the prompt."""
        thought: ThinkerState = req.state
        prompt: Prompt = req.pending.pop()
        req.pending.clear()  # earlier versions
        self.cache.rewind(thought, prompt)
        thought.prompt = prompt
        thought.embeddings = None
        thought.deep = []
        thought.fresh = True
        if prompt.whole:
            thought.limit = min(thought.limit, self.source.context - len(prompt.ids))
        if prompt.script is not None:
            thought.script = deque(prompt.script)
            thought.limit = len(thought.script) + 1

    def _enter(self, req: StageRequest) -> None:
        """Reserve cache room for the request, and reuse the session's computed rows."""
        thought: ThinkerState = req.state
        if not thought.fresh and not thought.reading:
            return
        assert thought.prompt is not None
        if self.room.take(req, thought.most_positions, thought.prompt.whole) and thought.fresh:
            thought.fresh = False
            self.cache.recall(req, thought.prompt)

    def _read(self, reqs: Sequence[StageRequest]) -> dict[int, list[Chunk] | EngineError]:
        """Prefill the next pieces of prompts as one batch. Encoding media may take a step of its own."""
        pieces: list[PromptPiece] = []
        room = room_of(reqs, self.source.piece, self.source.device)
        reading = [req for req in reqs if req.state.reading]
        encoded = self._encode_together(reading)
        results: dict[int, list[Chunk] | EngineError] = {**encoded}
        for req in reading:
            if room <= 0:
                break
            thought: ThinkerState = req.state
            assert thought.prompt is not None
            results[id(req)] = chunks = encoded.get(id(req), [])
            if thought.embeddings is None:
                results[id(req)] = chunks = guarded(self, req, lambda one: self._encode([one])[id(one)])
                if isinstance(chunks, EngineError):
                    continue
                if thought.prompt.ahead or thought.prompt.media_end > thought.num_computed_tokens:
                    break
            end = min(len(thought.prompt.ids), thought.num_computed_tokens + self.source.piece)
            if end > thought.num_computed_tokens:  # otherwise there were only pictures to encode ahead
                pieces.append(PromptPiece(req, slice(thought.num_computed_tokens, end), chunks))
                room -= end - thought.num_computed_tokens
        return results | self._prefill(pieces) if pieces else results

    def _encode_together(self, reading: Sequence[StageRequest]) -> dict[int, list[Chunk]]:
        """Encode the media of several prompts at once on a GPU, where a batch costs little more than one prompt."""
        if self.source.device.type == "cpu":
            return {}
        sizes = itertools.accumulate(len(req.state.prompt.ids) - req.state.num_computed_tokens for req in reading)
        within = [req for req, size in zip(reading, sizes, strict=True) if size <= ENCODED * self.source.piece]
        fresh = [req for req in within or reading[:1] if req.state.embeddings is None]
        return self._encode(fresh) if fresh else {}

    def _encode(self, reqs: Sequence[StageRequest]) -> dict[int, list[Chunk]]:
        """Compute the input embeddings of prompts. Return the talker's chunks of reused rows."""
        asked = [(req.state.prompt, req.state.num_computed_tokens, req.state.seen) for req in reqs]
        for req, embedded in zip(reqs, self.encoders.embed(self.net.embed_tokens, asked), strict=True):
            req.state.embeddings, req.state.deep, req.state.seen = embedded
        return {id(req): self._recalled(req) for req in reqs}

    def _recalled(self, req: StageRequest) -> list[Chunk]:
        thought: ThinkerState = req.state
        assert thought.prompt is not None
        if thought.num_sent >= thought.num_computed_tokens:
            return []
        before = len(self.feed.hidden_indices(thought.prompt, slice(0, thought.num_sent)))
        hidden = np.concatenate(thought.hidden)[before:]
        return self._emit(req, slice(thought.num_sent, thought.num_computed_tokens), hidden)

    def _emit(self, req: StageRequest, piece: slice, hidden: NDArray[np.float32]) -> list[Chunk]:
        """Return the talker's chunks of a computed piece of the prompt."""
        thought: ThinkerState = req.state
        assert thought.prompt is not None
        thought.num_sent = piece.stop
        return self.feed.chunks(thought.prompt, piece, hidden) if req.request.speaks else []

    def _prefill(self, pieces: Sequence[PromptPiece]) -> dict[int, EngineError]:
        """Prefill pieces of prompts, and draw the first token of complete ones. Return the failed requests."""
        batch = Batch()
        for piece in pieces:
            thought: ThinkerState = piece.req.state
            assert thought.prompt is not None
            assert thought.embeddings is not None
            batch.add(
                piece.req.slot,
                piece.span.start,
                thought.embeddings[piece.span],
                thought.prompt.positions[:, piece.span],
            )
        hidden, tapped = self.net.append(batch, deep(pieces))
        failed: dict[int, EngineError] = {}
        taken = self._taken(pieces, self.feed.hidden(pieces, hidden, tapped))
        for piece, own in zip(pieces, taken, strict=True):
            _extend(piece, guarded(self, piece.req, self._took, piece.span, own), failed)
        ends = [pair for pair in zip(pieces, batch.lasts, strict=True) if id(pair[0].req) not in failed]
        ended = [(one, at) for one, at in ends if one.req.state.writing and one.req.state.script is None]
        if not ended:
            return failed
        thoughts: list[ThinkerState] = [piece.req.state for piece, _ in ended]
        last = hidden[to_device([at for _, at in ended], self.source.device)]
        tokens = self.net.choose(last, [one.params for one in thoughts], [one.num_output_tokens for one in thoughts])
        for (piece, _), token in zip(ended, tokens, strict=True):
            _extend(piece, guarded(self, piece.req, self._take, token), failed)
            piece.req.state.unkept = not piece.req.done and id(piece.req) not in failed
        return failed

    def _taken(self, pieces: Sequence[PromptPiece], hidden: Tensor) -> list[NDArray[np.float32]]:
        """Return for each piece the hidden rows for the talker, with one transfer from the device."""
        counts = [piece.span.stop - piece.span.start for piece in pieces]
        firsts = np.cumsum([0, *counts[:-1]])
        wanted = [self.feed.hidden_indices(piece.req.state.prompt, piece.span) - piece.span.start for piece in pieces]
        at = np.concatenate([indices + first for indices, first in zip(wanted, firsts, strict=True)])
        found = np.zeros((0, hidden.shape[1]), np.float32)
        if len(at):
            found = hidden[to_device(at, self.source.device)].float().cpu().numpy()
        return np.split(found, np.cumsum([len(indices) for indices in wanted[:-1]]))

    def _took(self, req: StageRequest, piece: slice, hidden: NDArray[np.float32]) -> list[Chunk]:
        """Record a piece of the prompt as computed, and return its chunks for the talker."""
        thought: ThinkerState = req.state
        prompt = thought.prompt
        assert prompt is not None
        thought.hidden.append(hidden)
        thought.num_computed_tokens = piece.stop
        if thought.writing:
            thought.embeddings = None
            thought.deep = []
            thought.seen = {}
            thought.position = float(prompt.positions.max()) + 1
        elif not thought.reading and prompt.media_end == piece.stop and piece.start < prompt.num_final:
            self.cache.remember(req)  # store the user's words so far, in case they are answered again
        return self._emit(req, piece, hidden)

    def _follow(self, reqs: Sequence[StageRequest]) -> dict[int, list[Chunk] | EngineError]:
        """Compute tokens that a lost replica had written, several in one forward pass, without sampling."""
        batch, counts = Batch(), list[int]()
        for req in reqs:
            thought: ThinkerState = req.state
            ids = [thought.last, *itertools.islice(thought.kept, self.source.piece // len(reqs))]
            counts.append(max(1, len(ids) - 1))
            embeddings = self.net.embed_tokens[to_device(ids[: counts[-1]], self.source.device)]
            batch.add(req.slot, thought.num_computed_tokens, embeddings, thought.positions(counts[-1]))
        consumed = np.split(self.net.follow(batch).float().cpu().numpy(), np.cumsum(counts[:-1]))
        return {id(req): guarded(self, req, self._followed, own) for req, own in zip(reqs, consumed, strict=True)}

    def _followed(self, req: StageRequest, hidden: NDArray[np.float32]) -> list[Chunk] | EngineError:
        """Write known tokens again, one for each computed hidden row."""
        thought: ThinkerState = req.state
        thought.ate(len(hidden))
        chunks: list[Chunk] = []
        for row in hidden:
            self._ate(req, row)
            taken = self._take(req, thought.kept[0])
            assert not isinstance(taken, EngineError)
            chunks += taken
            if req.done:
                break
        return chunks

    def _ate(self, req: StageRequest, row: NDArray[np.float32]) -> None:
        """Process the hidden row of an answer's token that has entered the cache.

        Subclasses may pass it to the talker.
        """

    def _write(self, reqs: Sequence[StageRequest]) -> list[int]:
        """Compute one token for each request in one forward pass."""
        thoughts: list[ThinkerState] = [req.state for req in reqs]
        inputs = [one.decode_input(req.slot) for req, one in zip(reqs, thoughts, strict=True)]
        for thought in thoughts:
            thought.ate(1)
        return self.net.write(inputs)

    def _take(self, req: StageRequest, token: int) -> list[Chunk] | EngineError:
        """Return the chunks of a token, either drawn or known from a lost replica."""
        thought: ThinkerState = req.state
        if token == FAILED:
            self.net.cache.clear(req.slot)
            return StageFailed("the thinker's logits are not numbers")
        if thought.kept:
            token = thought.kept.popleft()
        chunks = self.writer.write(req, token)
        if req.done:
            self.cache.remember(req)
        return chunks


def _extend(piece: PromptPiece, result: list[Chunk] | EngineError, failed: dict[int, EngineError]) -> None:
    """Add the result of a piece to its chunks, or record that its request has failed."""
    if isinstance(result, EngineError):
        failed[id(piece.req)] = result
    else:
        piece.chunks.extend(result)
