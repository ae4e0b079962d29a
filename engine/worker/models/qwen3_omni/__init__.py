"""Qwen3-Omni-MoE: text, sound and pictures in; text and streaming speech out; as transformers computes it.

The thinker writes text; the talker turns it into codec frames, one text token a frame; code2wav makes them sound. What
goes from the thinker to the talker (chunks of kind ``rows``): the ids of the user's turns with their places, and, where
sound or pictures stand, the thinker's hidden rows; then one id for each token to be spoken. The talker looks ids up in
the thinker's table of embeddings, which it maps, so that no tensor travels for text.

Source: the checkpoint's config.json and transformers 5.23, models/qwen3_omni_moe. It knows no socket and no session.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as reference

from engine.core import Chunk, ModelInfo, StageInfo
from engine.errors import EngineError, StageFailed, WeightsError
from engine.stream import windows
from engine.worker.chat import Pieces
from engine.worker.models.qwen3_omni.prompt import Prompt, Prompter, Source
from engine.worker.nn.codec import CodecDecoder
from engine.worker.nn.conv import Piece
from engine.worker.nn.decoder import Decoder, Rows
from engine.worker.nn.encoders import encoder
from engine.worker.nn.predictor import Predictor
from engine.worker.nn.projection import Projection
from engine.worker.nn.sampler import FAILED, Draw, Draws, draw, penalised
from engine.worker.stage import Family, Place, Seat

THINKER, TALKER, PREDICTOR = range(3)  # streams of randomness
CHARACTERS_PER_FRAME = 1.2  # about fifteen characters a second: an estimate of how far the voice has come
ANSWER_FRAMES = 4096  # places kept for speech: five and a half minutes


# --- The thinker


@dataclass(slots=True)
class Thought:
    """An answer on its way: ``fed`` rows are in the cache, ``last`` is the id that goes in next, at ``place``."""

    limit: int
    how: Draw
    pieces: Pieces
    prompt: Prompt | None = None
    rows: Tensor | None = None
    deep: list[Tensor] = field(default_factory=list[Tensor])
    fed: int = 0
    place: float = 0.0
    last: int = FAILED
    made: int = 0
    characters: int = 0
    script: deque[int] | None = None
    call: list[int] | None = None
    called: bool = False

    @property
    def writing(self) -> bool:
        """Whether the prompt is in the cache."""
        return self.prompt is not None and self.fed >= len(self.prompt.ids)


class Thinker:
    """Text out, token by token; out of each token to be spoken, a row for the talker."""

    def __init__(self, place: Place) -> None:
        self.source = source = Source(place)
        self.info = StageInfo(
            name="thinker", order=1, emits=frozenset({"text", "tool_call", "usage"}),
            feeds=frozenset({"rows", "usage"}), slots=place.slots,
        )  # fmt: skip
        self.prompter = Prompter(source)
        self.chat = self.prompter.chat
        read = source.reader("thinker.")
        self.words = read("model.embed_tokens.weight", source.text.vocab_size, source.text.hidden_size)
        self.head = self.words
        if not source.config.thinker_config.tie_word_embeddings:
            self.head = read("lm_head.weight", source.text.vocab_size, source.text.hidden_size)
        self.decoder = Decoder(read.below("model"), source.text)
        self.cache = self.decoder.cache(source.slots, source.context)
        configs = source.config.thinker_config
        self.ears = encoder(reference.Qwen3OmniMoeAudioEncoder, configs.audio_config, read.below("audio_tower"))
        self.eyes = encoder(reference.Qwen3OmniMoeVisionEncoder, configs.vision_config, read.below("visual"))
        self.tap = source.config.talker_config.accept_hidden_layer if source.voices else -1
        ends = source.generation.get("eos_token_id", source.config.im_end_token_id)
        self.ends = frozenset(ends if isinstance(ends, list) else [ends])
        self.calls = self.chat.added.get("<tool_call>"), self.chat.added.get("</tool_call>")

    def open(self, seat: Seat) -> None:
        request, defaults = seat.request, self.source.generation
        if request.speaks:
            self.source.voice(request)
        asked = request.sampling
        how = Draw(
            seed=asked.seed,
            greedy=asked.greedy or asked.temperature == 0,
            temperature=defaults.get("temperature", 0.7) if asked.temperature is None else asked.temperature,
            top_k=defaults.get("top_k", 20),
            top_p=defaults.get("top_p", 0.95) if asked.top_p is None else asked.top_p,
        )
        seat.state = Thought(request.max_text_tokens, how, Pieces(self.chat))

    async def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        heard = None
        if seat.request.live:
            blocks = [np.asarray(chunk.data, np.int16) async for chunk in inputs if chunk.kind == "audio"]
            heard = np.concatenate(blocks) if blocks else np.zeros(0, np.int16)
        yield await asyncio.to_thread(self.prompter.prompt, seat.request, heard)

    @torch.inference_mode()
    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        results: dict[int, list[Chunk] | EngineError] = {}
        for seat in seats:
            if seat.rows:
                self._begin(seat)
        room = self.source.piece  # rows a step: what is being spoken waits for no more
        for seat in seats:
            if room > 0 and not seat.state.writing:
                before = seat.state.fed
                results[id(seat)] = self._feed(seat)
                room -= (seat.state.fed - before) or room  # what was only encoded took a step of its own
        writing = [seat for seat in seats if seat.state.writing and id(seat) not in results]
        free = sorted((seat for seat in writing if seat.state.script is None), key=_slot)
        if free:
            results |= {id(seat): self._take(seat, id_) for seat, id_ in zip(free, self._write(free), strict=True)}
        for seat in writing:
            if (script := seat.state.script) is not None:
                results[id(seat)] = self._take(seat, script.popleft() if script else next(iter(self.ends)))
        return [results.get(id(seat), []) for seat in seats]

    def _begin(self, seat: Seat) -> None:
        thought: Thought = seat.state
        thought.prompt = seat.rows.popleft()
        assert thought.prompt is not None
        seat.hungry = False
        room = self.source.context - len(thought.prompt.ids)
        thought.limit = min(thought.limit, room)
        if thought.prompt.script is not None:
            thought.script = deque(thought.prompt.script)
            thought.limit = len(thought.script) + 1

    def _feed(self, seat: Seat) -> list[Chunk] | EngineError:
        """Encode what was heard and seen, or prefill the next piece; after the last one, the first token."""
        thought: Thought = seat.state
        prompt = thought.prompt
        if prompt is None:
            return []
        if thought.rows is None:
            thought.rows, thought.deep = self._encode(prompt)
            if prompt.sounds is not None or prompt.pictures is not None:
                return []
        end = min(len(prompt.ids), thought.fed + self.source.piece)
        piece = slice(thought.fed, end)
        hidden, tapped = self.decoder.forward(
            thought.rows[None, piece],
            self._angles(torch.from_numpy(prompt.places[:, None, piece]).to(self.source.device)),
            Rows.of([seat.slot], [thought.fed], end - thought.fed, self.source.device),
            self.cache,
            self.tap,
            [rows[None, piece] for rows in thought.deep],
        )
        chunks = self._rows(prompt, piece, tapped[0]) if seat.request.speaks else []
        thought.fed = end
        if not thought.writing:
            return chunks
        thought.rows, thought.deep, thought.place = None, [], float(prompt.places.max()) + 1
        if thought.script is not None:
            return chunks
        first = self._take(seat, self._choose([seat], hidden[:, -1])[0])
        return first if isinstance(first, EngineError) else chunks + first

    def _angles(self, places: Tensor) -> tuple[Tensor, Tensor]:
        return self.decoder.rope(places, self.source.dtype)

    def _encode(self, prompt: Prompt) -> tuple[Tensor, list[Tensor]]:
        """The prompt's rows, and what deepstack adds to the first layers."""
        config = self.source.config.thinker_config
        ids = torch.from_numpy(prompt.ids).to(self.source.device)
        rows = self.words[ids]
        deep: list[Tensor] = []
        if prompt.sounds is not None:
            mask = prompt.sounds["attention_mask"].bool()
            features = (
                prompt.sounds["input_features"].permute(0, 2, 1)[mask].T.to(self.source.device, self.source.dtype)
            )
            heard = self.ears(features, feature_lens=mask.sum(-1).to(self.source.device)).last_hidden_state
            rows[ids == config.audio_token_id] = heard
        if prompt.pictures is not None:
            pixels = prompt.pictures["pixel_values"].to(self.source.device, self.source.dtype)
            seen = self.eyes(pixels, grid_thw=prompt.pictures["image_grid_thw"].to(self.source.device))
            at = ids == config.image_token_id
            rows[at] = seen.pooler_output
            for features in seen.deepstack_features:
                deep.append(torch.zeros_like(rows))
                deep[-1][at] = features
        return rows, deep

    def _rows(self, prompt: Prompt, piece: slice, tapped: Tensor) -> list[Chunk]:
        """What the talker hears of a piece of the prompt; with the last piece, how its own turn begins."""
        a, b = np.searchsorted(prompt.spoken, (piece.start, piece.stop))
        at, chunks = prompt.spoken[a:b], []
        if len(at):
            ids = prompt.ids[at]
            media = at[np.isin(ids, self.source.media_ids)] - piece.start
            hidden = tapped[torch.from_numpy(media).to(tapped.device)].float().cpu().numpy()
            user = {"ids": ids, "places": prompt.spoken_places[:, a:b], "media": hidden}
            chunks.append(Chunk("rows", user, {"part": "user"}))
        if piece.stop == len(prompt.ids):
            start = float(prompt.spoken_places.max()) + 1 if prompt.spoken_places.size else 0.0
            chunks.append(Chunk("rows", {"ids": np.array(prompt.lead)}, {"part": "lead", "start": start}))
        return chunks

    def _write(self, seats: Sequence[Seat]) -> list[int]:
        """One token for each seat, in one forward."""
        thoughts: list[Thought] = [seat.state for seat in seats]
        device = self.source.device
        places = torch.tensor([thought.place for thought in thoughts], device=device)
        rows = Rows.of([seat.slot for seat in seats], [thought.fed for thought in thoughts], 1, device)
        last = torch.tensor([thought.last for thought in thoughts], device=device)
        hidden, _ = self.decoder.forward(
            self.words[last][:, None], self._angles(places.expand(3, -1)[..., None]), rows, self.cache
        )
        for thought in thoughts:
            thought.fed, thought.place = thought.fed + 1, thought.place + 1
        return self._choose(seats, hidden[:, -1])

    def _choose(self, seats: Sequence[Seat], hidden: Tensor) -> list[int]:
        steps = torch.tensor([seat.state.made for seat in seats], device=hidden.device)
        return draw(F.linear(hidden, self.head), _draws(seats, hidden.device), THINKER, steps).tolist()

    def _take(self, seat: Seat, token: int) -> list[Chunk] | EngineError:
        """Make chunks of a new token: text for the client, a row for the talker, the usage with the last."""
        thought: Thought = seat.state
        if token == FAILED:
            self.cache.clear(seat.slot)
            return StageFailed("the thinker's logits are not numbers")
        thought.last, thought.made = token, thought.made + 1
        last = token in self.ends or thought.made >= thought.limit
        chunks = [] if token in self.ends else self._word(seat, token, spoken=not last)
        if last:
            chunks += self._text(thought, *thought.pieces.flush())
            chunks.append(self._usage(seat, token))
            seat.done = True
        return chunks

    def _word(self, seat: Seat, token: int, spoken: bool) -> list[Chunk]:
        thought: Thought = seat.state
        opened, closed = self.calls
        if thought.call is not None:
            thought.call.append(token)
            return self._call(seat) if token == closed else []
        if token == opened:
            thought.call = [token]
            end = [Chunk("rows", {"ids": np.zeros(0, np.int64)}, {"part": "end"})] if seat.request.speaks else []
            return [*self._text(thought, *thought.pieces.flush()), *end]
        chunks = self._text(thought, *thought.pieces.feed(token))
        if spoken and seat.request.speaks and not thought.called:
            meta = {"part": "text", "text_end": thought.characters}
            chunks.append(Chunk("rows", {"ids": np.array([token])}, meta))
        return chunks

    def _text(self, thought: Thought, text: str, ids: list[int]) -> list[Chunk]:
        thought.characters += len(text)
        return [Chunk("text", text, {"ids": ids})] if ids else []

    def _call(self, seat: Seat) -> list[Chunk]:
        """A whole tool call (JSON between its marks); what is none is shown as the text it is."""
        thought: Thought = seat.state
        ids, thought.call, thought.called = thought.call or [], None, True
        try:
            call = json.loads(self.chat.text(ids[1:-1]))
            said = {"name": str(call["name"]), "arguments": json.dumps(call.get("arguments", {}))}
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._text(thought, self.chat.text(ids), ids)
        return [Chunk("tool_call", said, {"call_id": f"call_{seat.request.id}_{thought.made}", "ids": ids})]

    def _usage(self, seat: Seat, token: int) -> Chunk:
        thought: Thought = seat.state
        assert thought.prompt is not None
        used: dict[str, Any] = {"input_tokens": len(thought.prompt.ids), "output_tokens": thought.made}
        if seat.request.dump:
            used["prompt_ids"] = thought.prompt.ids.tolist()
        finish = "stop" if token in self.ends else "length"
        return Chunk("usage", used, {"finish": "tool" if thought.called and finish == "stop" else finish})


def _slot(seat: Seat) -> int:
    """What a batch is sorted by: slots side by side are read without being copied."""
    return seat.slot


def _draws(seats: Sequence[Seat], device: torch.device) -> Draws:
    return Draws.of([seat.state.how for seat in seats], device)


# --- The talker


@dataclass(slots=True)
class Speech:
    """A voice on its way: ``fed`` rows are in the cache, the next goes in at ``place``."""

    voice: int
    how: Draw
    lead: list[int] = field(default_factory=list[int])
    fed: int = 0
    place: float = 0.0
    frames: int = 0
    limit: int = ANSWER_FRAMES
    characters: int = 0
    started: bool = False
    ended: bool = False
    usage: Chunk | None = None

    @property
    def reached(self) -> int:
        return min(self.characters, math.ceil(self.frames * CHARACTERS_PER_FRAME))


class Talker:
    """One codec frame a step for every voice that has something to say."""

    def __init__(self, place: Place) -> None:
        self.source = source = Source(place)
        self.info = StageInfo(
            name="talker", order=2, emits=frozenset({"usage"}), feeds=frozenset({"codes"}), when="speaks",
            slots=place.slots,
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
        seat.state = Speech(self.source.voice(seat.request), Draw(asked.seed, asked.greedy, **self.sampled))
        self.heard[seat.slot] = False

    async def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for chunk in inputs:
            yield chunk

    @torch.inference_mode()
    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        beginning: list[tuple[Seat, int]] = []
        going: list[tuple[Seat, int]] = []
        results: dict[int, list[Chunk] | EngineError] = {}
        room = self.source.piece  # rows a step: what is being spoken waits for no more
        for seat in seats:
            if room > 0:
                room -= self._prepare(seat)
        for seat in sorted(seats, key=_slot):
            speech: Speech = seat.state
            if speech.frames >= speech.limit:
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
        speech: Speech = seat.state
        while seat.rows and seat.rows[0].meta.get("part") in ("user", "lead"):
            chunk = seat.rows.popleft()
            if chunk.meta["part"] == "user":
                self._hear(seat, **chunk.data)
                return len(chunk.data["ids"])
            speech.lead, speech.place = chunk.data["ids"].tolist(), chunk.meta["start"]
            speech.limit = min(seat.request.max_frames, self.room - speech.fed - 9)
        return 0

    def _hear(
        self, seat: Seat, ids: NDArray[np.int64], places: NDArray[np.float32], media: NDArray[np.float32]
    ) -> None:
        """Prefill a piece of the user's turns: words by their embedding, sounds and pictures by what was thought."""
        speech: Speech = seat.state
        device = self.source.device
        rows = self._text_rows(ids.tolist())
        at = torch.from_numpy(np.isin(ids, self.source.media_ids)).to(device)
        if len(media):
            rows[at] = self.project_hidden(torch.from_numpy(media.copy()).to(device, self.source.dtype))
        where = Rows.of([seat.slot], [speech.fed], len(ids), device)
        angles = self.decoder.rope(torch.tensor(places, device=device)[:, None], self.source.dtype)
        self.decoder.forward(rows[None], angles, where, self.cache)
        speech.fed += len(ids)

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
            return self.source.config.tts_pad_token_id
        return self._end(seat) if seat.ended else None

    def _end(self, seat: Seat) -> int | None:
        """The text is over; where none has come, nothing is said."""
        speech: Speech = seat.state
        speech.ended = True
        seat.done = not speech.started
        return self.source.config.tts_eos_token_id if speech.started else None

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
        config, whole = self.config, self.source.config
        texts = [
            [*seat.state.lead, *[whole.tts_pad_token_id] * 4, whole.tts_bos_token_id, text] for seat, text in batch
        ]
        marks = [config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id]
        ends = [config.codec_pad_id, config.codec_bos_id]
        codes = torch.tensor([[*marks, seat.state.voice, *ends] for seat, _ in batch], device=self.source.device)
        rows = self._text_rows([id for ids in texts for id in ids]).view(len(batch), 9, self.width)
        rows[:, 3:] += self.codes[codes]
        for seat, _ in batch:
            seat.state.started = True
        return self._forward([seat for seat, _ in batch], rows)

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
        draws = _draws(seats, hidden.device)
        logits = penalised(F.linear(hidden, self.head).float(), self.heard[slots], self.penalty) + self.barred
        first = draw(logits, draws, TALKER, steps)
        self.heard[slots, first.clamp(min=0)] = True
        embedded = self.codes[first.clamp(min=0)]
        rest, total = self.predictor.frame(hidden, embedded, draws, steps)
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
        return [Chunk("codes", frame[None], {"text_end": speech.reached, "estimate": True})]

    def _text_rows(self, ids: Sequence[int]) -> Tensor:
        """Projected embeddings of text ids, read from the mapped table."""
        return self.project_text(self.texts[torch.tensor(ids)].to(self.source.device, self.source.dtype))


# --- Code2wav


@dataclass(slots=True)
class Sound:
    """How many frames have been decoded."""

    frames: int = 0


class Code2Wav:
    """Codec frames to sound, sample for sample what the whole would be, however it is cut."""

    def __init__(self, place: Place) -> None:
        self.source = source = Source(place)
        self.info = StageInfo(name="code2wav", order=3, emits=frozenset({"audio"}), when="speaks", slots=place.slots)
        if not source.voices:
            raise WeightsError(f"{source.folder}: this checkpoint has no code2wav; host the thinker alone")
        config = source.config.code2wav_config
        read = source.reader("code2wav.", torch.float32)  # it is small, and in bfloat16 a sixth of the sound is error
        self.net = CodecDecoder(read, config, source.slots)

    def open(self, seat: Seat) -> None:
        seat.state = Sound()

    async def bridge(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async for frames in windows(inputs, seat.pace.size, seat.pace.hurry):
            yield np.concatenate([frame.data for frame in frames]), frames[-1].meta

    @torch.inference_mode()
    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        alike: dict[tuple[int, bool], list[Seat]] = {}
        for seat in seats:
            if seat.rows:
                alike.setdefault((len(seat.rows[0][0]), seat.state.frames == 0), []).append(seat)
            else:
                seat.done = True
        results: dict[int, list[Chunk]] = {}
        for (_, fresh), group in alike.items():
            rows = [seat.rows.popleft() for seat in group]
            waves = self.decode(group, np.stack([codes for codes, _ in rows]), fresh)
            for seat, wave, (codes, meta) in zip(group, waves, rows, strict=True):
                seat.state.frames += len(codes)
                results[id(seat)] = [Chunk("audio", wave, meta)]
        return [results.get(id(seat), []) for seat in seats]

    def decode(self, seats: Sequence[Seat], codes: NDArray[np.int16], fresh: bool) -> NDArray[np.float32]:
        """Sound [batch, samples] of the next frames [batch, frames, groups], all beginnings or none."""
        piece = Piece.of([seat.slot for seat in seats], fresh, self.source.device)
        ids = torch.from_numpy(codes.astype(np.int64)).to(self.source.device)
        return self.net.decode(ids, [seat.state.frames for seat in seats], piece).float().cpu().numpy()


def _info(place: Place) -> ModelInfo:
    source = Source(place)
    abilities: list[Any] = ["text", "audio", "image", "tools", *(["speech"] if source.voices else [])]
    return ModelInfo(
        name="qwen3_omni",
        voices=tuple(source.voices),
        languages=(),
        abilities=frozenset(abilities),
        frame_s=0.08,
        context=source.context,
    )


FAMILY = Family(
    info=_info,
    stages={"thinker": Thinker, "talker": Talker, "code2wav": Code2Wav},
    rows_ahead=4096,  # a row is one id: text need not wait for the voice, which eats twelve a second
)
