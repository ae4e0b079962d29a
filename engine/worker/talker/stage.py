"""Base class of talkers: text to codec frames, one text token per frame, batched over all requests.

A family implements ``prefill`` (the prompt before the text), ``first_embeddings`` (the rows that begin the speech) and
``taken`` (reads items from the upstream stage).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Chunk, Codes
from engine.core import StageInfo
from engine.errors import EngineError, StageFailed
from engine.worker.nn.decode_batch import DecodeInput
from engine.worker.nn.sampling_params import FAILED, BatchSamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.stage import guarded
from engine.worker.stage_request import StageRequest
from engine.worker.talker.net import TalkerNet
from engine.worker.talker.pending import by_slot, room_of
from engine.worker.talker.talker_state import TalkerState

Net = TypeVar("Net", bound=TalkerNet)
Results = dict[int, list[Chunk] | EngineError]
Speakers = list[tuple[StageRequest, int]]
"""Requests that produce a frame in this step, each with the id of its next text token."""


class TalkerStage(Generic[Net]):
    """Produces one codec frame per step for every request that is speaking, in one forward pass."""

    plannable: ClassVar[bool] = True
    work_bytes: ClassVar[int] = 600_000_000
    """Estimated GPU memory of graphs and steps."""

    info: StageInfo
    net: Net
    piece: int
    """Maximum prompt rows per step while a request is speaking."""
    end: int
    """Text token that ends a text."""
    pad: int
    """Text token for the frames after the end of the text."""

    def open(self, req: StageRequest) -> None:
        raise NotImplementedError

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        raise NotImplementedError

    def prefill(self, req: StageRequest, batch: Batch) -> int:
        """Add up to one piece of the prompt before the text to the batch. Returns the number of rows added."""
        raise NotImplementedError

    def first_embeddings(self, reqs: Sequence[StageRequest], texts: Sequence[int]) -> Tensor:
        """Return the rows [batch, n, width] that begin the speech; the last includes the first text token."""
        raise NotImplementedError

    def taken(self, req: StageRequest, item: Any) -> int | None:
        """Return the text id of an item of ``pending``, or None if it is not a text token."""
        raise NotImplementedError

    @torch.inference_mode()
    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        results: Results = {}
        batch = Batch()
        self._prefill(reqs, batch, results)
        beginning, going = self._speakers([req for req in reqs if id(req) not in results], batch, results)
        results |= (self._replay if self.net.graphs else self._compute)(beginning, going, batch)
        for req in reqs:
            req.needs_input = not req.pending and not req.state.ended
        return [results.get(id(req), []) for req in reqs]

    def _prefill(self, reqs: Sequence[StageRequest], batch: Batch, results: Results) -> None:
        """Add the requests' prompts to the batch, up to the row limit."""
        room = room_of(reqs, self.piece, self.net.device)
        for req in reqs:
            if room > 0:
                taken = guarded(self, req, self.prefill, batch)
                if isinstance(taken, EngineError):
                    results[id(req)] = taken
                else:
                    room -= taken

    def _speakers(self, reqs: Sequence[StageRequest], batch: Batch, results: Results) -> tuple[Speakers, Speakers]:
        """Return the requests that begin to speak and those that continue, each with its next text token.

        Results of the other requests go into ``results``.
        """
        beginning: Speakers = []
        going: Speakers = []
        for req in sorted(reqs, key=by_slot):
            found = guarded(self, req, self._next, batch)
            if isinstance(found, int):
                (going if req.state.started else beginning).append((req, found))
            elif found is not None:
                results[id(req)] = found
        return beginning, going

    def _next(self, req: StageRequest, batch: Batch) -> int | list[Chunk] | None:
        """Return the next text token of a request that speaks; otherwise its output, or None."""
        speech: TalkerState = req.state
        if speech.frames < len(speech.spoken):
            return self._follow(req, batch)
        return self.cut(req) if speech.frames >= speech.limit else self._next_text(req)

    def add(self, req: StageRequest, batch: Batch, embeddings: Tensor, positions: NDArray[np.float32]) -> None:
        """Append rows [n, width] to a request's slot, at rope positions [3, n]."""
        speech: TalkerState = req.state
        batch.add(req.slot, speech.num_computed_tokens, embeddings, positions)
        speech.num_computed_tokens += len(embeddings)

    def add_on(self, req: StageRequest, batch: Batch, embeddings: Tensor) -> None:
        """Append rows [n, width] to a request's slot, at consecutive positions."""
        speech: TalkerState = req.state
        count = np.arange(len(embeddings), dtype=np.float32) + np.float32(speech.position)
        self.add(req, batch, embeddings, np.broadcast_to(count, (3, len(embeddings))))
        speech.position += len(embeddings)

    def _next_text(self, req: StageRequest) -> int | None:
        """Return the text token for the next frame, or None if it has not arrived. After the last token come the end
        and padding.
        """
        speech: TalkerState = req.state
        if not speech.prepared:
            req.done = req.ended and not req.pending
            return None
        while req.pending:
            if (text := self.taken(req, req.pending.popleft())) is not None or req.done:
                return text
        if speech.ended:
            return self.pad
        return self.end_text(req) if req.ended else None

    def end_text(self, req: StageRequest) -> int | None:
        """End the text. An answer without any text is done without audio."""
        speech: TalkerState = req.state
        speech.ended = True
        req.done = not speech.started
        return self.end if speech.started else None

    def cut(self, req: StageRequest) -> list[Chunk]:
        """End an answer that has reached its maximum length."""
        req.done = req.cut = True
        return []

    def _compute(self, beginning: Speakers, going: Speakers, batch: Batch) -> Results:
        """Run the batch and the speakers' next rows in one forward pass, and return a frame for each speaker."""
        speaking = self._begin(beginning, batch) + self._go_on(going, batch)
        hidden = self.net.append(batch) if len(batch) else None
        if hidden is None or not speaking:
            return {}
        slots, steps = [req.slot for req in speaking], [req.state.answered for req in speaking]
        params = BatchSamplingParams.of([req.state.params for req in speaking], hidden.device)
        return self._framed(speaking, self.net.frames(slots, hidden[-len(speaking) :], params, steps))

    def _replay(self, beginning: Speakers, going: Speakers, batch: Batch) -> Results:
        """Do the same as ``_compute`` with captured graphs.

        They take one row per speaker, also for an answer's first frame.
        """
        if beginning:
            self.net.lead([req.slot for req in self._begin(beginning, batch, last=False)])
        if len(batch):
            self.net.append(batch)
        inputs = [self._decode_input(req, text) for req, text in (*beginning, *going)]
        return self._framed([req for req, _ in (*beginning, *going)], self.net.speak(inputs)) if inputs else {}

    def _decode_input(self, req: StageRequest, text: int) -> DecodeInput:
        speech: TalkerState = req.state
        start, position = speech.num_computed_tokens, speech.position
        speech.num_computed_tokens = start + 1
        speech.position = position + 1
        return DecodeInput(req.slot, start, text, speech.answered, position, speech.params)

    def _begin(self, beginning: Speakers, batch: Batch, last: bool = True) -> list[StageRequest]:
        """Add the first rows of requests to the batch, with or without the last row. Returns these requests."""
        if not beginning:
            return []
        reqs = [req for req, _ in beginning]
        embeddings = self.first_embeddings(reqs, [text for _, text in beginning])
        for req, own in zip(reqs, embeddings if last else embeddings[:, :-1], strict=True):
            req.state.started = True
            if len(own):
                self.add_on(req, batch, own)
        return reqs

    def _go_on(self, going: Speakers, batch: Batch) -> list[StageRequest]:
        """Add the next row (last frame and next text token) of each speaker to the batch. Returns these requests."""
        if not going:
            return []
        reqs, texts = [req for req, _ in going], [text for _, text in going]
        for req, own in zip(reqs, self.net.next_embeddings([req.slot for req in reqs], texts), strict=True):
            self.add_on(req, batch, own[None])
        return reqs

    def _follow(self, req: StageRequest, batch: Batch) -> list[Chunk]:
        """Add known frames to the batch, as far as their text has arrived, without drawing any.

        Returns the frames that belong to the answer itself; frames in ``given`` are left out.
        """
        speech: TalkerState = req.state
        first = max(speech.frames, speech.given)
        if not speech.started:
            if (text := self._next_text(req)) is None:
                return []
            self._begin([(req, text)], batch)
            speech.frames = 1
        texts: list[int] = []
        most = min(self.piece, len(speech.spoken) - speech.frames)
        while len(texts) < most and (text := self._next_text(req)) is not None:
            texts.append(text)
        known = speech.spoken[speech.frames - 1 : speech.frames + len(texts)]
        embeddings = self.net.follow(req.slot, known, max(0, speech.given - speech.frames + 1))
        if texts:
            self.add_on(req, batch, embeddings + self.net.text_embeddings(texts))
            speech.frames += len(texts)
        return [Codes(frame[None], speech.reached) for frame in speech.spoken[first : speech.frames]]

    def _framed(self, reqs: Sequence[StageRequest], frames: NDArray[np.int16]) -> Results:
        return {id(req): guarded(self, req, self._frame, frame) for req, frame in zip(reqs, frames, strict=True)}

    def _frame(self, req: StageRequest, frame: NDArray[np.int16]) -> list[Chunk] | EngineError:
        speech: TalkerState = req.state
        if (frame == FAILED).any():
            self.net.forget(req.slot)
            return StageFailed("the talker's logits are not numbers")
        if frame[0] == self.net.shape.end:
            req.done = True
            return []
        speech.frames += 1
        return [Codes(frame[None], speech.reached)]


def spoken_before(req: StageRequest, groups: int) -> NDArray[np.int16]:
    """Return the frames [frames, groups] that a lost replica had computed, and that this one continues.

    They cannot be recomputed: in bfloat16 the results may differ.
    """
    frames = [chunk.frames for chunk in req.kept if isinstance(chunk, Codes)]
    return np.concatenate([np.zeros((0, groups), np.int16), *frames])
