"""The talker: rows of the thinker to codec frames, one text token a frame."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Checkpoint, Chunk, Codes, Usage, kinds
from engine.core import Facets, StageInfo, Voice
from engine.errors import EngineError, StageFailed, WeightsError
from engine.worker.codec_frames import frames_of, state_due
from engine.worker.models.qwen3_omni.source import FRAME_S, MAX_PENDING, Source, batch_params, by_slot, to_keep
from engine.worker.models.qwen3_omni.speakable import Lead, Speakable, TextEnd, TextToken, UserTurns, read
from engine.worker.models.qwen3_omni.speech import PrefixKV, Speech
from engine.worker.models.qwen3_omni.talker_net import LEAD, TalkerNet
from engine.worker.nn.decode_batch import DecodeInput
from engine.worker.nn.sampler import FAILED, SamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.prefix import Prefixes
from engine.worker.stage import StageConfig, guarded
from engine.worker.stage_request import StageRequest


class Talker:
    """One codec frame a step for every voice that has something to say; all that a step takes in is one forward."""

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
        self.prefixes: Prefixes[PrefixKV] = Prefixes(source.remembered)
        generation = source.generation
        self.sampled = {
            "temperature": generation.get("talker_temperature", 0.9),
            "top_k": self.net.top_k,
            "top_p": generation.get("talker_top_p", 1.0),
        }

    def open(self, req: StageRequest) -> None:
        asked = req.request.sampling
        covered = req.checkpoint["frames"] if req.checkpoint is not None else 0
        frames = [chunk.frames for chunk in req.kept if isinstance(chunk, Codes)][:covered]
        spoken = np.concatenate([np.zeros((0, self.net.predictor.groups), np.int16), *frames])
        req.state = Speech(
            self.source.voice(req.request), SamplingParams(asked.seed, asked.greedy, **self.sampled), spoken
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

    @torch.inference_mode()
    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        results: dict[int, list[Chunk] | EngineError] = {}
        batch = Batch()
        for req in to_keep([req for req in reqs if req.state.frames]):  # behind the first sound
            self._remember(req)
        turns = self._hear_all(reqs, batch, results)
        beginning, going = self._speakers([req for req in reqs if id(req) not in results], batch, results)
        results |= (self._replay if self.net.graphs else self._compute)(beginning, going, batch)
        for req in turns:
            req.state.unkept = True
        for req in reqs:
            if req.done and req.state.unkept:
                self._remember(req)
            req.needs_input = not req.pending and not req.state.ended
        return [results.get(id(req), []) for req in reqs]

    def _hear_all(
        self, reqs: Sequence[StageRequest], batch: Batch, results: dict[int, list[Chunk] | EngineError]
    ) -> list[StageRequest]:
        """Add what comes before the text, in bounded pieces; the requests that have now taken in all of it."""
        room = self.source.piece  # rows a step: the voices that speak wait for no more
        finished: list[StageRequest] = []
        for req in reqs:
            if room > 0:
                waiting = not req.state.lead
                taken = guarded(self, req, self._prepare, batch)
                if isinstance(taken, EngineError):
                    results[id(req)] = taken
                    continue
                room -= taken
                finished += [req] if waiting and req.state.lead else []
        return finished

    def _speakers(
        self, reqs: Sequence[StageRequest], batch: Batch, results: dict[int, list[Chunk] | EngineError]
    ) -> tuple[list[tuple[StageRequest, int]], list[tuple[StageRequest, int]]]:
        """Return which requests begin to speak and which go on, each with the next text; the others' results go into
        ``results``."""
        beginning: list[tuple[StageRequest, int]] = []
        going: list[tuple[StageRequest, int]] = []
        for req in sorted(reqs, key=by_slot):
            found = guarded(self, req, self._next, batch)
            if isinstance(found, int):
                (going if req.state.started else beginning).append((req, found))
            elif found is not None:
                results[id(req)] = found
        return beginning, going

    def _next(self, req: StageRequest, batch: Batch) -> int | list[Chunk] | None:
        """The next text of a request that speaks; of others, what comes of them."""
        speech: Speech = req.state
        if speech.frames < len(speech.spoken):
            return self._follow(req, batch)
        return self._cut(req) if speech.frames >= speech.limit else self._next_text(req)

    def _prepare(self, req: StageRequest, batch: Batch) -> int:
        """Take in what comes before the text, up to one piece of the user's; how many rows that had."""
        speech, computed = req.state, 0
        while req.pending and isinstance(item := req.pending[0], UserTurns | Lead):
            if isinstance(item, UserTurns) and computed:
                break
            req.pending.popleft()
            if speech.lead:
                continue  # sent again by another thinker, in place of one that was lost
            if isinstance(item, UserTurns):
                computed = self._hear(req, batch, item)
            else:
                speech.lead, speech.position = item.ids, item.position
                most = frames_of(req.request.max_audio_s, FRAME_S)
                speech.limit = min(most, self.net.room - speech.num_computed_tokens - LEAD)
        return computed

    def _hear(self, req: StageRequest, batch: Batch, user: UserTurns) -> int:
        """Add a piece of the user's turns. Returns how many rows were new."""
        speech: Speech = req.state
        again = min(len(speech.names) - user.at, len(user.ids))  # of this piece, from a thinker that was lost
        speech.names += user.names[again:].tolist()
        computed = again + self._recall(req)
        if computed < len(user.ids):
            before = np.count_nonzero(self.source.marks.stand(user.ids[:computed]))
            embeddings = self.net.user_embeddings(user.ids[computed:], user.media[before:])
            self._add(req, batch, embeddings, user.positions[:, computed:])
        return len(user.ids) - computed

    def _add(self, req: StageRequest, batch: Batch, embeddings: Tensor, positions: NDArray[np.float32]) -> None:
        speech: Speech = req.state
        batch.add(req.slot, speech.num_computed_tokens, embeddings, positions)
        speech.num_computed_tokens += len(embeddings)

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

    def _next_text(self, req: StageRequest) -> int | None:
        """The text that goes into the next frame: a token, its end once, then padding; None: it is not there yet."""
        speech: Speech = req.state
        if not speech.lead:
            req.done = req.ended and not req.pending
            return None
        while req.pending:
            item: Speakable = req.pending.popleft()
            if isinstance(item, Usage):
                speech.usage = item
            elif isinstance(item, TextToken):
                speech.characters = item.text_end
                return item.id
            elif not speech.ended:
                return self._end(req)
        if speech.ended:
            return self.source.marks.pad
        return self._end(req) if req.ended else None

    def _end(self, req: StageRequest) -> int | None:
        """The text is over; where none has come, nothing is said."""
        speech: Speech = req.state
        speech.ended = True
        req.done = not speech.started
        return self.source.marks.end if speech.started else None

    def _cut(self, req: StageRequest) -> list[Chunk]:
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

    def _compute(
        self, beginning: Sequence[tuple[StageRequest, int]], going: Sequence[tuple[StageRequest, int]], batch: Batch
    ) -> dict[int, list[Chunk] | EngineError]:
        """Take in the batch, and in the same forward the next rows of those who speak: a frame for each of them."""
        speaking = self._begin(beginning, batch) + self._go_on(going, batch)
        hidden = self.net.append(batch) if len(batch) else None
        if hidden is None or not speaking:
            return {}
        slots, steps = [req.slot for req in speaking], [req.state.frames for req in speaking]
        params = batch_params(speaking, hidden.device)
        return self._framed(speaking, self.net.frames(slots, hidden[-len(speaking) :], params, steps))

    def _replay(
        self, beginning: Sequence[tuple[StageRequest, int]], going: Sequence[tuple[StageRequest, int]], batch: Batch
    ) -> dict[int, list[Chunk] | EngineError]:
        """The same where frames are graphs: into those goes one row of each, a turn's first frame not excepted."""
        if beginning:
            self.net.lead([req.slot for req in self._begin(beginning, batch, LEAD - 1)])
        if len(batch):
            self.net.append(batch)
        inputs = [self._decode_input(req, text) for req, text in (*beginning, *going)]
        return self._framed([req for req, _ in (*beginning, *going)], self.net.speak(inputs)) if inputs else {}

    def _decode_input(self, req: StageRequest, text: int) -> DecodeInput:
        speech: Speech = req.state
        start, position = speech.num_computed_tokens, speech.position
        speech.num_computed_tokens, speech.position = start + 1, position + 1
        return DecodeInput(req.slot, start, text, speech.frames, position, speech.params)

    def _begin(
        self, beginning: Sequence[tuple[StageRequest, int]], batch: Batch, most: int = LEAD
    ) -> list[StageRequest]:
        """Add the first rows with which the talker's own turn begins. Returns those requests."""
        if not beginning:
            return []
        reqs, texts = [req for req, _ in beginning], [text for _, text in beginning]
        embeddings = self.net.lead_embeddings(
            [req.state.lead for req in reqs], [req.state.voice for req in reqs], texts
        )
        for req, own in zip(reqs, embeddings, strict=True):
            req.state.started = True
            self._add_on(req, batch, own[:most])
        return reqs

    def _go_on(self, going: Sequence[tuple[StageRequest, int]], batch: Batch) -> list[StageRequest]:
        """Add a row for each request that speaks: its last frame and its next text. Returns those requests."""
        if not going:
            return []
        reqs, texts = [req for req, _ in going], [text for _, text in going]
        for req, own in zip(reqs, self.net.next_embeddings([req.slot for req in reqs], texts), strict=True):
            self._add_on(req, batch, own[None])
        return reqs

    def _add_on(self, req: StageRequest, batch: Batch, embeddings: Tensor) -> None:
        """Add rows of the talker's own turn: words count on."""
        speech: Speech = req.state
        count = np.arange(len(embeddings), dtype=np.float32) + np.float32(speech.position)
        self._add(req, batch, embeddings, np.broadcast_to(count, (3, len(embeddings))))
        speech.position += len(embeddings)

    def _follow(self, req: StageRequest, batch: Batch) -> None:
        """Add what another replica has spoken, as far as its text is there: many rows at once, nothing is drawn."""
        speech: Speech = req.state
        if not speech.started:
            if (text := self._next_text(req)) is None:
                return
            self._begin([(req, text)], batch)
            speech.frames = 1
        texts: list[int] = []
        most = min(self.source.piece, len(speech.spoken) - speech.frames)
        while len(texts) < most and (text := self._next_text(req)) is not None:
            texts.append(text)
        embeddings = self.net.follow(req.slot, speech.spoken[speech.frames - 1 : speech.frames + len(texts)])
        if texts:
            self._add_on(req, batch, embeddings + self.net.text_embeddings(texts))
            speech.frames += len(texts)

    def _framed(self, reqs: Sequence[StageRequest], frames: NDArray[np.int16]) -> dict[int, list[Chunk] | EngineError]:
        """Return what comes of a frame of each request."""
        return {id(req): guarded(self, req, self._frame, frame) for req, frame in zip(reqs, frames, strict=True)}

    def _frame(self, req: StageRequest, frame: NDArray[np.int16]) -> list[Chunk] | EngineError:
        speech: Speech = req.state
        if (frame == FAILED).any():
            self.net.forget(req.slot)
            return StageFailed("the talker's logits are not numbers")
        if frame[0] == self.net.config.codec_eos_token_id:
            req.done = True
            return []
        speech.frames += 1
        chunks: list[Chunk] = [Codes(frame[None], speech.reached)]
        if state_due(speech.frames - 1, speech.frames):
            chunks.append(Checkpoint({"frames": speech.frames}))
        return chunks
