"""Requests become the prompts that a thinker takes.

Template, placeholders, features and rope positions are made as the reference makes them, off the step loop.
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
_UNSPOKEN = AudioPart(np.zeros(0, np.int16))  # the placeholder of speech that is not over
_UNSHOWN = VideoPart(np.zeros((0, 1, 1, 3), np.uint8), 1.0)  # and of what is shown meanwhile, with it
FEW = 3  # threads that make short prompts at once: sixteen are sooner done than in one each
SHORT_S, SHORT_CHARACTERS = 30.0, 20_000  # of a prompt's sounds and texts, which takes some 20 ms
QUICK_CHARACTERS = 4000  # made into a prompt in about a millisecond
CHARACTERS = 64  # that a token of the context may stand for: of spaces some do; a text beyond is not even tokenized


@dataclass(frozen=True, slots=True)
class Draft:
    """A request as far as it is known before its last sound has been spoken.

    ``ids`` have one placeholder for each thing that is heard or seen; ``known`` are the blocks of all those, in their
    order, but of the one that is still being spoken; ``longest`` is their longest sound in samples.
    """

    ids: list[int]
    known: list[tuple[Block, ...]]
    longest: int
    script: list[int] | None


class Prompter:
    """Requests to prompts: template, placeholders, features, positions."""

    def __init__(self, source: OmniSource) -> None:
        self.source = source
        self.chat = Chat(source.folder)
        self.marks = source.marks
        settings = read_json(source.folder / "preprocessor_config.json")
        merge = source.config.thinker_config.vision_config.spatial_merge_size
        self.media_processor = MediaProcessor(settings, source.audio, source.positions, merge)
        self._few = ThreadLimiter(FEW)

    def quick(self, request: Request) -> bool:
        """Whether a prompt is made in less time than a step takes: typed, and not long."""
        parts = [part for message in request.messages for part in message.parts]
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        return not request.live and len(texts) == len(parts) and sum(map(len, texts)) <= QUICK_CHARACTERS

    async def prompts(self, request: Request, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Prompt]:
        """The prompt as far as it is known: before the user speaks, as they speak, whole."""
        if self.quick(request):
            yield self.prompt(self.draft(request))  # a thread would take longer to get its turn
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
        """Compute off the event loop: what is soon done in few threads at once, of which each takes the others' turns;
        what takes long beside them."""
        return await (asyncio.to_thread(compute) if _is_long(request) else self._few.do(compute))

    def draft(self, request: Request) -> Draft:
        """Build what can be made of a request before it is spoken. Raises RequestError for what cannot be served."""
        check_length(request.messages, self.source.context * CHARACTERS)
        messages, script = self._messages(request)
        self._check_ids(messages)
        if request.must_call:
            choice = f"tool_choice: {request.tool_choice!r}"
            raise RequestError(f"{choice} is not served by this model, which takes 'auto' and 'none'.")
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
        """The prompt with what was ``spoken``; unless that is the ``whole`` of it, up to there, and what is ``ahead``.

        Raises ContextOverflow for too long a prompt.
        """
        known = [*draft.known, tuple(spoken)]  # the last of them belongs to nobody where nothing is spoken
        blocks = [block for one in known for block in one]
        last = max((i for i, id in enumerate(draft.ids) if id in self.marks.media), default=0)
        ids, starts = self._spread(draft.ids if whole else draft.ids[: last + 1], known)
        if not whole and ids[-1] == self.marks.audio_end:
            ids.pop()  # the video goes on
        if len(ids) + 2 > self.source.context:
            raise ContextOverflow(f"the prompt has {len(ids)} tokens; the context is {self.source.context}")
        names = np.array(ids)
        for start, block in zip(starts, blocks, strict=True):
            names[start : start + block.num_positions] = block.names
        positions = self.source.positions(ids, blocks)
        talker = self.source.talker_feed.chosen(ids, positions, names, blocks)
        return Prompt(np.array(ids), positions, names, talker, tuple(blocks), tuple(starts), draft.script, whole, ahead)

    def _messages(self, request: Request) -> tuple[list[Message], str | None]:
        """The conversation with the turn that is being spoken, and what is to be said as it stands."""
        messages = list(request.messages)
        if request.live:
            last = messages.pop() if messages and messages[-1].role == "user" else Message("user", ())
            messages.append(Message("user", (*last.parts, _UNSHOWN if request.camera else _UNSPOKEN)))
        if request.say is not None:
            return messages or [Message("user", ())], request.say  # no template renders nothing at all
        return messages, None

    def _check_ids(self, messages: Sequence[Message]) -> None:
        size, media = self.source.text.vocab_size, self.marks.media
        for id in (id for message in messages for id in message.ids_of(self.chat.tokenizer)):
            if not 0 <= id < size or id in media:
                raise RequestError(f"token_ids: {id} is no word of this model")

    def _spread(self, ids: Sequence[int], known: Sequence[tuple[Block, ...]]) -> tuple[list[int], list[int]]:
        """Every placeholder as often as what it stands for has rows, and where each block's rows begin.

        A video with its sound stands between marks of sound.
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
    """Whether a prompt may take longer than some milliseconds: of pictures, long sounds, long texts."""
    parts = [part for message in request.messages for part in message.parts]
    sounds = [len(part.pcm) for part in parts if isinstance(part, AudioPart)]
    texts = [len(part.text) for part in parts if isinstance(part, TextPart)]
    others = len(parts) > len(sounds) + len(texts)
    return request.camera or others or sum(sounds) > SHORT_S * MIC_RATE_HZ or sum(texts) > SHORT_CHARACTERS


def _grown(spoken: StreamingMel | StreamingFilm, chunk: Chunk) -> bool:
    """Add a chunk to the turn; whether more of it is known by that. Raises RequestError."""
    if isinstance(chunk, VideoFrame):
        return isinstance(spoken, StreamingFilm) and spoken.add_frame(chunk)
    return isinstance(chunk, Speech) and spoken.push(chunk.pcm)
