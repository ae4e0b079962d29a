"""The talker: rows of the thinker to codec frames, one text token a frame."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.core import Chunk, StageInfo
from engine.errors import EngineError, StageFailed, WeightsError
from engine.worker.models.qwen3_omni.source import PREDICTOR, TALKER, Source, by_slot, draws
from engine.worker.models.qwen3_omni.speech import ANSWER_FRAMES, Known, Speech
from engine.worker.nn.decoder import Decoder, Rows
from engine.worker.nn.predictor import Predictor
from engine.worker.nn.projection import Projection
from engine.worker.nn.sampler import FAILED, Draw, draw, penalised
from engine.worker.prefix import Prefixes
from engine.worker.stage import Place, Seat, state_due


class Talker:
    """One codec frame a step for every voice that has something to say."""

    def __init__(self, place: Place) -> None:
        self.source = source = Source(place)
        self.info = StageInfo(
            name="talker", order=2, emits=frozenset({"usage"}), feeds=frozenset({"codes"}), when="speaks",
            slots=place.slots, keeps=frozenset({"codes"}), latest=frozenset({"talker.frames"}),
        )  # fmt: skip
        if not source.voices:
            raise WeightsError(f"{source.folder}: this checkpoint has no talker; host the thinker alone")
        self.config = config = source.config.talker_config
        read, text = source.reader("talker."), config.text_config
        self.width = text.hidden_size
        self.texts = source.checkpoint.tensor(
            "thinker.model.embed_tokens.weight", (source.text.vocab_size, source.text.hidden_size)
        )
        sizes = config.thinker_hidden_size, text.intermediate_size, self.width
        self.project_text = Projection(read.below("text_projection"), *sizes)
        self.project_hidden = Projection(read.below("hidden_projection"), *sizes)
        self.codes = read("model.codec_embedding.weight", text.vocab_size, self.width)
        self.head = read("codec_head.weight", text.vocab_size, self.width)
        text.shared_expert_intermediate_size = text.shared_expert_intermediate_size or 0
        self.decoder = Decoder(read.below("model"), text)
        self.room = source.context + ANSWER_FRAMES
        self.cache = self.decoder.cache(source.slots, self.room)
        self.prefixes: Prefixes[Known] = Prefixes(source.remembered)
        self.predictor = Predictor(read.below("code_predictor"), config.code_predictor_config, source.slots, PREDICTOR)
        self.heard = torch.zeros(source.slots, text.vocab_size, device=source.device, dtype=torch.bool)
        self.carried = torch.zeros(source.slots, self.width, device=source.device, dtype=source.dtype)
        self.barred = torch.zeros(text.vocab_size, device=source.device)
        self.barred[-1024:] = -torch.inf  # what lies above the codebook is no sound, but the end
        self.barred[config.codec_eos_token_id] = 0
        generation = source.generation
        self.penalty = generation.get("talker_repetition_penalty", 1.05)
        self.sampled = {
            "temperature": generation.get("talker_temperature", 0.9),
            "top_k": generation.get("talker_top_k", 50),
            "top_p": generation.get("talker_top_p", 1.0),
        }

    def open(self, seat: Seat) -> None:
        asked = seat.request.sampling
        frames = [chunk.data for chunk in seat.kept if chunk.kind == "codes"][: seat.left("talker.frames") or 0]
        spoken = np.concatenate([np.zeros((0, self.predictor.groups), np.int16), *frames])
        seat.state = Speech(self.source.voice(seat.request), Draw(asked.seed, asked.greedy, **self.sampled), spoken)
        self.heard[seat.slot] = False

    async def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """The thinker's rows as they are. Raises StageFailed where they don't belong together."""
        async for chunk in inputs:
            if chunk.meta.get("part") == "user":
                self._check(**chunk.data)
            yield chunk

    def _check(
        self, ids: NDArray[np.int64], places: NDArray[np.float32], media: NDArray[np.float32], names: NDArray[np.int64]
    ) -> None:
        rows = np.count_nonzero(np.isin(ids, self.source.marks.media))
        if not (len(ids) == len(names) == places.shape[1]) or rows != len(media):
            counts = f"{len(ids)} ids, {len(names)} names, {places.shape[1]} places, {rows} media, {len(media)} rows"
            raise StageFailed(f"what the thinker told of a turn does not belong together: {counts}")

    @torch.inference_mode()
    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        beginning: list[tuple[Seat, int]] = []
        going: list[tuple[Seat, int]] = []
        results: dict[int, list[Chunk] | EngineError] = {}
        room = self.source.piece  # rows a step: what is being spoken waits for no more
        for seat in seats:
            if room > 0:
                room -= self._prepare(seat)
        for seat in sorted(seats, key=by_slot):
            speech: Speech = seat.state
            if speech.frames < len(speech.spoken):
                self._follow(seat)
            elif speech.frames >= speech.limit:
                results[id(seat)] = self._cut(seat)
            elif (text := self._next_text(seat)) is not None:
                (going if speech.started else beginning).append((seat, text))
        hidden = [self._begin(beginning)] if beginning else []
        hidden += [self._go_on(going)] if going else []
        if hidden:
            speaking = [seat for seat, _ in beginning + going]
            results |= zip(map(id, speaking), self._frames(speaking, torch.cat(hidden)), strict=True)
        for seat in seats:
            seat.hungry = not seat.rows and not seat.state.ended
        return [results.get(id(seat), []) for seat in seats]

    def _prepare(self, seat: Seat) -> int:
        """Take in what comes before the text, up to one forward; how many rows that had."""
        speech, computed = seat.state, 0
        while seat.rows and (part := seat.rows[0].meta.get("part")) in ("user", "lead"):
            if part == "user" and computed:
                break
            chunk = seat.rows.popleft()
            if speech.lead:
                continue  # told again by another thinker, in place of one that was lost
            if part == "user":
                computed = self._hear(seat, chunk.meta["at"], **chunk.data)
            else:
                self._remember(seat)
                speech.lead, speech.place = chunk.data["ids"].tolist(), chunk.meta["start"]
                speech.limit = min(seat.request.max_frames, self.room - speech.fed - 9)
        return computed

    def _hear(
        self, seat: Seat, at: int, ids: NDArray[np.int64], places: NDArray[np.float32], media: NDArray[np.float32],
        names: NDArray[np.int64],
    ) -> int:  # fmt: skip
        """Prefill a piece of the user's turns: words by their embedding, sounds and pictures by what was thought.

        The piece begins ``at`` a row of them all. Returns how many rows were new.
        """
        speech: Speech = seat.state
        device = self.source.device
        heard = min(len(speech.names) - at, len(ids))  # of this piece, from a thinker that was lost
        speech.names += names[heard:].tolist()
        known = heard + self._recall(seat)
        media_rows = np.isin(ids, self.source.marks.media)
        media, seen = media[np.count_nonzero(media_rows[:known]) :], torch.from_numpy(media_rows[known:]).to(device)
        if known < len(ids):
            rows = self._text_rows(ids[known:].tolist())
            if len(media):
                rows[seen] = self.project_hidden(torch.from_numpy(media.copy()).to(device, self.source.dtype))
            where = Rows.of([seat.slot], [speech.fed], len(rows), device)
            angles = self.decoder.rope(torch.tensor(places[:, known:], device=device)[:, None], self.source.dtype)
            self.decoder.forward(rows[None], angles, where, self.cache)
            speech.fed += len(rows)
        return len(ids) - known

    def _recall(self, seat: Seat) -> int:
        """Take over what the session has of the newest rows, if it had all those before; how many."""
        speech: Speech = seat.state
        before = speech.fed
        found = self.prefixes.find(seat.request.session, speech.names, before) if speech.known == before else None
        if found is None or found[0] <= before:
            return 0
        speech.fed = speech.known = found[0]
        self.cache.restore(seat.slot, found[1].keys, found[1].values, before, speech.fed)
        return speech.fed - before

    def _remember(self, seat: Seat) -> None:
        """Keep what was computed of the user's turns, for the session's next request."""
        speech: Speech = seat.state
        if speech.known < speech.fed:
            known = Known(*self.cache.copy(seat.slot, speech.fed))
            self.prefixes.keep(seat.request.session, speech.names, known, known.keys.nbytes + known.values.nbytes)

    def _next_text(self, seat: Seat) -> int | None:
        """The text that goes into the next frame: a token, its end once, then padding; None: it is not there yet."""
        speech: Speech = seat.state
        if not speech.lead:
            seat.done = seat.ended and not seat.rows
            return None
        while seat.rows:
            chunk = seat.rows.popleft()
            if chunk.kind == "usage":
                speech.usage = chunk
            elif chunk.meta["part"] == "text":
                speech.characters = chunk.meta["text_end"]
                return int(chunk.data["ids"][0])
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
        for chunk in seat.rows:
            speech.usage = chunk if chunk.kind == "usage" else speech.usage
        seat.rows.clear()
        speech.ended = False
        seat.done = seat.ended or speech.usage is not None
        if speech.usage is None:
            return []
        used = {name: speech.usage.data[name] for name in ("input_tokens", "output_tokens")}
        return [Chunk("usage", used, {"finish": "length"})]

    def _begin(self, batch: Sequence[tuple[Seat, int]]) -> Tensor:
        """The nine rows with which the talker's own turn begins; the last holds the first text token."""
        config, words = self.config, self.source.marks
        texts = [[*seat.state.lead, *[words.pad] * 4, words.begin, text] for seat, text in batch]
        marks = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id]
        ends = [config.codec_pad_id, config.codec_bos_id]
        codes = torch.tensor([[*marks, seat.state.voice, *ends] for seat, _ in batch], device=self.source.device)
        rows = self._text_rows([id for ids in texts for id in ids]).view(len(batch), 9, self.width)
        rows[:, 3:] += self.codes[codes]
        for seat, _ in batch:
            seat.state.started = True
        return self._forward([seat for seat, _ in batch], rows)

    def _follow(self, seat: Seat) -> None:
        """Take in what another replica has spoken, as far as its text is there: many rows at once, nothing is drawn."""
        speech: Speech = seat.state
        if not speech.started:
            if (text := self._next_text(seat)) is None:
                return
            self._begin([(seat, text)])
            speech.frames = 1
        texts: list[int] = []
        most = min(self.source.piece, len(speech.spoken) - speech.frames)
        while len(texts) < most and (text := self._next_text(seat)) is not None:
            texts.append(text)
        codes = torch.from_numpy(speech.spoken[speech.frames - 1 : speech.frames + len(texts)].astype(np.int64))
        rows = self._frame_rows(codes.to(self.source.device))
        if texts:
            self._forward([seat], (rows[:-1] + self._text_rows(texts))[None])
            speech.frames += len(texts)
        self.carried[seat.slot] = rows[-1]
        self.heard[seat.slot, codes[:, 0]] = True

    def _frame_rows(self, codes: Tensor) -> Tensor:
        """What of frames [n, groups] goes into the next rows: the sum of their embeddings."""
        rest = torch.zeros(len(codes), self.width, device=codes.device, dtype=self.source.dtype)
        for book, embedding in enumerate(self.predictor.codes, 1):
            rest = rest + embedding[codes[:, book]]
        return self.codes[codes[:, 0]] + rest

    def _go_on(self, batch: Sequence[tuple[Seat, int]]) -> Tensor:
        slots = torch.tensor([seat.slot for seat, _ in batch], device=self.source.device)
        rows = self.carried[slots] + self._text_rows([text for _, text in batch])
        return self._forward([seat for seat, _ in batch], rows[:, None])

    def _forward(self, seats: Sequence[Seat], rows: Tensor) -> Tensor:
        """Append rows at each seat's place; the hidden rows of the last [seats, width]."""
        speeches: list[Speech] = [seat.state for seat in seats]
        count, device = rows.shape[1], self.source.device
        starts = torch.tensor([speech.place for speech in speeches], device=device)
        places = (starts[:, None] + torch.arange(count, device=device)).expand(3, -1, -1)
        where = Rows.of([seat.slot for seat in seats], [speech.fed for speech in speeches], count, device)
        hidden, _ = self.decoder.forward(rows, self.decoder.rope(places, self.source.dtype), where, self.cache)
        for speech in speeches:
            speech.fed, speech.place = speech.fed + count, speech.place + count
        return hidden[:, -1]

    def _frames(self, seats: Sequence[Seat], hidden: Tensor) -> list[list[Chunk] | EngineError]:
        """A frame for each seat: code 0, then the predictor's; the device is asked once, at the end."""
        slots = torch.tensor([seat.slot for seat in seats], device=hidden.device)
        steps = torch.tensor([seat.state.frames for seat in seats], device=hidden.device)
        how = draws(seats, hidden.device)
        logits = penalised(F.linear(hidden, self.head).float(), self.heard[slots], self.penalty) + self.barred
        first = draw(logits, how, TALKER, steps)
        self.heard[slots, first.clamp(min=0)] = True
        embedded = self.codes[first.clamp(min=0)]
        rest, total = self.predictor.frame(hidden, embedded, how, steps)
        self.carried[slots] = embedded + total
        frames = torch.cat((first[:, None], rest), 1).cpu().numpy().astype(np.int16)
        return [self._frame(seat, frame) for seat, frame in zip(seats, frames, strict=True)]

    def _frame(self, seat: Seat, frame: NDArray[np.int16]) -> list[Chunk] | EngineError:
        speech: Speech = seat.state
        if (frame == FAILED).any():
            self.cache.clear(seat.slot)
            self.carried[seat.slot] = 0
            return StageFailed("the talker's logits are not numbers")
        if frame[0] == self.config.codec_eos_token_id:
            seat.done = True
            return []
        speech.frames += 1
        chunks = [Chunk("codes", frame[None], {"text_end": speech.reached, "estimate": True})]
        if state_due(speech.frames - 1, speech.frames):
            chunks.append(Chunk("talker.frames", speech.frames))
        return chunks

    def _text_rows(self, ids: Sequence[int]) -> Tensor:
        """Projected embeddings of text ids, read from the mapped table."""
        return self.project_text(self.texts[torch.tensor(ids)].to(self.source.device, self.source.dtype))
