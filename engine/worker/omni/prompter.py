"""Builds the prompts of requests.

Template, placeholders, features and rope positions match the reference. Long prompts are built outside the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from engine.chunk import Chunk, Speech, VideoFrame
from engine.core import MIC_RATE_HZ, AudioPart, Message, Request, TextPart, VideoPart
from engine.errors import ContextOverflow, RequestError
from engine.worker.nn.weights import read_json
from engine.worker.omni.block import Block, PictureGrid
from engine.worker.omni.film import StreamingFilm
from engine.worker.omni.media import MediaProcessor, longest_sound
from engine.worker.omni.prompt import Prompt
from engine.worker.omni.sound import StreamingMel
from engine.worker.omni.source import OmniSource
from engine.worker.omni.thread_limiter import ThreadLimiter
from engine.worker.stage import check_length
from engine.worker.text.chat_encoder import Chat

T = TypeVar("T")
_UNSPOKEN = AudioPart(np.zeros(0, np.int16))  # placeholder of speech that has not ended
_UNSHOWN = VideoPart(np.zeros((0, 1, 1, 3), np.uint8), 1.0)  # and of speech with camera frames
FEW = 3  # threads for short prompts: faster than one thread for each of sixteen prompts
SHORT_S, SHORT_CHARACTERS = 30.0, 20_000  # a prompt with that much audio and text takes about 20 ms
QUICK_CHARACTERS = 4000  # take about a millisecond
CHARACTERS = 64  # maximum characters per token (spaces); a longer text is rejected before it is tokenized


@dataclass(frozen=True, slots=True)
class Draft:
    """The part of a prompt that is known before the user has spoken."""

    ids: list[int]
    """Token ids, with one placeholder for each media part."""
    known: list[tuple[Block, ...]]
    """The blocks of all media parts in order, except the one that is still being spoken."""
    longest: int
    """Number of samples of the longest clip among ``known``."""
    script: list[int] | None
    """The token ids of a text that is spoken verbatim; None for a normal answer."""


class Prompter:
    """Converts requests to prompts: template, placeholders, features, positions."""

    def __init__(self, source: OmniSource) -> None:
        self.source = source
        self.chat = Chat(source.folder)
        self.marks = source.marks
        settings = read_json(source.folder / "preprocessor_config.json")
        merge = source.config.thinker_config.vision_config.spatial_merge_size
        self.media_processor = MediaProcessor(settings, source.audio, source.positions, merge)
        self._few = ThreadLimiter(FEW)

    def quick(self, request: Request) -> bool:
        """Whether building the prompt takes less time than a step: a short text without media."""
        parts = [part for message in request.messages for part in message.parts]
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        return not request.live and len(texts) == len(parts) and sum(map(len, texts)) <= QUICK_CHARACTERS

    async def prompts(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Prompt]:
        """Yield the prompt as far as it is known: before the user speaks, while they speak, and complete."""
        if self.quick(request):
            yield self.prompt(self.draft(request))  # a thread would take longer to be scheduled
            return
        if not request.live:
            yield await self._beside(request, lambda: self.prompt(self.draft(request)))
            return
        draft = await self._beside(request, lambda: self.draft(request))
        yield self.prompt(draft, whole=False)
        spoken = self.media_processor.watch() if request.camera else self.media_processor.listen()
        async for chunk in inputs:
            if _grown(spoken, chunk):
                yield await self._beside(
                    request, lambda: self.prompt(draft, spoken.windows(), whole=False, ahead=spoken.ahead())
                )
        silence = self.source.audio.silence(spoken.samples, draft.longest)
        yield await self._beside(request, lambda: self.prompt(draft, spoken.whole(silence)))

    async def _beside(self, request: Request, compute: Callable[[], T]) -> T:
        """Compute outside the event loop: short work in a few shared threads, long work in its own thread."""
        return await (asyncio.to_thread(compute) if _is_long(request) else self._few.do(compute))

    def draft(self, request: Request) -> Draft:
        """Return the known part of a prompt. Raises RequestError if the request cannot be served."""
        check_length(request.messages, self.source.context * CHARACTERS)
        messages, script = self._messages(request)
        self._check_ids(messages)
        if request.must_call:
            choice = request.tool_choice
            raise RequestError(f"tool_choice: {choice!r} is not supported by this model; use 'auto' or 'none'.")
        known = self.chat.tokenizer
        given = [part for one in messages if one.role != "assistant" and not one.ids_of(known) for part in one.parts]
        parts = [part for part in given if part is not _UNSPOKEN and part is not _UNSHOWN]
        return Draft(
            self.chat.prompt(messages, request.offers),
            self.media_processor.blocks(parts),
            longest_sound(parts),
            None if script is None else self.chat.encode(script),
        )

    def prompt(
        self, draft: Draft, spoken: Sequence[Block] = (), whole: bool = True, ahead: tuple[PictureGrid, ...] = ()
    ) -> Prompt:
        """Return the prompt with the blocks ``spoken`` so far. If they are not the ``whole`` turn, the prompt ends
        after them.

        Raises:
            ContextOverflow: The prompt is longer than the context.
        """
        known = [*draft.known, tuple(spoken)]  # the last one is unused without a live turn
        blocks = [block for one in known for block in one]
        last = max((i for i, id in enumerate(draft.ids) if id in self.marks.media), default=0)
        ids, starts = self._spread(draft.ids if whole else draft.ids[: last + 1], known)
        if not whole and ids[-1] == self.marks.audio_end:
            ids.pop()  # more of the video follows
        if len(ids) + 2 > self.source.context:
            raise ContextOverflow(
                f"the prompt has {len(ids)} tokens; the context is {self.source.context}. Shorten the conversation"
            )
        names = np.array(ids)
        for start, block in zip(starts, blocks, strict=True):
            names[start : start + block.num_positions] = block.names
        positions = self.source.positions(ids, blocks)
        talker = self.source.talker_feed.chosen(ids, positions, names, blocks)
        return Prompt(np.array(ids), positions, names, talker, tuple(blocks), tuple(starts), draft.script, whole, ahead)

    def _messages(self, request: Request) -> tuple[list[Message], str | None]:
        """Return the conversation with a placeholder for the live turn, and the text to speak verbatim, if any."""
        messages = list(request.messages)
        if request.live:
            last = messages.pop() if messages and messages[-1].role == "user" else Message("user", ())
            messages.append(Message("user", (*last.parts, _UNSHOWN if request.camera else _UNSPOKEN)))
        if request.say is not None:
            return messages or [Message("user", ())], request.say  # templates reject an empty conversation
        return messages, None

    def _check_ids(self, messages: Sequence[Message]) -> None:
        size, media = self.source.text.vocab_size, self.marks.media
        for id in (id for message in messages for id in message.ids_of(self.chat.tokenizer)):
            if not 0 <= id < size or id in media:
                raise RequestError(f"token_ids: {id} is not a text token of this model")

    def _spread(self, ids: Sequence[int], known: Sequence[tuple[Block, ...]]) -> tuple[list[int], list[int]]:
        """Repeat each placeholder for every row of its media. Return the ids, and the first row of each block.

        Audio marks surround a video with audio.
        """
        marks, media, left = self.marks, self.marks.media, iter(known)
        whole: list[int] = []
        starts: list[int] = []
        for id in ids:
            if id not in media:
                whole.append(id)
                continue
            blocks = next(left)
            mixed = bool(blocks) and blocks[0].mixed
            whole += [marks.audio_start] * mixed
            for block in blocks:
                starts.append(len(whole))
                if mixed:
                    whole += [marks.video if at < block.cells else marks.audio for at in block.order.tolist()]
                else:
                    whole += [id] * block.num_positions
            whole += [marks.audio_end] * mixed
        return whole, starts


def _is_long(request: Request) -> bool:
    """Whether building the prompt may take longer than some milliseconds: it has pictures, long audio or long texts."""
    parts = [part for message in request.messages for part in message.parts]
    sounds = [len(part.pcm) for part in parts if isinstance(part, AudioPart)]
    texts = [len(part.text) for part in parts if isinstance(part, TextPart)]
    others = len(parts) > len(sounds) + len(texts)
    return request.camera or others or sum(sounds) > SHORT_S * MIC_RATE_HZ or sum(texts) > SHORT_CHARACTERS


def _grown(spoken: StreamingMel | StreamingFilm, chunk: Chunk) -> bool:
    """Add a chunk to the turn. Return whether more of the prompt is known now. Raises RequestError."""
    if isinstance(chunk, VideoFrame):
        return isinstance(spoken, StreamingFilm) and spoken.add_frame(chunk)
    return isinstance(chunk, Speech) and spoken.push(chunk.pcm)
