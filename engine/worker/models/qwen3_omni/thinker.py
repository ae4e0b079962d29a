"""The thinker: what is heard, seen and read, to text and tool calls, and to the rows from which the talker speaks."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Chunk, Speech, Tensors, Text, ToolCall, Usage, kinds
from engine.core import Facets, StageInfo, TokenCost
from engine.errors import EngineError, StageFailed
from engine.worker.chat import Pieces
from engine.worker.models.qwen3_omni.encoders import Encoders
from engine.worker.models.qwen3_omni.prompt import Prompt, Prompter
from engine.worker.models.qwen3_omni.source import ROWS_AHEAD, Source, by_slot, to_keep
from engine.worker.models.qwen3_omni.speakable import Lead, TextEnd, TextToken, UserTurns
from engine.worker.models.qwen3_omni.thinker_net import ThinkerNet
from engine.worker.models.qwen3_omni.thought import Piece, PrefixKV, Thought, deep
from engine.worker.models.qwen3_omni.user_turns import emit, media
from engine.worker.nn.device import to_device
from engine.worker.nn.sampler import FAILED, SamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.prefix import Prefixes
from engine.worker.stage import Place, Seat, guarded

ENCODED = 4  # pieces' worth of prompts that a GPU encodes in one step


class Thinker:
    """Text out, token by token; out of each token to be spoken, a row for the talker."""

    @classmethod
    def describe(cls, place: Place) -> StageInfo:
        return cls._info(Source(place))

    @classmethod
    def _info(cls, source: Source) -> StageInfo:
        facets = Facets(
            model="qwen3_omni", sees=frozenset({"image", "video"}), context=source.context, cost=TokenCost(),
        )  # fmt: skip
        return StageInfo(
            takes=kinds(Speech), emits=kinds(Text, ToolCall, Usage),
            feeds=kinds(UserTurns, Lead, TextToken, TextEnd, Usage), answers=True, says=True, slots=source.slots,
            rows_ahead=ROWS_AHEAD, facets=facets,
        )  # fmt: skip

    def __init__(self, place: Place) -> None:
        self.source = source = Source(place)
        self.info = self._info(source)
        self.prompter = Prompter(source)
        self.chat = self.prompter.chat
        read = source.reader("thinker.")
        self.net = ThinkerNet(source, read)
        self.prefixes: Prefixes[PrefixKV] = Prefixes(source.remembered)
        self.encoders = Encoders(source, read)
        ends = source.generation.get("eos_token_id", source.config.im_end_token_id)
        self.ends = frozenset(ends if isinstance(ends, list) else [ends])
        self.calls = self.chat.added.get("<tool_call>"), self.chat.added.get("</tool_call>")

    def open(self, seat: Seat) -> None:
        request, defaults = seat.request, self.source.generation
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
        seat.state = Thought(request.max_text_tokens, params, Pieces(self.chat))

    async def adapt(self, seat: Seat, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        async with aclosing(self.prompter.prompts(seat.request, inputs)) as prompts:
            async for prompt in prompts:
                yield prompt

    @torch.inference_mode()
    def step(self, seats: Sequence[Seat]) -> Sequence[Sequence[Chunk] | EngineError]:
        results: dict[int, list[Chunk] | EngineError] = {}
        for seat in seats:
            if seat.rows and (error := guarded(self, seat, self._begin)):
                results[id(seat)] = error
        sane = [seat for seat in seats if id(seat) not in results]
        for seat in to_keep(sane):
            self._remember(seat)
        results |= self._read(sane)
        writing = [seat for seat in seats if seat.state.writing and id(seat) not in results]
        free = sorted((seat for seat in writing if seat.state.script is None), key=by_slot)
        if free:
            written = zip(free, self._write(free), strict=True)
            results |= {id(seat): guarded(self, seat, self._take, id_) for seat, id_ in written}
        for seat in seats:
            seat.needs_input = not seat.state.reading and not seat.state.writing  # the user is still speaking
        for seat in writing:
            if (script := seat.state.script) is not None:
                token = script.popleft() if script else next(iter(self.ends))
                results[id(seat)] = guarded(self, seat, self._take, token)
        return [results.get(id(seat), []) for seat in seats]

    def _begin(self, seat: Seat) -> None:
        """Take up the prompt, or what more of it is known by now."""
        thought: Thought = seat.state
        prompt: Prompt = seat.rows.pop()
        seat.rows.clear()  # an earlier state of it
        thought.prompt, thought.rows, thought.deep = prompt, None, []
        self._recall(seat, prompt)
        if prompt.whole:
            thought.limit = min(thought.limit, self.source.context - len(prompt.ids))
        if prompt.script is not None:
            thought.script = deque(prompt.script)
            thought.limit = len(thought.script) + 1

    def _recall(self, seat: Seat, prompt: Prompt) -> None:
        """Take over what the session has of this prompt; of a whole one the last row is computed, for its logits."""
        thought: Thought = seat.state
        found = self.prefixes.find(seat.request.session, prompt.names.tolist(), thought.num_computed_tokens)
        if found is None:
            return
        end = min(found[0], len(prompt.ids) - prompt.whole)
        if end <= thought.num_computed_tokens:
            return
        self.net.cache.restore(seat.slot, found[1].keys, found[1].values, thought.num_computed_tokens, end)
        start, marks = thought.num_computed_tokens, self.source.marks
        before, after = (len(media(prompt, slice(0, n), marks)) for n in (start, end))
        thought.media_hidden.append(found[1].media_hidden[before:after])
        thought.num_computed_tokens = end

    def _remember(self, seat: Seat) -> None:
        """Keep what was computed, for the session's next request."""
        thought: Thought = seat.state
        assert thought.prompt is not None
        thought.unkept = False
        names = [*thought.prompt.names.tolist(), *thought.output_ids][: thought.num_computed_tokens]
        keys, values = self.net.cache.copy(seat.slot, thought.num_computed_tokens)
        prefix = PrefixKV(keys, values, np.concatenate(thought.media_hidden))
        self.prefixes.keep(seat.request.session, names, prefix, prefix.size)

    def _read(self, seats: Sequence[Seat]) -> dict[int, list[Chunk] | EngineError]:
        """Prefill the next pieces of prompts as one batch; encoding what is heard and seen is its own step."""
        pieces: list[Piece] = []
        room = self.source.piece  # rows a step: what is being spoken waits for no more
        reading = [seat for seat in seats if seat.state.reading]
        encoded = self._encode_together(reading)
        results: dict[int, list[Chunk] | EngineError] = {**encoded}
        for seat in reading:
            if room <= 0:
                break
            thought: Thought = seat.state
            assert thought.prompt is not None
            results[id(seat)] = chunks = encoded.get(id(seat), [])
            if thought.rows is None:
                results[id(seat)] = chunks = guarded(self, seat, lambda one: self._encode([one])[id(one)])
                if isinstance(chunks, EngineError):
                    continue
                if thought.prompt.media_end > thought.num_computed_tokens:
                    break
            end = min(len(thought.prompt.ids), thought.num_computed_tokens + self.source.piece)
            pieces.append(Piece(seat, slice(thought.num_computed_tokens, end), chunks))
            room -= end - thought.num_computed_tokens
        return results | self._prefill(pieces) if pieces else results

    def _encode_together(self, reading: Sequence[Seat]) -> dict[int, list[Chunk]]:
        """On a GPU, to which many rows are as one, encode what several prompts hear in the step that takes them in."""
        if self.source.device.type == "cpu":
            return {}
        sizes = itertools.accumulate(len(seat.state.prompt.ids) - seat.state.num_computed_tokens for seat in reading)
        within = [seat for seat, size in zip(reading, sizes, strict=True) if size <= ENCODED * self.source.piece]
        fresh = [seat for seat in within or reading[:1] if seat.state.rows is None]
        return self._encode(fresh) if fresh else {}

    def _encode(self, seats: Sequence[Seat]) -> dict[int, list[Chunk]]:
        """Make rows of their prompts; the chunks for the talker of those that were recalled."""
        asked = [(seat.state.prompt, seat.state.num_computed_tokens) for seat in seats]
        for seat, rows in zip(seats, self.encoders.rows(self.net.embed_tokens, asked), strict=True):
            seat.state.rows, seat.state.deep = rows
        return {id(seat): self._recalled(seat) for seat in seats}

    def _recalled(self, seat: Seat) -> list[Chunk]:
        thought: Thought = seat.state
        assert thought.prompt is not None
        if thought.num_sent >= thought.num_computed_tokens:
            return []
        before = len(media(thought.prompt, slice(0, thought.num_sent), self.source.marks))
        media_hidden = np.concatenate(thought.media_hidden)[before:]
        return emit(seat, thought.prompt, slice(thought.num_sent, thought.num_computed_tokens), media_hidden)

    def _prefill(self, pieces: Sequence[Piece]) -> dict[int, EngineError]:
        """Take in pieces of prompts, and write the first token behind those that end with theirs; who failed."""
        batch = Batch()
        for piece in pieces:
            thought: Thought = piece.seat.state
            assert thought.prompt is not None
            assert thought.rows is not None
            batch.add(
                piece.seat.slot, piece.rows.start, thought.rows[piece.rows], thought.prompt.positions[:, piece.rows]
            )
        hidden, tapped = self.net.append(batch, deep(pieces))
        failed: dict[int, EngineError] = {}
        for piece, media_hidden in zip(pieces, self._media_hidden(pieces, tapped), strict=True):
            _extend(piece, guarded(self, piece.seat, self._took, piece.rows, media_hidden), failed)
        ends = [pair for pair in zip(pieces, batch.lasts, strict=True) if id(pair[0].seat) not in failed]
        ended = [(one, at) for one, at in ends if one.seat.state.writing and one.seat.state.script is None]
        if not ended:
            return failed
        thoughts: list[Thought] = [piece.seat.state for piece, _ in ended]
        last = hidden[to_device([at for _, at in ended], self.source.device)]
        tokens = self.net.choose(last, [one.params for one in thoughts], [one.num_output_tokens for one in thoughts])
        for (piece, _), token in zip(ended, tokens, strict=True):
            _extend(piece, guarded(self, piece.seat, self._take, token), failed)
            piece.seat.state.unkept = not piece.seat.done and id(piece.seat) not in failed
        return failed

    def _media_hidden(self, pieces: Sequence[Piece], tapped: Tensor) -> list[NDArray[np.float32]]:
        """Of each piece the rows of sounds and pictures; the device is asked once for all."""
        counts = [piece.rows.stop - piece.rows.start for piece in pieces]
        firsts = np.cumsum([0, *counts[:-1]])
        marks = self.source.marks
        seen = [media(piece.seat.state.prompt, piece.rows, marks) - piece.rows.start for piece in pieces]
        at = np.concatenate([rows + first for rows, first in zip(seen, firsts, strict=True)])
        found = np.zeros((0, tapped.shape[1]), np.float32)
        if len(at):
            found = tapped[to_device(at, self.source.device)].float().cpu().numpy()
        return np.split(found, np.cumsum([len(rows) for rows in seen[:-1]]))

    def _took(self, seat: Seat, piece: slice, media_hidden: NDArray[np.float32]) -> list[Chunk]:
        """A piece of the prompt is in the cache: the chunks for the talker of it."""
        thought: Thought = seat.state
        prompt = thought.prompt
        assert prompt is not None
        thought.media_hidden.append(media_hidden)
        thought.num_computed_tokens = piece.stop
        if thought.writing:
            thought.rows, thought.deep, thought.position = None, [], float(prompt.positions.max()) + 1
        elif not thought.reading and prompt.media_end == piece.stop:
            self._remember(seat)  # what the user has said so far: should they be answered anew, it is known
        return emit(seat, prompt, piece, media_hidden)

    def _write(self, seats: Sequence[Seat]) -> list[int]:
        """One token for each seat, in one forward."""
        thoughts: list[Thought] = [seat.state for seat in seats]
        inputs = [one.decode_input(seat.slot) for seat, one in zip(seats, thoughts, strict=True)]
        for thought in thoughts:
            thought.num_computed_tokens += 1
            thought.position += 1
        return self.net.write(inputs)

    def _take(self, seat: Seat, token: int) -> list[Chunk] | EngineError:
        """Make chunks of a new token: text for the client, a row for the talker, the usage with the last."""
        thought: Thought = seat.state
        if token == FAILED:
            self.net.cache.clear(seat.slot)
            return StageFailed("the thinker's logits are not numbers")
        thought.last = token
        thought.output_ids.append(token)
        last = token in self.ends or thought.num_output_tokens >= thought.limit
        chunks = [] if token in self.ends else self._word(seat, token, spoken=not last)
        if last:
            chunks += self._text(thought, *thought.pieces.flush())
            chunks.append(self._usage(seat, token))
            self._remember(seat)
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
            end = [Tensors.of(TextEnd())] if seat.request.speaks else []
            return [*self._text(thought, *thought.pieces.flush()), *end]
        chunks = self._text(thought, *thought.pieces.feed(token))
        if spoken and seat.request.speaks and not thought.called:
            chunks.append(Tensors.of(TextToken(token, thought.characters)))
        return chunks

    def _text(self, thought: Thought, text: str, ids: list[int]) -> list[Chunk]:
        start, thought.characters = thought.characters, thought.characters + len(text)
        return [Text(text, start, tuple(ids))] if ids else []

    def _call(self, seat: Seat) -> list[Chunk]:
        """A whole tool call (JSON between its marks); what is none is shown as the text it is."""
        thought: Thought = seat.state
        ids, thought.call, thought.called = thought.call or [], None, True
        try:
            call = json.loads(self.chat.text(ids[1:-1]))
            name, arguments = str(call["name"]), json.dumps(call.get("arguments", {}))
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._text(thought, self.chat.text(ids), ids)
        return [ToolCall(f"call_{seat.request.id}_{thought.num_output_tokens}", name, arguments, tuple(ids))]

    def _usage(self, seat: Seat, token: int) -> Usage:
        thought: Thought = seat.state
        assert thought.prompt is not None
        finish = "length" if token not in self.ends else "tool" if thought.called else "stop"
        prompt_ids = tuple(thought.prompt.ids.tolist()) if seat.request.dump else ()
        return Usage(len(thought.prompt.ids), thought.num_output_tokens, finish=finish, prompt_ids=prompt_ids)


def _extend(piece: Piece, result: list[Chunk] | EngineError, failed: dict[int, EngineError]) -> None:
    """Add the result of a piece to its chunks, or note that its seat has failed."""
    if isinstance(result, EngineError):
        failed[id(piece.seat)] = result
    else:
        piece.chunks.extend(result)
