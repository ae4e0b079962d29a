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
from engine.worker.models.qwen3_omni.source import FRAME_S, ROWS_AHEAD, Source, batch_params, by_slot, to_keep
from engine.worker.models.qwen3_omni.speakable import Lead, Speakable, TextEnd, TextToken, UserTurns, read
from engine.worker.models.qwen3_omni.speech import PrefixKV, Speech
from engine.worker.models.qwen3_omni.talker_net import LEAD, TalkerNet
from engine.worker.nn.decode_batch import DecodeInput
from engine.worker.nn.sampler import FAILED, SamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.prefix import Prefixes
from engine.worker.stage import Place, Seat, frames_of, guarded, state_due


class Talker:
    """One codec frame a step for every voice that has something to say; all that a step takes in is one forward."""

    @classmethod
    def describe(cls, place: Place) -> StageInfo:
        return cls._info(Source(place))

    @classmethod
    def _info(cls, source: Source) -> StageInfo:
        return StageInfo(
            takes=kinds(UserTurns, Lead, TextToken, TextEnd, Usage), emits=kinds(Usage), feeds=kinds(Codes),
            slots=source.slots, rows_ahead=ROWS_AHEAD, checkpoints=kinds(Codes),
            facets=Facets(voices=tuple(Voice(id, id.capitalize()) for id in source.voices)),
        )  # fmt: skip

    def __init__(self, place: Place) -> None:
        self.source = source = Source(place)
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

    def open(self, seat: Seat) -> None:
        asked = seat.request.sampling
        covered = seat.checkpoint["frames"] if seat.checkpoint is not None else 0
        frames = [chunk.frames for chunk in seat.kept if isinstance(chunk, Codes)][:covered]
        spoken = np.concatenate([np.zeros((0, self.net.predictor.groups), np.int16), *frames])
        seat.state = Speech(
            self.source.voice(seat.request), SamplingParams(asked.seed, asked.greedy, **self.sampled), spoken
        )
        self.net.seen_codes[seat.slot] = False

    async def adapt(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """What the thinker says, as it is. Raises StageFailed where it does not belong together."""
        async for chunk in inputs:
            item = read(chunk)
            if isinstance(item, UserTurns):
                self._check(item)
            yield item

    def _check(self, user: UserTurns) -> None:
        ids, names, positions, media = len(user.ids), len(user.names), user.positions.shape[1], len(user.media)
        rows = np.count_nonzero(self.source.marks.stand(user.ids))
        if not (ids == names == positions) or rows != media:
            counts = f"{ids} ids, {names} names, {positions} positions, {rows} media, {media} rows"
            raise StageFailed(f"what the thinker told of a turn does not belong together: {counts}")

    @torch.inference_mode()
    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        results: dict[int, list[Chunk] | EngineError] = {}
        batch = Batch()
        for seat in to_keep(seats):
            self._remember(seat)
        turns = self._hear_all(seats, batch, results)
        beginning, going = self._speakers([seat for seat in seats if id(seat) not in results], batch, results)
        results |= (self._replay if self.net.graphs else self._compute)(beginning, going, batch)
        for seat in turns:
            seat.state.unkept = True
        for seat in seats:
            if seat.done and seat.state.unkept:
                self._remember(seat)
            seat.needs_input = not seat.rows and not seat.state.ended
        return [results.get(id(seat), []) for seat in seats]

    def _hear_all(
        self, seats: Sequence[Seat], batch: Batch, results: dict[int, list[Chunk] | EngineError]
    ) -> list[Seat]:
        """Add what comes before the text, in bounded pieces; the seats that have now taken in all of it."""
        room = self.source.piece  # rows a step: what is being spoken waits for no more
        finished: list[Seat] = []
        for seat in seats:
            if room > 0:
                waiting = not seat.state.lead
                taken = guarded(self, seat, self._prepare, batch)
                if isinstance(taken, EngineError):
                    results[id(seat)] = taken
                    continue
                room -= taken
                finished += [seat] if waiting and seat.state.lead else []
        return finished

    def _speakers(
        self, seats: Sequence[Seat], batch: Batch, results: dict[int, list[Chunk] | EngineError]
    ) -> tuple[list[tuple[Seat, int]], list[tuple[Seat, int]]]:
        """Who begins to speak and who goes on, each with the next text; of the others, what comes of them."""
        beginning: list[tuple[Seat, int]] = []
        going: list[tuple[Seat, int]] = []
        for seat in sorted(seats, key=by_slot):
            found = guarded(self, seat, self._next, batch)
            if isinstance(found, int):
                (going if seat.state.started else beginning).append((seat, found))
            elif found is not None:
                results[id(seat)] = found
        return beginning, going

    def _next(self, seat: Seat, batch: Batch) -> int | list[Chunk] | None:
        """The next text of a seat that speaks; of others, what comes of them."""
        speech: Speech = seat.state
        if speech.frames < len(speech.spoken):
            return self._follow(seat, batch)
        return self._cut(seat) if speech.frames >= speech.limit else self._next_text(seat)

    def _prepare(self, seat: Seat, batch: Batch) -> int:
        """Take in what comes before the text, up to one piece of the user's; how many rows that had."""
        speech, computed = seat.state, 0
        while seat.rows and isinstance(item := seat.rows[0], UserTurns | Lead):
            if isinstance(item, UserTurns) and computed:
                break
            seat.rows.popleft()
            if speech.lead:
                continue  # sent again by another thinker, in place of one that was lost
            if isinstance(item, UserTurns):
                computed = self._hear(seat, batch, item)
            else:
                speech.lead, speech.position = item.ids, item.position
                most = frames_of(seat.request.max_audio_s, FRAME_S)
                speech.limit = min(most, self.net.room - speech.num_computed_tokens - LEAD)
        return computed

    def _hear(self, seat: Seat, batch: Batch, user: UserTurns) -> int:
        """Add a piece of the user's turns. Returns how many rows were new."""
        speech: Speech = seat.state
        again = min(len(speech.names) - user.at, len(user.ids))  # of this piece, from a thinker that was lost
        speech.names += user.names[again:].tolist()
        computed = again + self._recall(seat)
        if computed < len(user.ids):
            before = np.count_nonzero(self.source.marks.stand(user.ids[:computed]))
            rows = self.net.user_rows(user.ids[computed:], user.media[before:])
            self._add(seat, batch, rows, user.positions[:, computed:])
        return len(user.ids) - computed

    def _add(self, seat: Seat, batch: Batch, rows: Tensor, positions: NDArray[np.float32]) -> None:
        speech: Speech = seat.state
        batch.add(seat.slot, speech.num_computed_tokens, rows, positions)
        speech.num_computed_tokens += len(rows)

    def _recall(self, seat: Seat) -> int:
        """Take over what the session has of the newest rows, if it had all those before; how many."""
        speech: Speech = seat.state
        before = speech.num_computed_tokens
        found = (
            self.prefixes.find(seat.request.session, speech.names, before)
            if speech.num_cached_tokens == before
            else None
        )
        if found is None or found[0] <= before:
            return 0
        speech.num_computed_tokens = speech.num_cached_tokens = found[0]
        self.net.cache.restore(seat.slot, found[1].keys, found[1].values, before, speech.num_computed_tokens)
        return speech.num_computed_tokens - before

    def _remember(self, seat: Seat) -> None:
        """Keep what was computed of the user's turns, for the session's next request."""
        speech: Speech = seat.state
        speech.unkept = False
        if speech.num_cached_tokens < len(speech.names):
            prefix = PrefixKV(*self.net.cache.copy(seat.slot, len(speech.names)))
            self.prefixes.keep(seat.request.session, speech.names, prefix, prefix.keys.nbytes + prefix.values.nbytes)

    def _next_text(self, seat: Seat) -> int | None:
        """The text that goes into the next frame: a token, its end once, then padding; None: it is not there yet."""
        speech: Speech = seat.state
        if not speech.lead:
            seat.done = seat.ended and not seat.rows
            return None
        while seat.rows:
            item: Speakable = seat.rows.popleft()
            if isinstance(item, Usage):
                speech.usage = item
            elif isinstance(item, TextToken):
                speech.characters = item.text_end
                return item.id
            elif not speech.ended:
                return self._end(seat)
        if speech.ended:
            return self.source.marks.pad
        return self._end(seat) if seat.ended else None

    def _end(self, seat: Seat) -> int | None:
        """The text is over; where none has come, nothing is said."""
        speech: Speech = seat.state
        speech.ended = True
        seat.done = not speech.started
        return self.source.marks.end if speech.started else None

    def _cut(self, seat: Seat) -> list[Chunk]:
        """It has spoken as long as it may; once the text's usage is known, say that it was cut."""
        speech: Speech = seat.state
        for item in seat.rows:
            speech.usage = item if isinstance(item, Usage) else speech.usage
        seat.rows.clear()
        speech.ended = False
        seat.done = seat.ended or speech.usage is not None
        if speech.usage is None:
            return []
        return [Usage(speech.usage.input_tokens, speech.usage.output_tokens, finish="length")]

    def _compute(
        self, beginning: Sequence[tuple[Seat, int]], going: Sequence[tuple[Seat, int]], batch: Batch
    ) -> dict[int, list[Chunk] | EngineError]:
        """Take in the batch, and in the same forward the next rows of those who speak: a frame for each of them."""
        speaking = self._begin(beginning, batch) + self._go_on(going, batch)
        hidden = self.net.append(batch) if len(batch) else None
        if hidden is None or not speaking:
            return {}
        slots, steps = [seat.slot for seat in speaking], [seat.state.frames for seat in speaking]
        params = batch_params(speaking, hidden.device)
        return self._framed(speaking, self.net.frames(slots, hidden[-len(speaking) :], params, steps))

    def _replay(
        self, beginning: Sequence[tuple[Seat, int]], going: Sequence[tuple[Seat, int]], batch: Batch
    ) -> dict[int, list[Chunk] | EngineError]:
        """The same where frames are graphs: into those goes one row of each, a turn's first frame not excepted."""
        if beginning:
            self.net.lead([seat.slot for seat in self._begin(beginning, batch, LEAD - 1)])
        if len(batch):
            self.net.append(batch)
        inputs = [self._decode_input(seat, text) for seat, text in (*beginning, *going)]
        return self._framed([seat for seat, _ in (*beginning, *going)], self.net.speak(inputs)) if inputs else {}

    def _decode_input(self, seat: Seat, text: int) -> DecodeInput:
        speech: Speech = seat.state
        start, position = speech.num_computed_tokens, speech.position
        speech.num_computed_tokens, speech.position = start + 1, position + 1
        return DecodeInput(seat.slot, start, text, speech.frames, position, speech.params)

    def _begin(self, beginning: Sequence[tuple[Seat, int]], batch: Batch, most: int = LEAD) -> list[Seat]:
        """Add the first rows with which the talker's own turn begins; whose those are."""
        if not beginning:
            return []
        seats, texts = [seat for seat, _ in beginning], [text for _, text in beginning]
        rows = self.net.lead_rows([seat.state.lead for seat in seats], [seat.state.voice for seat in seats], texts)
        for seat, own in zip(seats, rows, strict=True):
            seat.state.started = True
            self._add_on(seat, batch, own[:most])
        return seats

    def _go_on(self, going: Sequence[tuple[Seat, int]], batch: Batch) -> list[Seat]:
        """Add a row for each who speaks: its last frame and its next text; whose those are."""
        if not going:
            return []
        seats, texts = [seat for seat, _ in going], [text for _, text in going]
        for seat, own in zip(seats, self.net.next_rows([seat.slot for seat in seats], texts), strict=True):
            self._add_on(seat, batch, own[None])
        return seats

    def _add_on(self, seat: Seat, batch: Batch, rows: Tensor) -> None:
        """Add rows of the talker's own turn: words count on."""
        speech: Speech = seat.state
        count = np.arange(len(rows), dtype=np.float32) + np.float32(speech.position)
        self._add(seat, batch, rows, np.broadcast_to(count, (3, len(rows))))
        speech.position += len(rows)

    def _follow(self, seat: Seat, batch: Batch) -> None:
        """Add what another replica has spoken, as far as its text is there: many rows at once, nothing is drawn."""
        speech: Speech = seat.state
        if not speech.started:
            if (text := self._next_text(seat)) is None:
                return
            self._begin([(seat, text)], batch)
            speech.frames = 1
        texts: list[int] = []
        most = min(self.source.piece, len(speech.spoken) - speech.frames)
        while len(texts) < most and (text := self._next_text(seat)) is not None:
            texts.append(text)
        rows = self.net.follow(seat.slot, speech.spoken[speech.frames - 1 : speech.frames + len(texts)])
        if texts:
            self._add_on(seat, batch, rows + self.net.text_rows(texts))
            speech.frames += len(texts)

    def _framed(self, seats: Sequence[Seat], frames: NDArray[np.int16]) -> dict[int, list[Chunk] | EngineError]:
        """What comes of a frame of each seat."""
        return {id(seat): guarded(self, seat, self._frame, frame) for seat, frame in zip(seats, frames, strict=True)}

    def _frame(self, seat: Seat, frame: NDArray[np.int16]) -> list[Chunk] | EngineError:
        speech: Speech = seat.state
        if (frame == FAILED).any():
            self.net.forget(seat.slot)
            return StageFailed("the talker's logits are not numbers")
        if frame[0] == self.net.config.codec_eos_token_id:
            seat.done = True
            return []
        speech.frames += 1
        chunks: list[Chunk] = [Codes(frame[None], speech.reached)]
        if state_due(speech.frames - 1, speech.frames):
            chunks.append(Checkpoint({"frames": speech.frames}))
        return chunks
